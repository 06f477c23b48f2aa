//! What a key identifies, for how long, and who gets it.

use std::{sync::LazyLock, time::Duration};

use chassis::{clock::Timestamp, ids::MerchantId};
use db::{
    Conn, Db, Tx,
    idempotency::{Columns, IdempotencyKey, KEPT, KeyUse, Keys, WantedKey},
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

static BUY: LazyLock<Keys> = LazyLock::new(|| operation("buy"));
static SELL: LazyLock<Keys> = LazyLock::new(|| operation("sell"));

fn operation(name: &'static str) -> Keys {
    Keys::new(Columns {
        operation: Some(name),
        subject: "order_id",
        taken_at: Some("taken_at"),
        read: "order_id, taken_at",
        forget_at: "forget_at",
    })
}

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

static PLAIN: LazyLock<Keys> = LazyLock::new(|| {
    Keys::new(Columns {
        operation: None,
        subject: "subject",
        taken_at: None,
        read: "subject",
        forget_at: "keep_until",
    })
});

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

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey {
        merchant_id: MerchantId::new(),
        key: name.to_owned(),
        fingerprint: "f".to_owned(),
    }
}

/// The order of the first request, and when it took the key.
type Taken = (Uuid, Timestamp);

async fn take(tx: &mut Tx, key: &IdempotencyKey, order: Uuid) -> KeyUse<Taken> {
    BUY.take(tx, key, order, now()).await.unwrap()
}

async fn take_committed(db: &Db, key: &IdempotencyKey) -> Uuid {
    let order = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    assert_eq!(take(&mut tx, key, order).await, KeyUse::First);
    tx.commit().await.unwrap();
    order
}

/// How many keys there are.
async fn count(conn: &mut Conn) -> i64 {
    let counting = conn.sql("select count(*) from idempotency_keys");
    let (count,) = counting.one().await.unwrap();
    count
}

#[tokio::test]
async fn a_key_stands_for_the_request_that_took_it() {
    let (_test, db) = database(TABLE).await;
    let first = key("order-17");
    let order = take_committed(&db, &first).await;
    let other_request = IdempotencyKey {
        fingerprint: "g".to_owned(),
        ..first.clone()
    };
    for (again, found) in [
        (&first, KeyUse::Repeat((order, now()))),
        (&other_request, KeyUse::Reuse),
        (&first, KeyUse::Repeat((order, now()))),
    ] {
        let mut tx = db.begin().await.unwrap();
        assert_eq!(take(&mut tx, again, Uuid::now_v7()).await, found);
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_key_is_one_merchants_and_one_operations() {
    let (_test, db) = database(TABLE).await;
    let first = key("order-17");
    let bought = take_committed(&db, &first).await;
    take_committed(&db, &key("order-17")).await;
    take_committed(&db, &key("order-18")).await;
    let sold = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    for (keys, found) in [
        (&SELL, KeyUse::First),
        (&SELL, KeyUse::Repeat((sold, now()))),
        (&BUY, KeyUse::Repeat((bought, now()))),
    ] {
        let taken = keys.take(&mut tx, &first, sold, now()).await;
        assert_eq!(taken.unwrap(), found);
    }
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
            match taken {
                KeyUse::First => (Some(order), order),
                KeyUse::Repeat((first, _)) => (None, first),
                KeyUse::Reuse | KeyUse::Freed => panic!("{taken:?}"),
            }
        });
    }
    let (taken, told): (Vec<_>, Vec<_>) = takers.join_all().await.into_iter().unzip();
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(told, [taken[0]; 16]);
}

