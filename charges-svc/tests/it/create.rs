//! Creating charges while sessions-svc cannot be reached: nothing is started, and nothing stays.

use std::time::Duration;

use charges_svc::store;
use chassis::{
    grpc,
    ids::SessionId,
    money::{Currency, Money},
    testing::{check_invalid, check_refusal, fake_server::json, until},
};
use futures::future::join_all;
use proto::charges::{ChargeStatus, CreateChargeRequest, HostedSession};
use rails::testing::with_tokens;
use tonic::Code;

use crate::world::{Neighbour, World, ghs, request};

#[derive(Debug, sqlx::FromRow)]
struct Left {
    void: i64,
    others: i64,
    keys: i64,
    outbox: i64,
}

async fn left(world: &World) -> Left {
    let mut conn = world.db.read().await.unwrap();
    conn.sql(
        "select (select count(*) from charges where state = 'VOID') as void,
             (select count(*) from charges where state <> 'VOID') as others,
             (select count(*) from idempotency_keys) as keys,
             (select count(*) from outbox where event_id is null) as outbox",
    )
    .one()
    .await
    .unwrap()
}

#[tokio::test]
async fn without_sessions_svc_nothing_is_started_and_only_the_withdrawal_stays() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let request = request();
    for tries in 1..=2 {
        // The same key each time: the first try does not keep it.
        let answer = world.charges.create_charge(request.clone()).await;
        check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
        let left = left(&world).await;
        assert_eq!(
            (left.void, left.others, left.keys, left.outbox),
            (tries, 0, 0, tries)
        );
    }
    // Once it is back, it is told.
    world.restart().await.end().await;
}

#[tokio::test]
async fn a_key_is_one_request_however_many_come_at_once() {
    let world = World::start_beside(Neighbour::Silent).await;
    let first = request();
    let mut other = first.clone();
    other.amount = Some(ghs(2551));
    let answers = join_all((0..50).map(|number| {
        let mut charges = world.charges.clone();
        let request = if number < 40 {
            first.clone()
        } else {
            other.clone()
        };
        async move { charges.create_charge(request).await.unwrap_err() }
    }))
    .await;
    let count = |reason: &str| {
        let told = |status: &&tonic::Status| grpc::reason(status).as_deref() == Some(reason);
        answers.iter().filter(told).count()
    };
    let (started, running) = (count("NOTHING_STARTED"), count("IDEMPOTENCY_IN_PROGRESS"));
    let reused = count("IDEMPOTENCY_KEY_REUSED");
    assert_eq!(started + running + reused, 50);
    assert!(
        running + reused > 0,
        "some came while the first was running"
    );
    // One of them went to sessions-svc, another only if it arrived after that one had ended.
    let left = left(&world).await;
    assert_eq!(left.void, i64::try_from(started).unwrap());
    assert_eq!((left.others, left.keys), (0, 0));
    if started == 1 {
        assert!(
            running == 39 || reused == 40,
            "the first body made the others its repetitions: {running}, {reused}"
        );
    }
}

#[tokio::test]
async fn a_void_charge_is_not_there() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let request = request();
    let answer = world.charges.create_charge(request.clone()).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    let (reference,): (String,) = {
        let mut conn = world.db.read().await.unwrap();
        conn.sql("select reference from charges")
            .one()
            .await
            .unwrap()
    };
    let get = proto::charges::GetChargeRequest {
        merchant_id: request.merchant_id.clone(),
        reference: reference.clone(),
    };
    check_refusal(
        world.charges.get_charge(get).await,
        Code::NotFound,
        "CHARGE_NOT_FOUND",
    );
    let show = proto::charges::ShowChargeRequest {
        reference: reference.clone(),
    };
    check_refusal(
        world.operations.show_charge(show).await,
        Code::NotFound,
        "CHARGE_NOT_FOUND",
    );
    let submit = proto::charges::SubmitOtpRequest {
        merchant_id: request.merchant_id,
        reference,
        otp: "123456".to_owned(),
    };
    check_refusal(
        world.charges.submit_otp(submit).await,
        Code::NotFound,
        "CHARGE_NOT_FOUND",
    );
}

fn hosted(amount: Money, rate: Option<&str>) -> Option<HostedSession> {
    Some(HostedSession {
        session_id: SessionId::new().to_string(),
        amount: Some(amount.into()),
        rate: rate.map(ToOwned::to_owned),
    })
}

