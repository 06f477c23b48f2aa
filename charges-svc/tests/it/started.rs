//! A caller who is told that nothing was started is told the truth, even if the database fails in
//! between. If the truth cannot be determined, nothing is promised.

use charges_svc::{
    charge::{Event, State},
    store::idempotency::{self, FirstRequest},
};
use chassis::{
    grpc,
    ids::MerchantId,
    testing::{check_refusal, until},
};
use db::{
    idempotency::{IdempotencyKey, KeyUse},
    testing::TestDb,
};
use proto::charges::{ChargeAnswer, CreateChargeRequest, SubmitOtpRequest};
use tonic::{Code, Response, Status};

use crate::{
    commit_wire::{COMMIT, CommitWire},
    world::{Neighbour, World, config_with, new_charge, request},
};

/// A service whose connections to its database can hold up a commit. `None` on SQLite, which runs
/// in the process.
async fn wired() -> Option<(World, CommitWire)> {
    let database = TestDb::new("charges-svc").await;
    if !database.url.starts_with("postgres") {
        return None;
    }
    let wire = CommitWire::lay(&database.url).await;
    let flags = [("database-url", wire.url.as_str())];
    let world = World::start_through(database, Neighbour::Away, &flags).await;
    Some((world, wire))
}

/// Whether somebody waits for what the held transaction has locked.
async fn is_waited_for(world: &World) -> bool {
    let mut conn = world.db.read().await.unwrap();
    let (waiting,): (i64,) = conn
        .sql(
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'",
        )
        .one()
        .await
        .unwrap();
    waiting > 0
}

/// Waits until the server has executed what was held up and everybody is done.
async fn until_landed(world: &World) {
    let is_quiet = async || {
        let mut conn = world.db.read().await.unwrap();
        let (open,): (i64,) = conn
            .sql(
                "select count(*) from pg_stat_activity
                 where datname = current_database() and state like 'idle in transaction%'",
            )
            .one()
            .await
            .unwrap();
        open == 0
    };
    until("no transaction is open", is_quiet).await;
}

async fn count(world: &World, sql: &'static str) -> i64 {
    let mut conn = world.db.read().await.unwrap();
    let (count,): (i64,) = conn.sql(sql).one().await.unwrap();
    count
}

const LIVE: &str = "select count(*) from charges where state <> 'VOID'";
const KEYS: &str = "select count(*) from idempotency_keys";

#[tokio::test]
async fn a_record_that_may_still_be_committed_is_not_said_to_be_none() {
    let Some((mut world, wire)) = wired().await else {
        return;
    };
    wire.hold_the_next(COMMIT);
    let answer = world.charges.create_charge(request()).await;
    assert!(wire.is_holding());
    check_refusal(answer, Code::Unavailable, "OUTCOME_UNKNOWN");
}

/// The commit arrives while the service is finding out what became of it.
#[tokio::test]
async fn a_record_whose_commit_came_late_is_taken_back_before_nothing_was_started() {
    let Some((world, wire)) = wired().await else {
        return;
    };
    wire.hold_the_next(COMMIT);
    let mut charges = world.charges.clone();
    let creating = charges.create_charge(request());
    tokio::pin!(creating);
    let answer: Result<Response<ChargeAnswer>, Status> = tokio::select! {
        answer = &mut creating => answer,
        () = until("it is waited for", || is_waited_for(&world)) => {
            wire.let_go();
            creating.await
        }
    };
    wire.let_go();
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    until_landed(&world).await;
    assert_eq!(
        (count(&world, LIVE).await, count(&world, KEYS).await),
        (0, 0)
    );
}

fn submit(charge: &charges_svc::charge::Charge) -> SubmitOtpRequest {
    SubmitOtpRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        otp: "123456".to_owned(),
    }
}

#[tokio::test]
async fn a_code_that_may_be_counted_is_not_said_to_be_unsent() {
    let Some((mut world, wire)) = wired().await else {
        return;
    };
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    wire.hold_the_next(COMMIT);
    let answer = world.charges.submit_otp(submit(&charge)).await;
    assert!(wire.is_holding());
    check_refusal(answer, Code::Unavailable, "OUTCOME_UNKNOWN");
}

#[tokio::test]
async fn a_try_whose_commit_came_late_is_given_back_before_nothing_was_started() {
    let Some((world, wire)) = wired().await else {
        return;
    };
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    wire.hold_the_next(COMMIT);
    let mut charges = world.charges.clone();
    let submitting = charges.submit_otp(submit(&charge));
    tokio::pin!(submitting);
    let answer: Result<Response<ChargeAnswer>, Status> = tokio::select! {
        answer = &mut submitting => answer,
        () = until("it is waited for", || is_waited_for(&world)) => {
            wire.let_go();
            submitting.await
        }
    };
    wire.let_go();
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    until_landed(&world).await;
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(
        (after.progress.state, after.progress.otp_tries),
        (State::OtpRequired, 0)
    );
}

