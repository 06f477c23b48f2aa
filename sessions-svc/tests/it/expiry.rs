//! Sessions that end unpaid, and the one event of each.

use std::{collections::HashSet, time::Duration};

use chassis::{
    clock::{Clock, Timestamp},
    ids::{MerchantId, SessionId},
    shutdown::Tasks,
    testing::{ServiceProcess, gauged_seconds, until},
};
use clap::Parser as _;
use db::testing::TestDb;
use proto::{
    sessions::{CreateSessionRequest, SessionStatus, sessions_client::SessionsClient},
    webhooks::{EventType, Payment, PublishRequest, publish_request::Data},
};
use sessions_svc::config::Config;
use tokio::{process::Command, task::JoinSet};

use crate::{
    webhooks::Webhooks,
    world::{DAY, HOUR, World, create_persistently, money},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_unpaid_session_expires_after_24_hours_with_one_event() {
    let world = World::start().await;
    let session = world.hosted().await;
    world.advance(DAY - 10 * SECOND).await;
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Pending
    );
    assert_eq!(world.webhooks.taken(), []);

    world.advance(20 * SECOND).await;
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Expired
    );
    let [event] = world.webhooks.taken().try_into().unwrap();
    assert!(event.event_id.starts_with("evt_"));
    assert!(
        event.created_at >= session.expires_at,
        "{}",
        event.created_at
    );
    let told = PublishRequest {
        event_id: event.event_id.clone(),
        merchant_id: world.merchant.clone(),
        r#type: EventType::PaymentFailed.into(),
        created_at: event.created_at.clone(),
        data: Some(Data::Payment(Payment {
            tx_id_display: None,
            session_id: session.session_id.clone(),
            amount: Some(money("USD", 2_550)),
            method: None,
            status: "FAILED".to_owned(),
            failure_reason: Some("SESSION_EXPIRED".to_owned()),
            failure_message: Some("The session expired before it was paid.".to_owned()),
            session_status: "EXPIRED".to_owned(),
            settled: None,
            rate: None,
        })),
    };
    assert_eq!(event, told);

    let late = world.hosted_charge(&session, 1);
    assert_eq!(world.refused(late.open()).await, SessionStatus::Expired);
    world.advance(3 * DAY).await;
    assert_eq!(world.webhooks.taken().len(), 1);
    world.end().await;
}

#[tokio::test]
async fn expiry_holds_from_its_moment_on_before_anything_has_recorded_it() {
    let world = World::start().await;
    let session = world.hosted().await;
    let expires_at: Timestamp = session.expires_at.parse().unwrap();
    let id: SessionId = session.session_id.parse().unwrap();
    // Nobody can record the expiry while this is held.
    let mut held = world.db.begin().await.unwrap();
    let lock = held
        .sql("select session_id from sessions where session_id = $1 for update")
        .bind(id);
    lock.one::<(SessionId,)>().await.unwrap();
    let (clock, tasks) = (world.clock.clone(), Tasks::new());
    tasks.spawn(async move {
        clock.advance(DAY + HOUR).await.unwrap();
    });
    until("its moment has come", async || {
        world.clock.now() >= expires_at
    })
    .await;
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Expired
    );
    assert_eq!(world.webhooks.taken(), []);
    let charge = world.hosted_charge(&session, 1);
    let release = async {
        if world.db.is_postgres() {
            // The claim is first in the queue, ahead of whatever records the expiry.
            until("the claim waits", async || {
                locks_waited_for(&world).await == 1
            })
            .await;
        }
        drop(held);
    };
    let (status, ()) = tokio::join!(world.refused(charge.open()), release);
    assert_eq!(status, SessionStatus::Expired);
    tasks.drain(10 * SECOND).await;
    assert_eq!(world.webhooks.taken().len(), 1);
    world.end().await;
}

async fn locks_waited_for(world: &World) -> i64 {
    let mut conn = world.db.read().await.unwrap();
    let waiting = conn.sql(
        "select count(*) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'",
    );
    let (waiting,) = waiting.one::<(i64,)>().await.unwrap();
    waiting
}

