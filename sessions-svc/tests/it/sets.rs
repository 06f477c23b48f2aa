//! Requests that are written together: each has the outcome that it would have alone.

use std::{collections::BTreeMap, time::Duration};

use chassis::{
    ids::{MerchantId, SessionId},
    testing::{check_invalid, check_refusal},
};
use db::Tx;
use futures::{TryStreamExt as _, future::join_all};
use proto::{
    batch::{Call, CarryRequest, CarryResponse, batches_client::BatchesClient},
    sessions::{
        CreateSessionRequest, CreateSessionResponse, Payer, SessionStatus,
        record_transaction_response, sessions_client::SessionsClient,
    },
};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::world::{World, create_persistently, money, record_persistently};

impl World {
    /// Holds up every write, so that those that arrive meanwhile form a set. Drop it soon.
    async fn stall(&self) -> Tx {
        let mut tx = self.db.begin().await.unwrap();
        if self.db.is_postgres() {
            let lock = tx.sql("lock table sessions in exclusive mode");
            lock.run().await.unwrap();
        }
        tx
    }

    /// Makes these requests at the same time, while no write gets through.
    async fn together<T>(
        &self,
        requests: impl IntoIterator<Item = impl Future<Output = T>>,
    ) -> Vec<T> {
        let stalled = self.stall().await;
        let mut answers = std::pin::pin!(join_all(requests));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut answers).await;
        assert!(early.is_err(), "none is answered before it is written");
        drop(stalled);
        answers.await
    }
}

