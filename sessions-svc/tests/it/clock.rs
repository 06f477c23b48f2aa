//! Hosts whose clocks are wrong.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    testing::until,
};
use proto::sessions::SessionStatus;

use crate::world::World;

fn clock_off_by(skew_ms: i64) -> Clock {
    Clock::simulated(Clock::system().host_now(), skew_ms, 0)
}

async fn expire(world: &World, session_id: &str, at: Timestamp) {
    let mut tx = world.db.begin().await.unwrap();
    let id: chassis::ids::SessionId = session_id.parse().unwrap();
    let update = tx.sql("update sessions set expires_at = $2 where session_id = $1");
    assert_eq!(update.bind(id).bind(at).rows_affected().await.unwrap(), 1);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_host_whose_clock_is_ahead_expires_no_session_early() {
    let mut world = World::start().await;
    if !world.db.is_postgres() {
        // On SQLite the host's time is the store's.
        world.end().await;
        return;
    }
    let (open, over) = (world.hosted().await, world.hosted().await);
    let soon = world.clock.now() + Duration::from_secs(40);
    expire(&world, &open.session_id, soon).await;
    world.restart_by(clock_off_by(60_000)).await;
    expire(&world, &over.session_id, soon - Duration::from_secs(60)).await;
    let is_told = async || !world.webhooks.taken().is_empty();
    until("the other one has expired", is_told).await;
    assert_eq!(world.status(&over.session_id).await, SessionStatus::Expired);
    assert_eq!(world.status(&open.session_id).await, SessionStatus::Pending);
    assert_eq!(world.webhooks.taken().len(), 1);
    world.end().await;
}

#[tokio::test]
async fn a_host_whose_clock_is_off_is_not_ready_and_serves_all_the_same() {
    let mut world = World::start().await;
    for (skew_ms, is_off) in [(1_000, false), (-60_000, true), (60_000, true)] {
        world.restart_by(clock_off_by(skew_ms)).await;
        let session = world.hosted().await;
        assert_eq!(
            world.status(&session.session_id).await,
            SessionStatus::Pending
        );
        let answer = world.admin("/readyz").await;
        let is_ready = !is_off || !world.db.is_postgres();
        let status = if is_ready { "200 OK" } else { "503" };
        assert!(answer.contains(status), "{skew_ms}: {answer}");
        let check = format!(r#""clock":{is_ready}"#);
        assert!(answer.contains(&check), "{skew_ms}: {answer}");
    }
    world.end().await;
}