#[tokio::test]
async fn a_charge_in_flight_holds_expiry_up_until_it_has_failed() {
    let world = World::start().await;
    let (session, unpaid) = (world.hosted().await, world.hosted().await);
    world.advance(DAY - HOUR).await;
    let charge = world.hosted_charge(&session, 1);
    world.recorded(charge.open()).await;
    // Another session expires too: without one the sweeper would not look.
    world.advance(2 * HOUR).await;
    assert_eq!(
        world.status(&unpaid.session_id).await,
        SessionStatus::Expired
    );
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Processing
    );
    let [event] = world.webhooks.taken().try_into().unwrap();
    assert_eq!(session_of(&event), unpaid.session_id);

    assert_eq!(
        world.recorded(charge.failed(2)).await,
        SessionStatus::Expired
    );
    assert_eq!(
        world.recorded(charge.failed(2)).await,
        SessionStatus::Expired
    );
    world.advance(HOUR).await;
    let told: Vec<_> = world.webhooks.taken().iter().map(session_of).collect();
    assert_eq!(told, [unpaid.session_id, session.session_id]);
    world.end().await;
}

#[tokio::test]
async fn a_charge_in_flight_may_settle_after_the_sessions_time() {
    let world = World::start().await;
    let session = world.hosted().await;
    let charge = world.hosted_charge(&session, 1);
    world.recorded(charge.open()).await;
    world.advance(2 * DAY).await;
    assert_eq!(
        world.recorded(charge.settled(2)).await,
        SessionStatus::Completed
    );
    world.advance(DAY).await;
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Completed
    );
    assert_eq!(world.webhooks.taken(), []);
    world.end().await;
}

#[tokio::test]
async fn declined_and_withdrawn_charges_leave_the_session_its_time_and_its_one_event() {
    let world = World::start().await;
    let session = world.hosted().await;
    for number in 1..=3 {
        let charge = world.hosted_charge(&session, number);
        world.recorded(charge.open()).await;
        let end = if number == 2 {
            charge.withdraw(2)
        } else {
            charge.failed(2)
        };
        assert_eq!(world.recorded(end).await, SessionStatus::Pending);
        world.advance(HOUR).await;
    }
    world.advance(DAY).await;
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Expired
    );
    let [event] = world.webhooks.taken().try_into().unwrap();
    let Some(Data::Payment(told)) = event.data else {
        panic!("{event:?}");
    };
    // Each of its charges had its own event.
    assert_eq!((told.tx_id_display, told.method), (None, None));
    world.end().await;
}

#[tokio::test]
async fn a_direct_charges_session_does_not_expire() {
    let world = World::start().await;
    let charge = world.direct_charge();
    world.recorded(charge.open()).await;
    world.advance(3 * DAY).await;
    assert_eq!(
        world.status(&charge.session_id).await,
        SessionStatus::Processing
    );
    assert_eq!(
        world.recorded(charge.failed(2)).await,
        SessionStatus::Failed
    );
    world.advance(DAY).await;
    assert_eq!(world.webhooks.taken(), [], "its charge tells of its end");
    world.end().await;
}

#[tokio::test]
async fn many_sessions_expire_once_each_whatever_the_number_of_replicas() {
    let world = World::start().await;
    // Only one process can use an SQLite file.
    let _replica = match world.db.is_postgres() {
        true => Some(world.replica().await),
        false => None,
    };
    let mut creating = JoinSet::new();
    for _ in 0..250 {
        let request = world.request("USD", 2_550);
        creating.spawn(create_persistently(world.client.clone(), request));
    }
    creating.join_all().await;
    world.advance(DAY + HOUR).await;
    until("all are told of", async || {
        world.webhooks.taken().len() >= 250
    })
    .await;
    let taken = world.webhooks.taken();
    let events: HashSet<_> = taken.iter().map(|event| &event.event_id).collect();
    let sessions: HashSet<_> = taken.iter().map(session_of).collect();
    assert_eq!((taken.len(), events.len(), sessions.len()), (250, 250, 250));
    world.end().await;
}

