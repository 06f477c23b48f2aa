//! What a key identifies, for how long, and who gets it.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::MerchantId};
use db::{
    Db, Insert, Tx,
    idempotency::{Key, Keys},
    testing::TestDb,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::migrations;

const TABLE: &str = "
    create table idempotency_keys (
        merchant_id uuid not null,
        operation text not null,
        key text not null,
        fingerprint text not null,
        order_id uuid not null unique,
        taken_at timestamptz not null,
        forget_at timestamptz,
        primary key (merchant_id, operation, key)
    );
";

const BUY: Keys = db::idempotency_keys! {
    operation: "operation" = "buy",
    subject: "order_id",
    own: "taken_at" = "$5",
    read: "order_id, fingerprint, taken_at",
    forget_at: "forget_at",
};

const SELL: Keys = db::idempotency_keys! {
    operation: "operation" = "sell",
    subject: "order_id",
    own: "taken_at" = "$5",
    read: "order_id, fingerprint, taken_at",
    forget_at: "forget_at",
};

/// A table with the keys of one operation and no columns of a service's own.
const PLAIN_TABLE: &str = "
    create table idempotency_keys (
        merchant_id uuid not null,
        key text not null,
        fingerprint text not null,
        subject uuid not null unique,
        keep_until timestamptz,
        primary key (merchant_id, key)
    );
";

const PLAIN: Keys = db::idempotency_keys! {
    subject: "subject",
    read: "subject, fingerprint",
    forget_at: "keep_until",
};

const DAY: Duration = Duration::from_secs(86_400);

async fn database(table: &'static str) -> (TestDb, Db) {
    let test = TestDb::new("db-idempotency").await;
    let db = test.connect().await;
    db.migrate(&migrations([(1, "keys", table)])).await.unwrap();
    (test, db)
}

fn now() -> Timestamp {
    "2026-01-31T09:00:00.000Z".parse().unwrap()
}

fn key(name: &str) -> Key {
    Key {
        merchant_id: MerchantId::new(),
        key: name.to_owned(),
        fingerprint: "f".to_owned(),
    }
}

async fn take(tx: &mut Tx, key: &Key, order: Uuid) -> Insert {
    BUY.take(tx, key, order).bind(now()).insert().await.unwrap()
}

async fn take_committed(db: &Db, key: &Key) -> Uuid {
    let order = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    assert_eq!(take(&mut tx, key, order).await, Insert::Inserted);
    tx.commit().await.unwrap();
    order
}

async fn find(db: &Db, keys: Keys, key: &Key) -> Option<(Uuid, String, Timestamp)> {
    let mut conn = db.read().await.unwrap();
    keys.find(&mut conn, key).await.unwrap()
}

#[tokio::test]
async fn a_key_stands_for_the_request_that_took_it() {
    let (_test, db) = database(TABLE).await;
    let first = key("order-17");
    assert_eq!(find(&db, BUY, &first).await, None);
    let order = take_committed(&db, &first).await;
    let other_request = Key {
        fingerprint: "g".to_owned(),
        ..first.clone()
    };
    for again in [&first, &other_request] {
        let mut tx = db.begin().await.unwrap();
        let taken = take(&mut tx, again, Uuid::now_v7()).await;
        assert_eq!(taken, Insert::AlreadyThere);
        tx.commit().await.unwrap();
        // The fingerprint tells whether a replay is the same request.
        let found = Some((order, "f".to_owned(), now()));
        assert_eq!(find(&db, BUY, again).await, found);
    }
}

#[tokio::test]
async fn a_key_is_one_merchants_and_one_operations() {
    let (_test, db) = database(TABLE).await;
    let first = key("order-17");
    take_committed(&db, &first).await;
    take_committed(&db, &key("order-17")).await;
    take_committed(&db, &key("order-18")).await;
    assert_eq!(find(&db, SELL, &first).await, None);
    let sold = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    let taken = SELL.take(&mut tx, &first, sold).bind(now()).insert().await;
    assert_eq!(taken.unwrap(), Insert::Inserted);
    tx.commit().await.unwrap();
    let (found, ..) = find(&db, SELL, &first).await.unwrap();
    assert_eq!(found, sold);
}

#[tokio::test]
async fn of_16_takers_one_gets_the_key() {
    let (_test, db) = database(TABLE).await;
    let key = key("order-17");
    let mut takers = JoinSet::new();
    for _ in 0..16 {
        let (db, key, order) = (db.clone(), key.clone(), Uuid::now_v7());
        takers.spawn(async move {
            let mut tx = db.begin().await.unwrap();
            let taken = take(&mut tx, &key, order).await;
            tx.commit().await.unwrap();
            (taken == Insert::Inserted).then_some(order)
        });
    }
    let taken: Vec<_> = takers.join_all().await.into_iter().flatten().collect();
    let (found, ..) = find(&db, BUY, &key).await.unwrap();
    assert_eq!(taken, [found]);
}

#[tokio::test]
async fn a_taker_waits_for_the_one_before_and_follows_what_became_of_it() {
    let (_test, db) = database(TABLE).await;
    for (is_kept, then) in [(true, Insert::AlreadyThere), (false, Insert::Inserted)] {
        let key = key("order-17");
        let mut holder = db.begin().await.unwrap();
        let taken = take(&mut holder, &key, Uuid::now_v7()).await;
        assert_eq!(taken, Insert::Inserted);
        let waits = async {
            let mut tx = db.begin().await.unwrap();
            take(&mut tx, &key, Uuid::now_v7()).await
        };
        let mut waiting = std::pin::pin!(waits);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
        assert!(early.is_err(), "{early:?}");
        if is_kept {
            holder.commit().await.unwrap();
        } else {
            drop(holder);
        }
        assert_eq!(waiting.await, then);
    }
}

#[tokio::test]
async fn a_freed_key_can_be_taken_again() {
    let (_test, db) = database(TABLE).await;
    let (freed, kept) = (key("order-17"), key("order-18"));
    let order = take_committed(&db, &freed).await;
    take_committed(&db, &kept).await;
    let mut tx = db.begin().await.unwrap();
    BUY.free(&mut tx, order).await.unwrap();
    tx.commit().await.unwrap();
    assert!(find(&db, BUY, &kept).await.is_some());
    take_committed(&db, &freed).await;
}

#[tokio::test]
async fn keys_are_forgotten_from_their_very_time_on() {
    let (_test, db) = database(TABLE).await;
    let keys = ["1", "2", "3", "open"].map(key);
    let mut orders = Vec::new();
    for key in &keys {
        orders.push(take_committed(&db, key).await);
    }
    let mut tx = db.begin().await.unwrap();
    assert_eq!(BUY.next_to_forget(&mut tx).await.unwrap(), None);
    for (days, order) in (1..).zip(&orders[..3]) {
        let forget_at = now() + DAY * days;
        BUY.forget_later(&mut tx, *order, forget_at).await.unwrap();
    }
    assert_eq!(
        BUY.next_to_forget(&mut tx).await.unwrap(),
        Some(now() + DAY)
    );
    let almost = now() + DAY - Duration::from_millis(1);
    assert_eq!(BUY.forget_due(&mut tx, almost, 10).await.unwrap(), 0);
    assert_eq!(BUY.forget_due(&mut tx, now() + DAY, 10).await.unwrap(), 1);
    let late = now() + 9 * DAY;
    assert_eq!(BUY.forget_due(&mut tx, late, 1).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert!(
        find(&db, BUY, &keys[2]).await.is_some(),
        "the oldest goes first"
    );
    let mut tx = db.begin().await.unwrap();
    assert_eq!(BUY.forget_due(&mut tx, late, 10).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert!(
        find(&db, BUY, &keys[3]).await.is_some(),
        "its order is open"
    );
    take_committed(&db, &keys[0]).await;
}

#[tokio::test]
async fn a_table_may_have_one_operation_and_nothing_of_its_own() {
    let (_test, db) = database(PLAIN_TABLE).await;
    let (key, subject) = (key("order-17"), Uuid::now_v7());
    let mut tx = db.begin().await.unwrap();
    for taken in [Insert::Inserted, Insert::AlreadyThere] {
        let again = PLAIN.take(&mut tx, &key, subject).insert().await;
        assert_eq!(again.unwrap(), taken);
    }
    let found: Option<(Uuid, String)> = PLAIN.find(&mut tx, &key).await.unwrap();
    assert_eq!(found, Some((subject, "f".to_owned())));
    PLAIN.forget_later(&mut tx, subject, now()).await.unwrap();
    assert_eq!(PLAIN.next_to_forget(&mut tx).await.unwrap(), Some(now()));
    assert_eq!(PLAIN.forget_due(&mut tx, now(), 10).await.unwrap(), 1);
    let found: Option<(Uuid, String)> = PLAIN.find(&mut tx, &key).await.unwrap();
    assert_eq!(found, None);
}