#[tokio::test]
async fn bad_input_names_its_field_and_leaves_nothing() {
    type Spoil = fn(&mut CreateChargeRequest);
    let mut world = World::start().await;
    let cases: [(&str, Spoil); 20] = [
        ("merchant_id", |request| {
            request.merchant_id = "x".to_owned()
        }),
        ("merchant_name", |request| {
            request.merchant_name = String::new()
        }),
        ("amount", |request| request.amount = None),
        ("amount", |request| request.amount = Some(ghs(0))),
        ("amount", |request| request.amount = Some(ghs(-1))),
        ("amount", |request| {
            request.amount = Some(ghs(1_000_000_000_000))
        }),
        ("amount", |request| {
            request.amount = Some(Money::new(1, Currency::USD).into())
        }),
        ("amount", |request| {
            request.amount.as_mut().unwrap().currency = "ghs".to_owned()
        }),
        ("mobile_number", |request| {
            request.mobile_number = "+4420794609".to_owned()
        }),
        ("provider", |request| request.provider = 0),
        ("provider", |request| request.provider = 99),
        ("description", |request| {
            request.description = Some("a\u{7}b".to_owned())
        }),
        ("description", |request| {
            request.description = Some("x".repeat(501))
        }),
        ("payer_email", |request| {
            request.payer_email = Some("x".repeat(255))
        }),
        ("payer_name", |request| {
            request.payer_name = Some(String::new())
        }),
        ("idempotency_key", |request| {
            request.idempotency_key = String::new()
        }),
        ("idempotency_key", |request| {
            request.idempotency_key = "c:\u{e4}".to_owned()
        }),
        ("idempotency_key", |request| {
            request.idempotency_key = "x".repeat(258)
        }),
        ("hosted.session_id", |request| {
            request.hosted = hosted(Money::new(2550, Currency::GHS), None);
            request.hosted.as_mut().unwrap().session_id = "x".to_owned();
        }),
        ("amount", |request| {
            request.hosted = hosted(Money::new(2549, Currency::GHS), None)
        }),
    ];
    for (field, spoil) in cases {
        let mut request = request();
        spoil(&mut request);
        check_invalid(world.charges.create_charge(request).await, field);
    }
    let left = left(&world).await;
    assert_eq!(
        (left.void, left.others, left.keys, left.outbox),
        (0, 0, 0, 0)
    );
}

#[tokio::test]
async fn a_hosted_charge_debits_its_sessions_amount_at_its_rate() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let usd = |minor| Money::new(minor, Currency::USD);
    for (amount, rate, field) in [
        (usd(100), Some("12.345"), "amount"),
        (usd(100), Some("0"), "hosted.rate"),
        (usd(100), Some("-25.5"), "hosted.rate"),
        (usd(100), Some("x"), "hosted.rate"),
        (usd(100), None, "amount"),
        (Money::new(2550, Currency::GHS), Some("1"), "hosted.rate"),
    ] {
        let mut request = request();
        request.hosted = hosted(amount, rate);
        check_invalid(world.charges.create_charge(request).await, field);
    }
    // This rate gives GHS 25.50, so the only problem is that sessions-svc cannot be reached.
    let mut request = request();
    request.hosted = hosted(usd(100), Some("25.4950"));
    let answer = world.charges.create_charge(request).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
}

/// The limit is one of major units, of which a dinar has a thousand minor ones.
#[tokio::test]
async fn a_session_in_a_currency_of_three_decimals_is_paid_up_to_the_same_limit() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let dinars = |minor| Money::new(minor, "IQD".parse().unwrap());
    let mut request = request();
    request.amount = Some(ghs(999_999_999_999));
    request.hosted = hosted(dinars(9_999_999_999_990), Some("1"));
    let answer = world.charges.create_charge(request.clone()).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    request.hosted = hosted(dinars(9_999_999_999_991), Some("1"));
    check_invalid(world.charges.create_charge(request).await, "hosted.amount");
}

#[tokio::test]
async fn a_session_has_one_open_charge_and_numbers_also_the_void_ones() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let mut request = request();
    request.hosted = hosted(Money::new(100, Currency::USD), Some("25.5"));
    let session_id: SessionId = request.hosted.as_ref().unwrap().session_id.parse().unwrap();
    // sessions-svc is away, so this one becomes void.
    let answer = world.charges.create_charge(request.clone()).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    let mut tx = world.db.begin().await.unwrap();
    let mut open = crate::world::new_charge(world.clock.now());
    let facts = open.facts_mut();
    (facts.session_id, facts.hosted) = (session_id, true);
    let inserted = store::charges::insert_set(&mut tx, &[(&open, None)]).await;
    assert_eq!(inserted.unwrap(), [(open.facts.transaction_id, 2)]);
    tx.commit().await.unwrap();
    // Now one is open, and a second is refused before sessions-svc is asked.
    request.idempotency_key = "c:another".to_owned();
    let answer = world.charges.create_charge(request).await;
    check_refusal(answer, Code::FailedPrecondition, "SESSION_NOT_PAYABLE");
    let left = left(&world).await;
    assert_eq!((left.void, left.others, left.keys), (1, 1, 0));
}