fn session_of(event: &PublishRequest) -> String {
    let Some(Data::Payment(payment)) = &event.data else {
        panic!("no payment");
    };
    payment.session_id.clone()
}

#[tokio::test]
async fn an_event_that_was_not_acknowledged_is_told_again_as_it_was() {
    let mut world = World::start().await;
    world.webhooks.set_mute(true);
    let session = world.hosted().await;
    world.advance(DAY + 5 * SECOND).await;
    let before = world.webhooks.taken().len();
    assert!(before > 1, "told {before} times");
    // Money that arrives now does not change the event.
    let charge = world.hosted_charge(&session, 1);
    world.recorded(charge.settled(2)).await;
    world.restart().await;
    world.webhooks.set_mute(false);
    let told_again = async || world.webhooks.taken().len() > before;
    until("it is told again", told_again).await;
    let taken = world.webhooks.taken();
    assert!(taken.iter().all(|event| *event == taken[0]));
    world.end().await;
}

#[tokio::test]
async fn operators_see_how_long_an_event_has_waited() {
    // Gauges are kept from the first rendering on.
    chassis::metrics::render();
    let world = World::start().await;
    let waited = async || {
        let metrics = world.admin("/metrics").await;
        gauged_seconds(&metrics, "sessions_outbox_oldest_seconds")
    };
    until("nothing waits", async || waited().await == Some(0)).await;
    world.webhooks.set_mute(true);
    world.hosted().await;
    world.advance(DAY + 10 * MINUTE).await;
    // Nothing waits as long in another test of this process, which shares its metrics.
    until("its age is shown", async || {
        let age = waited().await.map(Duration::from_secs);
        age.is_some_and(|age| age >= 9 * MINUTE && age < 12 * MINUTE)
    })
    .await;
    world.webhooks.set_mute(false);
    // It is relayed at its next try, and looked for after that.
    world.advance(MINUTE).await;
    world.advance(MINUTE).await;
    until("nothing waits", async || waited().await == Some(0)).await;
    world.end().await;
}

async fn start_process(database: &TestDb, webhooks: &str) -> ServiceProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessions-svc"));
    command
        .args(["--database-url", &database.url])
        .args(["--webhooks-url", webhooks])
        .args(["--session-lifetime", "1s", "--lease", "8s"]);
    ServiceProcess::start(&mut command).await
}

#[tokio::test]
async fn a_killed_service_tells_of_the_expiry_once_it_is_back() {
    let database = TestDb::new("sessions-svc-killed").await;
    let (nobody, webhooks) = ("http://127.0.0.1:9", Webhooks::start().await);
    let process = start_process(&database, nobody).await;
    let request = CreateSessionRequest {
        merchant_id: MerchantId::new().to_string(),
        amount: Some(money("GHS", 1)),
        idempotency_key: "c:1".to_owned(),
        ..CreateSessionRequest::default()
    };
    let created = SessionsClient::new(process.channel())
        .create_session(request)
        .await
        .unwrap()
        .into_inner();
    let session = created.session.unwrap();
    let db = database.connect().await;
    let is_due = async || db::outbox::len(&db).await.unwrap() == 1;
    until("the session has expired", is_due).await;
    process.kill().await;
    assert!(Clock::system().now().to_string() >= session.expires_at);

    let process = start_process(&database, &webhooks.url).await;
    database.until_relayed().await;
    process.kill().await;
    let process = start_process(&database, &webhooks.url).await;
    let told: Vec<_> = webhooks.taken().iter().map(session_of).collect();
    assert_eq!(told, [session.session_id]);
    process.kill().await;
    db.close().await;
}

#[test]
fn a_lease_is_longer_than_telling_takes() {
    for (lease, is_good) in [("30s", true), ("8s", true), ("7s", false), ("1s", false)] {
        let flags = [
            "sessions-svc",
            "--database-url=sqlite::memory:",
            "--webhooks-url=http://127.0.0.1:9",
            "--lease",
            lease,
        ];
        let config = Config::parse_from(flags);
        let checked = chassis::config::check(&config);
        assert_eq!(checked.is_ok(), is_good, "{lease}: {checked:?}");
    }
}
