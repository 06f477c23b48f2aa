//! All that is exhausted since a time, sent once more.

use std::collections::BTreeMap;

use chassis::{
    ids::MerchantId,
    testing::{check_invalid, check_refusal, until},
};
use proto::webhooks::{
    CountExhaustedRequest, CountExhaustedResponse, DeliveryStatus, GetReplayRequest,
    ListReplaysRequest, Replay, StartReplayRequest,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::{
    receiver::{Answer, Receiver},
    world::{MINUTE, World},
};

/// One attempt, after which a delivery is exhausted with the next failure.
const BRIEF: &[&str] = &[
    "--webhook-retry-schedule=1m",
    "--webhook-timeout=1s",
    "--lease=6s",
];

const LONG_AGO: &str = "2020-01-01T00:00:00.000Z";

async fn start(
    world: &mut World,
    merchant_id: &str,
    since: &str,
    nonce: Uuid,
) -> Result<Replay, Status> {
    let request = StartReplayRequest {
        merchant_id: merchant_id.to_owned(),
        since: since.to_owned(),
        nonce: nonce.to_string(),
    };
    Ok(world.people.start_replay(request).await?.into_inner())
}

async fn get(world: &World, merchant_id: &str, replay_id: &str) -> Replay {
    let request = GetReplayRequest {
        merchant_id: merchant_id.to_owned(),
        replay_id: replay_id.to_owned(),
    };
    let got = world.people.clone().get_replay(request).await;
    got.unwrap().into_inner()
}

async fn finished(world: &World, merchant_id: &str, replay_id: &str) -> Replay {
    until("the replay has ended", async || {
        let replay = get(world, merchant_id, replay_id).await;
        replay.finished_at.is_some()
    })
    .await;
    get(world, merchant_id, replay_id).await
}

async fn count(world: &mut World, merchant_id: &str, since: &str) -> CountExhaustedResponse {
    let request = CountExhaustedRequest {
        merchant_id: merchant_id.to_owned(),
        since: since.to_owned(),
    };
    let counted = world.people.count_exhausted(request).await;
    counted.unwrap().into_inner()
}

/// Exhausts so many deliveries of a new merchant.
async fn exhaust(world: &mut World, url: &str, deliveries: usize) -> (String, Vec<String>) {
    let merchant_id = world.endpoint(url).await.merchant_id;
    let mut ids = Vec::new();
    for _ in 0..deliveries {
        ids.push(world.deliver(&merchant_id).await);
    }
    for id in &ids {
        world.after_attempts(id, 1).await;
    }
    world.advance(MINUTE).await;
    for id in &ids {
        world.in_state(id, DeliveryStatus::Exhausted).await;
    }
    (merchant_id, ids)
}

/// Answers 500 to an event's first two requests, and then 200.
async fn mended() -> Receiver {
    let seen: std::sync::Mutex<BTreeMap<String, usize>> = std::sync::Mutex::default();
    Receiver::start(move |_, arrival| {
        let mut seen = seen.lock().unwrap();
        let count = seen.entry(arrival.event_id().to_owned()).or_default();
        *count += 1;
        Answer::Status(if *count <= 2 { 500 } else { 200 })
    })
    .await
}

#[tokio::test]
async fn what_is_exhausted_is_sent_once_more_with_the_same_ids() {
    let receiver = mended().await;
    let mut world = World::start_with(BRIEF).await;
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 60).await;
    let counted = count(&mut world, &merchant_id, LONG_AGO).await;
    assert_eq!((counted.count, counted.is_more), (60, false));
    let replay = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    let replay = replay.unwrap();
    assert_eq!((replay.matched, replay.is_more), (60, false));
    let replay = finished(&world, &merchant_id, &replay.replay_id).await;
    assert_eq!(
        (replay.queued, replay.delivered, replay.failed),
        (60, 60, 0)
    );
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for arrival in receiver.received() {
        *requests.entry(arrival.event_id().to_owned()).or_default() += 1;
    }
    assert_eq!(requests.len(), 60);
    assert!(requests.values().all(|count| *count == 3), "{requests:?}");
    for id in &ids {
        let delivery = world.delivery(id).await;
        assert_eq!(delivery.status(), DeliveryStatus::Delivered);
        assert!(delivery.attempts[2].manual);
    }
    assert!(
        receiver.open_most() <= 4,
        "no faster than the endpoint allows"
    );
    assert_eq!(count(&mut world, &merchant_id, LONG_AGO).await.count, 0);
}

#[tokio::test]
async fn two_processes_send_each_once() {
    let receiver = mended().await;
    let mut world = World::start_with(BRIEF).await;
    if world.database.url.starts_with("sqlite") {
        return; // It has one process.
    }
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 60).await;
    world.replicate().await;
    let replay = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    let replay = finished(&world, &merchant_id, &replay.unwrap().replay_id).await;
    assert_eq!((replay.queued, replay.delivered), (60, 60));
    assert_eq!(receiver.received().len(), 3 * ids.len());
}