#[tokio::test]
async fn a_taker_waits_for_the_one_before_and_follows_what_became_of_it() {
    let (_test, db) = database(TABLE).await;
    for is_kept in [true, false] {
        let (key, order) = (key("order-17"), Uuid::now_v7());
        let mut holder = db.begin().await.unwrap();
        assert_eq!(take(&mut holder, &key, order).await, KeyUse::First);
        let waits = async {
            let mut tx = db.begin().await.unwrap();
            take(&mut tx, &key, Uuid::now_v7()).await
        };
        let mut waiting = std::pin::pin!(waits);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
        assert!(early.is_err(), "{early:?}");
        let then = if is_kept {
            holder.commit().await.unwrap();
            KeyUse::Repeat((order, now()))
        } else {
            drop(holder);
            KeyUse::First
        };
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
    assert_eq!(count(&mut tx).await, 1);
    tx.commit().await.unwrap();
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
    for (days, order) in (0..).zip(&orders[..3]) {
        let ended_at = now() + DAY * days;
        BUY.forget_later(&mut tx, *order, ended_at).await.unwrap();
    }
    let first = now() + KEPT;
    assert_eq!(BUY.next_to_forget(&mut tx).await.unwrap(), Some(first));
    let almost = now() + KEPT - Duration::from_millis(1);
    assert_eq!(BUY.forget_due(&mut tx, almost, 10).await.unwrap(), 0);
    assert_eq!(BUY.forget_due(&mut tx, first, 10).await.unwrap(), 1);
    let late = now() + 9 * DAY;
    assert_eq!(BUY.forget_due(&mut tx, late, 1).await.unwrap(), 1);
    let last = Some(first + DAY * 2);
    assert_eq!(
        BUY.next_to_forget(&mut tx).await.unwrap(),
        last,
        "the oldest goes first"
    );
    assert_eq!(BUY.forget_due(&mut tx, late, 10).await.unwrap(), 1);
    assert_eq!(count(&mut tx).await, 1, "its order is open");
    let open = take(&mut tx, &keys[3], Uuid::now_v7()).await;
    assert_eq!(open, KeyUse::Repeat((orders[3], now())));
    tx.commit().await.unwrap();
    take_committed(&db, &keys[0]).await;
}

#[tokio::test]
async fn a_table_may_have_one_operation_and_nothing_of_its_own() {
    let (_test, db) = database(PLAIN_TABLE).await;
    let (key, subject) = (key("order-17"), Uuid::now_v7());
    let mut tx = db.begin().await.unwrap();
    for found in [KeyUse::First, KeyUse::Repeat((subject,))] {
        let taken = PLAIN.take(&mut tx, &key, subject, now()).await;
        assert_eq!(taken.unwrap(), found);
    }
    PLAIN.forget_later(&mut tx, subject, now()).await.unwrap();
    let forget_at = now() + KEPT;
    assert_eq!(
        PLAIN.next_to_forget(&mut tx).await.unwrap(),
        Some(forget_at)
    );
    assert_eq!(PLAIN.forget_due(&mut tx, forget_at, 10).await.unwrap(), 1);
    assert_eq!(count(&mut tx).await, 0);
}

/// What becomes of these, taken in one set and committed.
async fn take_set(db: &Db, wanted: &[(&IdempotencyKey, Uuid)]) -> Vec<KeyUse<Taken>> {
    let wanted: Vec<WantedKey<'_>> = wanted
        .iter()
        .map(|(key, subject)| WantedKey {
            key,
            subject: *subject,
            now: now(),
        })
        .collect();
    let mut tx = db.begin().await.unwrap();
    let taken = BUY.take_set(&mut tx, &wanted).await.unwrap();
    tx.commit().await.unwrap();
    taken
}

#[tokio::test]
async fn each_key_of_a_set_is_taken_as_if_it_came_alone() {
    let (_test, db) = database(TABLE).await;
    let (old, fresh) = (key("old"), key("fresh"));
    let order = take_committed(&db, &old).await;
    let reused = IdempotencyKey {
        fingerprint: "g".to_owned(),
        ..old.clone()
    };
    let elsewhere = IdempotencyKey {
        merchant_id: MerchantId::new(),
        ..old.clone()
    };
    let ids: [Uuid; 4] = std::array::from_fn(|_| Uuid::now_v7());
    let wanted = [
        (&reused, ids[0]),
        (&fresh, ids[1]),
        (&old, ids[2]),
        (&elsewhere, ids[3]),
    ];
    let repeat = |order| KeyUse::Repeat((order, now()));
    let taken = take_set(&db, &wanted).await;
    assert_eq!(
        taken,
        [KeyUse::Reuse, KeyUse::First, repeat(order), KeyUse::First]
    );
    let again = take_set(&db, &wanted).await;
    assert_eq!(
        again,
        [KeyUse::Reuse, repeat(ids[1]), repeat(order), repeat(ids[3])],
        "those whose answer was lost find themselves"
    );
    assert_eq!(take_set(&db, &[]).await, []);
}

/// Whether these were taken, all of them, by one write.
async fn take_free_set(db: &Db, keys: &[&IdempotencyKey]) -> bool {
    let wanted = keys.iter().map(|key| WantedKey {
        key,
        subject: Uuid::now_v7(),
        now: now(),
    });
    let wanted: Vec<WantedKey<'_>> = wanted.collect();
    match BUY.take_free_set(db.joint(), &wanted).run().await {
        Ok(()) => true,
        Err(error) => {
            assert!(db::is_incomplete(&error), "{error}");
            false
        }
    }
}

#[tokio::test]
async fn free_keys_are_taken_all_or_none() {
    let (_test, db) = database(TABLE).await;
    let [old, fresh, other] = ["old", "fresh", "other"].map(key);
    take_committed(&db, &old).await;
    assert!(!take_free_set(&db, &[&fresh, &old, &other]).await);
    assert!(!take_free_set(&db, &[&fresh, &other, &fresh]).await);
    assert_eq!(count(&mut db.read().await.unwrap()).await, 1);
    assert!(take_free_set(&db, &[&other, &fresh]).await);
    assert!(!take_free_set(&db, &[&fresh]).await);
    assert_eq!(count(&mut db.read().await.unwrap()).await, 3);
}

#[tokio::test]
async fn of_sets_of_the_same_free_keys_in_any_order_one_gets_them() {
    let (_test, db) = database(TABLE).await;
    let keys: Vec<IdempotencyKey> = (0..20).map(|number| key(&number.to_string())).collect();
    let mut takers = JoinSet::new();
    for taker in 0..8 {
        let (db, mut keys) = (db.clone(), keys.clone());
        if taker % 2 == 1 {
            keys.reverse();
        }
        takers.spawn(async move { take_free_set(&db, &keys.iter().collect::<Vec<_>>()).await });
    }
    let taken = takers.join_all().await;
    assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1);
}