/// Neither to the request whose charge cannot be taken back, nor to its repetition, whose key
/// turns out to be taken.
#[tokio::test]
async fn where_the_record_cannot_be_read_nothing_is_promised() {
    let world = World::start_beside(Neighbour::Silent).await;
    let request = request();
    let (mut first, mut second) = (world.charges.clone(), world.charges.clone());
    let begin = first.create_charge(request.clone());
    let repeat = async {
        let begun = async || count(&world, KEYS).await == 1;
        until("the first has begun", begun).await;
        let mut tx = world.db.begin().await.unwrap();
        tx.sql("alter table charges rename to charges_lost")
            .run()
            .await
            .unwrap();
        tx.commit().await.unwrap();
        second.create_charge(request.clone()).await
    };
    let (begun, repeated) = tokio::join!(begin, repeat);
    for answer in [begun, repeated] {
        check_unpromising(answer);
    }
}

#[track_caller]
fn check_unpromising(answer: Result<Response<ChargeAnswer>, Status>) {
    check_refusal(answer, Code::Unavailable, "OUTCOME_UNKNOWN");
}

/// A statement that the database refuses leaves nothing behind if the key turns out to be free.
#[tokio::test]
async fn where_the_record_could_not_be_written_nothing_was_started() {
    let mut world = World::start().await;
    let mut tx = world.db.begin().await.unwrap();
    tx.sql("alter table charges rename column phone to phone_lost")
        .run()
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let answer = world.charges.create_charge(request()).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    assert_eq!(count(&world, KEYS).await, 0);
}

/// Only PostgreSQL lets two write transactions run at once.
#[tokio::test]
async fn a_request_whose_key_is_being_used_is_told_so() {
    let mut world = World::start_beside(Neighbour::Away).await;
    if !world.db.is_postgres() {
        return;
    }
    let request: CreateChargeRequest = request();
    let charge = new_charge(world.clock.now());
    let key = IdempotencyKey {
        merchant_id: request.merchant_id.parse::<MerchantId>().unwrap(),
        key: request.idempotency_key.clone(),
        fingerprint: String::new(),
    };
    let mut running = world.db.begin().await.unwrap();
    let now = world.clock.now();
    let id = charge.facts.transaction_id;
    let taken: KeyUse<FirstRequest> = idempotency::KEYS
        .take(&mut running, &key, id, now)
        .await
        .unwrap();
    assert!(matches!(taken, KeyUse::First), "{taken:?}");
    let status = world
        .charges
        .create_charge(request.clone())
        .await
        .unwrap_err();
    assert_eq!(
        grpc::reason(&status).as_deref(),
        Some("IDEMPOTENCY_IN_PROGRESS"),
        "{status}"
    );
    drop(running);
    let answer = world.charges.create_charge(request).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
}

/// Otherwise two processes would work on one charge, and a known outcome could be lost.
#[test]
fn a_lease_is_longer_than_whatever_is_done_under_it() {
    let refused = |flags: &[(&str, &str)]| {
        let config = config_with("sqlite::memory:", "http://127.0.0.1:1", flags);
        let refused = chassis::config::check(&config).err();
        refused.map(|error| format!("{error:#}"))
    };
    let short = [
        ("momo-request-timeout", "2s"),
        ("momo-query-timeout", "2s"),
        ("paystack-request-timeout", "2s"),
        ("paystack-query-timeout", "2s"),
    ];
    let with_hubtel = [
        &short[..],
        &[
            ("hubtel-api-id", "shop1"),
            ("hubtel-api-key", "hubtel-key"),
            ("hubtel-pos-sales-id", "2000001"),
            ("callback-base-url", "https://pay.example.com"),
        ],
    ]
    .concat();
    for (lease, timeouts, is_good) in [
        ("30s", &[][..], true),
        ("15s", &[], true),
        ("14s", &[], false),
        ("13s", &short, true),
        ("13s", &with_hubtel, false),
        // Too short to tell two services of a change.
        ("12s", &short, false),
    ] {
        let flags: Vec<_> = [("lease", lease)].iter().chain(timeouts).copied().collect();
        let refused = refused(&flags);
        assert_eq!(refused.is_none(), is_good, "{lease}: {refused:?}");
        if let Some(refused) = refused {
            assert!(refused.contains("LEASE wants"), "{refused}");
        }
    }
}
