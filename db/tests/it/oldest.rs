//! Gauges of how long the oldest of what waits has waited.

use std::time::Duration;

use chassis::{
    clock::Clock,
    shutdown::Shutdown,
    testing::{gauged_seconds, until},
};
use db::{
    Grouped as _, OldestGauge, Update,
    outbox::{self, RowEnd},
    testing::plan,
    work,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{database, relayed};

/// Nothing else in this process shows it.
const GAUGE: &str = "tested_outbox_oldest_seconds";

const MINUTE: Duration = Duration::from_secs(60);

fn travelling() -> Clock {
    let file = std::env::temp_dir().join(format!("clock-{}", Uuid::new_v4()));
    Clock::travelling(file).unwrap()
}

/// Waits until the gauge shows an age of so many whole minutes.
async fn until_shown(minutes: u64) {
    until("the gauge shows it", async || {
        let shown = gauged_seconds(&chassis::metrics::render(), GAUGE);
        shown.is_some_and(|seconds| seconds / 60 == minutes)
    })
    .await;
}

#[tokio::test]
async fn the_oldest_is_measured_until_nothing_waits() {
    // Gauges are kept from the first rendering on.
    chassis::metrics::render();
    let (_test, db) = database().await;
    let clock = travelling();
    let (shutdown, mut works) = (Shutdown::new(), JoinSet::new());
    let gauge = OldestGauge::new(&db, &clock, GAUGE, outbox::OLDEST);
    let worker = clock.worker("gauge");
    works.spawn(work::run(gauge, worker, clock.clone(), shutdown.clone()));
    until_shown(0).await;

    let put = async |subject: &str| {
        let mut tx = db.begin().await.unwrap();
        let put = outbox::put(&mut tx, subject, None, clock.now()).await;
        put.unwrap();
        tx.commit().await.unwrap();
    };
    put("charge-1").await;
    clock.advance(90 * MINUTE).await.unwrap();
    until_shown(90).await;

    // One that was tried is due later than a younger one, and still the oldest.
    put("charge-2").await;
    let claimed = outbox::claim(&db, &clock, 1, MINUTE).await.unwrap();
    assert_eq!(claimed[0].subject, "charge-1");
    let again = RowEnd {
        row: claimed[0].clone(),
        due: Some(clock.now() + MINUTE),
    };
    let ended = RowEnd::run_set(&db, &[again]).await;
    assert_eq!(ended.unwrap(), [Update::Updated]);
    clock.advance(30 * MINUTE).await.unwrap();
    until_shown(120).await;

    let claimed = outbox::claim(&db, &clock, 2, MINUTE).await.unwrap();
    let (first, rest): (Vec<_>, Vec<_>) = claimed
        .iter()
        .map(relayed)
        .partition(|end| end.row.subject == "charge-1");
    RowEnd::run_set(&db, &first).await.unwrap();
    clock.advance(MINUTE).await.unwrap();
    until_shown(31).await;
    RowEnd::run_set(&db, &rest).await.unwrap();
    clock.advance(MINUTE).await.unwrap();
    until_shown(0).await;
    shutdown.begin();
    works.join_all().await;
}

#[tokio::test]
async fn however_many_wait_the_oldest_is_read_by_the_primary_key() {
    let (_test, db) = database().await;
    let plan = plan(&db, outbox::OLDEST).await;
    let is_by_key = plan.contains("outbox_pkey") || plan.contains("sqlite_autoindex_outbox_1");
    assert!(is_by_key, "{plan}");
    for costly in ["Seq Scan", "Sort", "TEMP B-TREE"] {
        assert!(!plan.contains(costly), "{plan}");
    }
}