/// Fifteen seconds after a request began, its repetition is answered from the record, and that
/// answer stands, however slow the first request is.
#[tokio::test]
async fn what_a_repeated_request_was_told_does_not_become_void() {
    let world = World::start_beside(Neighbour::Silent).await;
    let request = request();
    let (mut first, mut second) = (world.charges.clone(), world.charges.clone());
    let beginning = first.create_charge(request.clone());
    let repeating = async {
        let begun = async || {
            let mut tx = world.db.begin().await.unwrap();
            let aged = tx
                .sql("update idempotency_keys set started_at = $1")
                .bind(world.clock.now() - Duration::from_secs(16))
                .rows_affected()
                .await
                .unwrap();
            tx.commit().await.unwrap();
            aged == 1
        };
        until("the first has begun", begun).await;
        second.create_charge(request.clone()).await.unwrap()
    };
    let (begun, repeated) = tokio::join!(beginning, repeating);
    let told = repeated.into_inner();
    // Somebody was told of its charge, so the first request gets the charge's status.
    let begun = begun.unwrap().into_inner().charge.unwrap();
    assert_eq!(begun.reference, told.charge.as_ref().unwrap().reference);
    assert_eq!(begun.status(), proto::charges::ChargeStatus::Failed);
    assert!(told.replayed);
    let get = proto::charges::GetChargeRequest {
        merchant_id: request.merchant_id.clone(),
        reference: told.charge.as_ref().unwrap().reference.clone(),
    };
    let charge = world.charges.clone().get_charge(get).await.unwrap();
    let charge = charge.into_inner();
    assert_eq!(charge.failure_reason.as_deref(), Some("RAIL_UNAVAILABLE"));
    let again = second.create_charge(request).await.unwrap().into_inner();
    let answered = |answer: &proto::charges::ChargeAnswer| {
        let charge = answer.charge.clone().unwrap();
        (charge.status(), charge.reference, answer.message.clone())
    };
    assert_eq!(answered(&again), answered(&told), "the stored answer again");
}

/// Ten seconds after a charge was recorded, its repetition may soon be answered from the record.
/// So the rail is no longer called, and the charge does not become void either.
#[tokio::test]
async fn a_process_that_stood_still_does_not_call_the_rail_late() {
    let mut world = World::start_beside(Neighbour::Stalling(Duration::from_secs(11))).await;
    let answer = world.charges.create_charge(request()).await;
    // Its charge stays and ends with an event.
    check_refusal(answer, Code::Unavailable, "OUTCOME_UNKNOWN");
    let (state, reason): (String, Option<String>) = {
        let ended = async || {
            let mut conn = world.db.read().await.unwrap();
            let (open,): (i64,) = conn
                .sql("select count(*) from charges where state = 'SUBMITTING'")
                .one()
                .await
                .unwrap();
            open == 0
        };
        until("the charge has ended", ended).await;
        let mut conn = world.db.read().await.unwrap();
        let charge = conn.sql("select state, failure_reason from charges");
        charge.one().await.unwrap()
    };
    assert_eq!(
        (state.as_str(), reason.as_deref()),
        ("FAILED", Some("RAIL_UNAVAILABLE"))
    );
    let mut conn = world.db.read().await.unwrap();
    let (calls,): (i64,) = conn
        .sql("select count(*) from rail_evidence where action = 'request_payment'")
        .one()
        .await
        .unwrap();
    assert_eq!(calls, 0);
    drop(conn);
    world.end().await;
}

/// The step's state may be another, but what its session shows is not.
#[tokio::test]
async fn a_session_that_took_a_charge_is_told_only_what_it_does_not_know() {
    let accepted = (json(202, "{}"), ChargeStatus::Initiated, 0);
    let unanswered = (json(500, "{}"), ChargeStatus::Initiated, 0);
    let refused = (json(400, "{}"), ChargeStatus::Failed, 1);
    for (reply, status, updates) in [accepted, unanswered, refused] {
        let network = with_tokens(move |_| reply.clone()).await;
        let mut world = World::start_with(&[("momo-base-url", &network.address())]).await;
        let answer = world.charges.create_charge(request()).await.unwrap();
        assert_eq!(answer.into_inner().charge.unwrap().status(), status);
        assert_eq!(world.updates.count(), updates, "{status:?}");
        assert_eq!(left(&world).await.outbox, 0);
        let updated = world.updates.clone();
        world.end().await;
        assert_eq!(updated.count(), updates, "{status:?}");
    }
}