#[tokio::test]
async fn a_replay_goes_in_order_where_the_endpoint_takes_one_at_a_time() {
    let receiver = mended().await;
    let flags = [BRIEF, &["--webhook-endpoint-concurrency=1"]].concat();
    let mut world = World::start_with(&flags).await;
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 8).await;
    let before = receiver.received().len();
    let replay = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    finished(&world, &merchant_id, &replay.unwrap().replay_id).await;
    let sent: Vec<String> = receiver.received()[before..]
        .iter()
        .map(|arrival| arrival.header("x-service-delivery-id").to_owned())
        .collect();
    assert_eq!(sent, ids);
}

#[tokio::test]
async fn a_nonce_makes_one_replay_and_only_one_runs() {
    let receiver = Receiver::start(|number, _| {
        if number <= 2 {
            Answer::Status(500)
        } else {
            Answer::Held
        }
    })
    .await;
    let mut world = World::start_with(BRIEF).await;
    let (merchant_id, _) = exhaust(&mut world, &receiver.url(), 1).await;
    let nonce = Uuid::new_v4();
    let first = start(&mut world, &merchant_id, LONG_AGO, nonce)
        .await
        .unwrap();
    let again = start(&mut world, &merchant_id, LONG_AGO, nonce)
        .await
        .unwrap();
    assert_eq!(first.replay_id, again.replay_id);
    let other = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    check_refusal(other, Code::FailedPrecondition, "REPLAY_RUNNING");
    receiver.release();
    let ended = finished(&world, &merchant_id, &first.replay_id).await;
    assert_eq!((ended.queued, ended.delivered), (1, 1));
    let again = start(&mut world, &merchant_id, LONG_AGO, nonce)
        .await
        .unwrap();
    assert_eq!(again.finished_at, ended.finished_at);
    let next = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    let next = finished(&world, &merchant_id, &next.unwrap().replay_id).await;
    assert_eq!((next.matched, next.queued), (0, 0));
    let list = ListReplaysRequest { merchant_id };
    let listed = world.people.list_replays(list).await.unwrap().into_inner();
    let listed: Vec<_> = listed.replays.iter().map(|one| &one.replay_id).collect();
    assert_eq!(listed, [&next.replay_id, &first.replay_id]);
}

#[tokio::test]
async fn a_replay_survives_a_crash_and_sends_nothing_more_often() {
    let receiver = mended().await;
    let mut world = World::start_with(BRIEF).await;
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 30).await;
    // What waits, waits over the crash.
    world.enable(&merchant_id, false).await;
    let replay = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    let replay_id = replay.unwrap().replay_id;
    until("they are queued", async || {
        get(&world, &merchant_id, &replay_id).await.queued == 20
    })
    .await;
    let mut world = world.crash().await;
    world.enable(&merchant_id, true).await;
    let replay = finished(&world, &merchant_id, &replay_id).await;
    assert_eq!(
        (replay.queued, replay.delivered, replay.failed),
        (30, 30, 0)
    );
    assert_eq!(receiver.received().len(), 3 * ids.len());
}

#[tokio::test]
async fn an_outage_ends_a_replay_without_losing_anything() {
    let receiver = Receiver::always(500).await;
    let mut world = World::start_with(BRIEF).await;
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 5).await;
    let replay = start(&mut world, &merchant_id, LONG_AGO, Uuid::new_v4()).await;
    let replay = finished(&world, &merchant_id, &replay.unwrap().replay_id).await;
    assert_eq!((replay.queued, replay.delivered, replay.failed), (5, 0, 5));
    for id in &ids {
        let delivery = world.delivery(id).await;
        assert_eq!(delivery.status(), DeliveryStatus::Exhausted);
        assert_eq!(delivery.attempts_count, 3, "each once");
    }
    assert_eq!(count(&mut world, &merchant_id, LONG_AGO).await.count, 5);
}

#[tokio::test]
async fn only_what_was_created_since_then_is_sent() {
    let receiver = mended().await;
    let mut world = World::start_with(BRIEF).await;
    let (merchant_id, ids) = exhaust(&mut world, &receiver.url(), 2).await;
    let newest = world.delivery(&ids[1]).await.created_at;
    assert_eq!(count(&mut world, &merchant_id, &newest).await.count, 1);
    let later = "2999-01-01T00:00:00.000Z";
    assert_eq!(count(&mut world, &merchant_id, later).await.count, 0);
    let replay = start(&mut world, &merchant_id, &newest, Uuid::new_v4()).await;
    let replay = finished(&world, &merchant_id, &replay.unwrap().replay_id).await;
    assert_eq!((replay.matched, replay.delivered), (1, 1));
    let older = world.delivery(&ids[0]).await;
    assert_eq!(older.status(), DeliveryStatus::Exhausted);
}

#[tokio::test]
async fn what_is_no_replay_is_refused() {
    let mut world = World::start().await;
    let nobody = MerchantId::new().to_string();
    let none = start(&mut world, &nobody, LONG_AGO, Uuid::new_v4()).await;
    check_refusal(none, Code::NotFound, "ENDPOINT_NOT_FOUND");
    let since = start(&mut world, &nobody, "yesterday", Uuid::new_v4()).await;
    check_invalid(since, "since");
    let request = StartReplayRequest {
        merchant_id: nobody,
        since: LONG_AGO.to_owned(),
        nonce: "x".to_owned(),
    };
    check_invalid(world.people.start_replay(request).await, "nonce");
}