#[tokio::test]
async fn of_equal_keys_in_a_set_the_first_gets_it() {
    let (_test, db) = database(TABLE).await;
    let first = key("order-17");
    let other_request = IdempotencyKey {
        fingerprint: "g".to_owned(),
        ..first.clone()
    };
    let ids: [Uuid; 3] = std::array::from_fn(|_| Uuid::now_v7());
    let wanted = [(&first, ids[0]), (&first, ids[1]), (&other_request, ids[2])];
    let taken = take_set(&db, &wanted).await;
    let repeat = KeyUse::Repeat((ids[0], now()));
    assert_eq!(taken, [KeyUse::First, repeat, KeyUse::Reuse]);
    let mut tx = db.begin().await.unwrap();
    assert_eq!(count(&mut tx).await, 1);
}

#[tokio::test]
async fn two_sets_may_want_the_same_keys_in_any_order() {
    let (_test, db) = database(TABLE).await;
    let keys: Vec<IdempotencyKey> = (0..20).map(|number| key(&number.to_string())).collect();
    let mut takers = JoinSet::new();
    for taker in 0..8 {
        let (db, mut keys) = (db.clone(), keys.clone());
        if taker % 2 == 1 {
            keys.reverse();
        }
        takers.spawn(async move {
            let wanted: Vec<_> = keys.iter().map(|key| (key, Uuid::now_v7())).collect();
            let taken = take_set(&db, &wanted).await;
            taken
                .iter()
                .filter(|taken| **taken == KeyUse::First)
                .count()
        });
    }
    let taken: usize = takers.join_all().await.into_iter().sum();
    assert_eq!(taken, keys.len());
}

#[tokio::test]
async fn the_keys_of_a_set_are_forgotten_each_at_its_time() {
    let (_test, db) = database(TABLE).await;
    let mut ended = Vec::new();
    for days in 0..3 {
        let order = take_committed(&db, &key(&days.to_string())).await;
        ended.push((order, now() + DAY * days));
    }
    let mut tx = db.begin().await.unwrap();
    BUY.forget_later_set(tx.joint(), &ended)
        .run()
        .await
        .unwrap();
    let next = BUY.next_to_forget(&mut tx).await.unwrap();
    assert_eq!(next, Some(now() + KEPT));
    let later = now() + KEPT + DAY;
    assert_eq!(BUY.forget_due(&mut tx, later, 10).await.unwrap(), 2);
}