#[tokio::test]
async fn each_request_of_a_set_has_its_own_outcome() {
    let mut world = World::start().await;
    let old = world.request("USD", 2_550);
    let first = world.create(old.clone()).await.unwrap().session.unwrap();
    let fresh = CreateSessionRequest {
        payer: Some(Payer {
            phone: Some("+233241234567".to_owned()),
            email: None,
            name: None,
        }),
        ..world.request("USD", 1)
    };
    let other_amount = |request: &CreateSessionRequest| CreateSessionRequest {
        amount: Some(money("USD", 7)),
        ..request.clone()
    };
    let mut requests: Vec<_> = (0..6).map(|_| world.request("GHS", 5)).collect();
    requests.extend([
        other_amount(&old),
        old.clone(),
        fresh.clone(),
        fresh.clone(),
        other_amount(&old),
    ]);
    let requests = requests.into_iter().map(|request| world.create(request));
    let answers = world.together(requests).await;
    let [others @ .., reused, repeated, one, two, again] = &answers[..] else {
        panic!("{answers:?}");
    };
    for other in others {
        assert!(!other.as_ref().unwrap().replayed);
    }
    for reused in [reused, again] {
        check_refusal(
            reused.clone(),
            Code::AlreadyExists,
            "IDEMPOTENCY_KEY_REUSED",
        );
    }
    let repeated = repeated.as_ref().unwrap();
    assert!(repeated.replayed);
    assert_eq!(repeated.session, Some(first));
    let (one, two) = (one.as_ref().unwrap(), two.as_ref().unwrap());
    assert_eq!(one.session, two.session, "equal keys of one set");
    assert!(one.replayed != two.replayed);
    assert_eq!(world.customers().await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn one_payer_in_many_requests_of_a_set_is_one_customer() {
    let mut world = World::start().await;
    let of = |phone: &str, email: &str, name: &str| {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        CreateSessionRequest {
            payer: Some(Payer {
                phone: given(phone),
                email: given(email),
                name: given(name),
            }),
            ..world.request("USD", 1)
        }
    };
    let mut requests: Vec<_> = (0..20).map(|_| of("+233241234567", "", "Ama")).collect();
    requests.extend((0..20).map(|_| of("+233241234567", "ama@example.com", "Ama")));
    requests.extend((0..20).map(|_| of("", "AMA@example.com", "")));
    let requests = requests.into_iter().map(|request| world.create(request));
    let answers = world.together(requests).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let customers = world.customers().await;
    let with_phone = customers
        .iter()
        .filter(|known| known.phone.is_some())
        .count();
    let with_email = customers
        .iter()
        .filter(|known| known.email.is_some())
        .count();
    assert_eq!((with_phone, with_email), (1, 1), "{customers:?}");
    world.end().await;
}

fn phone(number: usize) -> Payer {
    Payer {
        phone: Some(format!("+2332412345{number:02}")),
        email: None,
        name: None,
    }
}

#[tokio::test]
async fn of_equal_keys_in_a_set_only_the_winner_names_its_payer() {
    let mut world = World::start().await;
    let plain = CreateSessionRequest {
        payer: Some(phone(0)),
        ..world.request("USD", 2_550)
    };
    let known_better = CreateSessionRequest {
        payer: Some(Payer {
            email: Some("ama@example.com".to_owned()),
            ..phone(0)
        }),
        ..plain.clone()
    };
    let requests = [plain.clone(), known_better.clone()].into_iter().cycle();
    let requests = requests.take(10).map(|request| world.create(request));
    let answers = world.together(requests).await;
    let created = answers.iter().flatten().filter(|answer| !answer.replayed);
    assert_eq!(created.count(), 1);
    let won = answers.iter().flatten().next().unwrap();
    let won = won.session.clone().unwrap().payer.unwrap();
    let [customer] = world.customers().await.try_into().unwrap();
    assert_eq!(
        customer.email, won.email,
        "a refused request completes no customer"
    );
    world.end().await;
}

#[tokio::test]
async fn new_and_returning_payers_of_a_set_are_each_recognised() {
    let mut world = World::start().await;
    let of = |number: usize| CreateSessionRequest {
        payer: Some(phone(number)),
        ..world.request("USD", 1)
    };
    let named: Vec<_> = (0..40).map(|number| of(number % 20)).collect();
    for answers in [
        world
            .together(
                named[..20]
                    .iter()
                    .map(|request| world.create(request.clone())),
            )
            .await,
        // The others of the same payers, and a repeat.
        world
            .together(
                named[19..]
                    .iter()
                    .map(|request| world.create(request.clone())),
            )
            .await,
        world
            .together((0..40).map(|number| world.create(of(number))))
            .await,
    ] {
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    let (sessions, unlike): (i64, i64) = {
        let mut conn = world.db.read().await.unwrap();
        conn.sql(
            "select count(*),
                    sum(case when customers.phone = sessions.payer_phone then 0 else 1 end)
             from sessions left join customers
                 on customers.customer_id = sessions.customer_id",
        )
        .one()
        .await
        .unwrap()
    };
    assert_eq!((sessions, unlike), (80, 0));
    assert_eq!(world.customers().await.len(), 40);
    world.end().await;
}

/// Only PostgreSQL lets two transactions run at once.
#[tokio::test]
async fn a_key_that_is_being_used_elsewhere_fails_only_its_own_request() {
    let world = World::start().await;
    if world.db.is_postgres() {
        let contended = world.request("USD", 2_550);
        let running = world.take_key(&contended).await;
        let mut requests = vec![contended];
        requests.extend((0..20).map(|_| world.request("USD", 1)));
        let requests = requests.into_iter().map(|request| world.create(request));
        let mut answers = world.together(requests).await.into_iter();
        let contended = answers.next().unwrap();
        check_refusal(contended, Code::Aborted, "IDEMPOTENCY_IN_PROGRESS");
        for answer in answers {
            assert!(!answer.unwrap().replayed);
        }
        drop(running);
    }
    world.end().await;
}

#[tokio::test]
async fn sessions_that_are_read_together_are_shown_each_to_its_own_reader() {
    let world = World::start().await;
    let mut sessions = Vec::new();
    for number in 0..20 {
        let session = world.hosted().await;
        if number % 2 == 0 {
            let claim = world.hosted_charge(&session, 1).open();
            assert_eq!(world.recorded(claim).await, SessionStatus::Processing);
        }
        sessions.push(session.session_id);
    }
    let unknown = SessionId::new().to_string();
    let foreign = MerchantId::new().to_string();
    for _ in 0..5 {
        let own = sessions.iter().chain([&unknown]).chain(&sessions);
        let own = own.map(|id| (id, &world.merchant));
        let wanted: Vec<_> = own.chain([(&sessions[0], &foreign)]).collect();
        let answers = wanted
            .iter()
            .map(|(id, merchant)| world.get_as(id, merchant));
        let answers = join_all(answers).await;
        for ((id, merchant), answer) in wanted.into_iter().zip(answers) {
            let place = sessions.iter().position(|session| session == id);
            let Some(place) = place.filter(|_| *merchant == world.merchant) else {
                check_refusal(answer, Code::NotFound, "SESSION_NOT_FOUND");
                continue;
            };
            let shown = answer.unwrap();
            assert_eq!(shown.session_id, *id);
            assert_eq!(shown.transaction.is_some(), place % 2 == 0);
        }
    }
    world.end().await;
}

#[tokio::test]
async fn direct_charges_are_opened_together_whether_or_not_one_was_opened_before() {
    let world = World::start().await;
    for is_repeated in [false, true] {
        let charges: Vec<_> = (0..10).map(|_| world.direct_charge()).collect();
        if is_repeated {
            world.recorded(charges[5].open()).await;
        }
        let opening = charges.iter().map(|charge| world.record(charge.open()));
        for opened in world.together(opening).await {
            let opened = opened.unwrap();
            assert_eq!(
                opened.outcome(),
                record_transaction_response::Outcome::Recorded
            );
            assert_eq!(opened.session_status(), SessionStatus::Processing);
        }
        for charge in &charges {
            let session = world.get(&charge.session_id).await.unwrap();
            let shown = session.transaction.unwrap().transaction_id;
            assert_eq!(shown, charge.transaction_id);
        }
    }
    world.end().await;
}

#[tokio::test]
async fn reports_of_a_set_are_recorded_each_with_its_own_answer() {
    let world = World::start().await;
    let session = world.hosted().await;
    let (claim, late) = (
        world.hosted_charge(&session, 1),
        world.hosted_charge(&session, 2),
    );
    let mut foreign = claim.clone();
    foreign.merchant_id = MerchantId::new().to_string();
    let charges: Vec<_> = (0..10).map(|_| world.direct_charge()).collect();
    let mut reports: Vec<_> = charges.iter().map(|charge| charge.open()).collect();
    reports.extend([claim.open(), late.open(), foreign.withdraw(5)]);
    let reports = reports.into_iter().map(|report| world.record(report));
    let answers = world.together(reports).await;
    let [opened @ .., one, two, foreign] = &answers[..] else {
        panic!("{answers:?}");
    };
    for opened in opened {
        let opened = opened.as_ref().unwrap();
        assert_eq!(
            opened.outcome(),
            record_transaction_response::Outcome::Recorded
        );
        assert_eq!(opened.session_status(), SessionStatus::Processing);
    }
    let (one, two) = (one.as_ref().unwrap(), two.as_ref().unwrap());
    assert_ne!(one.outcome(), two.outcome(), "one of two claims wins");
    check_refusal(
        foreign.clone(),
        Code::FailedPrecondition,
        "SESSION_MISMATCH",
    );
    world.end().await;
}

/// Only PostgreSQL has replicas.
#[tokio::test]
async fn replicas_write_sets_beside_each_other() {
    let mut world = World::start().await;
    if !world.db.is_postgres() {
        return world.end().await;
    }
    let other = world.replica().await;
    let clients = [world.client.clone(), SessionsClient::new(other.channel())];
    let session = world.hosted().await;
    let request = CreateSessionRequest {
        payer: Some(Payer {
            phone: Some("+233241234567".to_owned()),
            email: Some("ama@example.com".to_owned()),
            name: None,
        }),
        ..world.request("USD", 2_550)
    };
    let (mut creating, mut claiming, mut paying) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for number in 1..=60 {
        let client = &clients[number as usize % 2];
        let fresh = CreateSessionRequest {
            idempotency_key: format!("g:{}", number / 4),
            ..request.clone()
        };
        creating.spawn(create_persistently(client.clone(), fresh));
        let claim = world.hosted_charge(&session, number);
        claiming.spawn(record_persistently(client.clone(), claim.open()));
        let mut charge = world.direct_charge();
        charge.payer = request.payer.clone();
        paying.spawn(record_persistently(client.clone(), charge.settled(2)));
    }
    let created = creating.join_all().await;
    let created = created
        .iter()
        .map(|answer| &answer.session.as_ref().unwrap().session_id);
    let created: std::collections::HashSet<_> = created.collect();
    assert_eq!(created.len(), 16, "one for each key");
    let claims = claiming.join_all().await;
    let won = claims
        .iter()
        .filter(|claim| claim.outcome() == record_transaction_response::Outcome::Recorded);
    assert_eq!(won.count(), 1);
    paying.join_all().await;
    let [customer] = world.customers().await.try_into().unwrap();
    assert_eq!(customer.payments_count, 60);
    drop(other);
    world.end().await;
}

#[tokio::test]
async fn what_a_batch_creates_is_as_if_each_had_come_by_itself() {
    let world = World::start().await;
    let old = world.request("USD", 2_550);
    let first = world.create(old.clone()).await.unwrap().session;
    let reused = CreateSessionRequest {
        amount: Some(money("USD", 7)),
        ..old.clone()
    };
    let nobody = CreateSessionRequest {
        merchant_id: String::new(),
        ..world.request("GHS", 5)
    };
    let fresh = world.request("GHS", 5);
    let calls = [
        fresh.clone(),
        reused,
        old,
        nobody,
        CreateSessionRequest::default(),
    ];
    let calls = calls.map(|request| Call::new(&request));
    let request = CarryRequest {
        method: "payments.sessions.v1.Sessions/CreateSession".to_owned(),
        calls: calls.to_vec(),
    };
    let answer = BatchesClient::new(world.channel())
        .carry(request)
        .await
        .unwrap();
    let answers: Vec<CarryResponse> = answer.into_inner().try_collect().await.unwrap();
    let outcomes = answers.into_iter().flat_map(|answer| answer.outcomes);
    let outcomes: BTreeMap<u32, Result<CreateSessionResponse, Status>> = outcomes
        .map(|outcome| (outcome.call, outcome.read().unwrap()))
        .collect();
    let outcomes: Vec<_> = outcomes.into_values().collect();
    let [created, reused, repeated, nobody, nothing] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    let created = created.as_ref().unwrap();
    assert_eq!(created.session.as_ref().unwrap().amount, fresh.amount);
    assert!(!created.replayed);
    check_refusal(
        reused.clone(),
        Code::AlreadyExists,
        "IDEMPOTENCY_KEY_REUSED",
    );
    let repeated = repeated.as_ref().unwrap();
    assert_eq!((&repeated.session, repeated.replayed), (&first, true));
    check_invalid(nobody.clone(), "merchant_id");
    assert_eq!(nothing.as_ref().unwrap_err().code(), Code::InvalidArgument);
    world.end().await;
}
