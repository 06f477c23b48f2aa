//! Statements about sets, and several writes in one round trip.

use chassis::clock::{Clock, Timestamp};
use db::{Db, Tx};
use uuid::Uuid;

use crate::database;

#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
struct Account {
    id: Uuid,
    name: String,
    balance: i64,
    is_open: bool,
    seen_at: Option<Timestamp>,
}

fn accounts(names: &[&str]) -> Vec<Account> {
    let now = Clock::system().now();
    let account = |(number, name): (i64, &&str)| Account {
        id: Uuid::now_v7(),
        name: (*name).to_owned(),
        balance: number,
        is_open: true,
        seen_at: (number % 2 == 0).then_some(now),
    };
    (0..).zip(names).map(account).collect()
}

/// Opens those whose name is free, and returns the ids of these.
async fn open(tx: &mut Tx, accounts: &[Account]) -> Vec<Uuid> {
    let opened: Vec<(Uuid,)> = tx
        .sql_set(
            "given (id uuid, name text, balance bigint, seen_at timestamptz)
             insert into account (id, name, balance, is_open, seen_at)
             select id, name, balance, $1, seen_at from given where true
             on conflict (name) do nothing
             returning id",
            accounts.len(),
        )
        .bind(true)
        .column(accounts.iter().map(|account| account.id))
        .column(accounts.iter().map(|account| &account.name))
        .column(accounts.iter().map(|account| account.balance))
        .column(accounts.iter().map(|account| account.seen_at))
        .all()
        .await
        .unwrap();
    opened.into_iter().map(|(id,)| id).collect()
}

async fn all(db: &Db) -> Vec<Account> {
    let mut conn = db.read().await.unwrap();
    conn.sql("select id, name, balance, is_open, seen_at from account order by name limit 100")
        .all()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_set_reads_back_as_it_was_written() {
    let (_test, db) = database().await;
    let set = accounts(&["ama", "kofi", "yaw"]);
    let mut tx = db.begin().await.unwrap();
    let opened = open(&mut tx, &set).await;
    assert!(set.iter().all(|account| opened.contains(&account.id)));
    assert!(open(&mut tx, &[]).await.is_empty());
    tx.commit().await.unwrap();
    assert_eq!(all(&db).await, set);
}

#[tokio::test]
async fn every_row_of_a_large_set_has_its_own_values() {
    let (_test, db) = database().await;
    let names: Vec<String> = (10..49).map(|number| format!("payer{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut set = accounts(&names);
    let mut tx = db.begin().await.unwrap();
    assert_eq!(open(&mut tx, &set).await.len(), set.len());
    let change = tx.sql_set(
        "given (id uuid, seen_at timestamptz, more bigint)
         update account set is_open = $1, seen_at = given.seen_at, balance = balance + given.more
         from given where account.id = given.id",
        set.len(),
    );
    let seen_at = set[0].seen_at;
    for (number, account) in (0..).zip(&mut set) {
        account.is_open = false;
        account.seen_at = (number % 3 == 0).then_some(seen_at).flatten();
        account.balance += 100 - number;
    }
    let changed = change
        .bind(false)
        .column(set.iter().map(|account| account.id))
        .column(set.iter().map(|account| account.seen_at))
        .column((0..39).map(|number| 100 - number))
        .rows_affected();
    assert_eq!(changed.await.unwrap(), 39);
    let read: Vec<Account> = tx
        .sql_set(
            "given (id uuid)
             select id, name, balance, is_open, seen_at from account
             where id in (select id from given)",
            set.len(),
        )
        .column(set.iter().map(|account| account.id))
        .all()
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(read.len(), 39);
    assert_eq!(all(&db).await, set);
}

#[tokio::test]
async fn a_row_of_a_set_that_conflicts_leaves_the_others() {
    let (_test, db) = database().await;
    let mut tx = db.begin().await.unwrap();
    open(&mut tx, &accounts(&["kofi"])).await;
    // Two of one set with the same name: the first takes it.
    let set = accounts(&["ama", "kofi", "yaw", "yaw"]);
    let opened = open(&mut tx, &set).await;
    assert_eq!(opened.len(), 2);
    assert!(opened.contains(&set[0].id) && opened.contains(&set[2].id));
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_set_changes_and_reads_its_own_rows_alone() {
    let (_test, db) = database().await;
    let set = accounts(&["ama", "kofi", "yaw"]);
    let mut tx = db.begin().await.unwrap();
    open(&mut tx, &set).await;
    let locked: Vec<(i64,)> = tx
        .sql_set(
            "given (name text)
             select balance from account where name in (select name from given)
             order by id for update",
            2,
        )
        .column(["yaw", "nobody"])
        .all()
        .await
        .unwrap();
    assert_eq!(locked, [(2,)]);
    let changed = tx
        .sql_set(
            "given (name text, more bigint)
             with named as (select name, more * $1 as more from given)
             update account set balance = account.balance + named.more from named
             where account.name = named.name",
            3,
        )
        .bind(10_i64)
        .column(["ama", "kofi", "nobody"])
        .column([1_i64, 2, 3]);
    assert_eq!(changed.rows_affected().await.unwrap(), 2);
    let closed = tx.sql_set(
        "given (name text) delete from account where name in (select name from given)",
        1,
    );
    closed.column([Some("yaw")]).run().await.unwrap();
    tx.commit().await.unwrap();
    let balances: Vec<i64> = all(&db).await.iter().map(|left| left.balance).collect();
    assert_eq!(balances, [10, 21]);
}

#[tokio::test]
async fn a_column_that_is_too_short_is_refused() {
    let (_test, db) = database().await;
    let mut tx = db.begin().await.unwrap();
    let short = tx.sql_set("given (id uuid, name text) select id, name from given", 2);
    let short = short.column([Uuid::nil(); 2]).column(["ama"]);
    let refused = short.all::<(Uuid, String)>().await;
    assert!(matches!(refused, Err(db::Error::Encode(_))), "{refused:?}");
}

/// Renames one, opens others and closes nobody, in one round trip.
async fn write_jointly(joint: db::Joint<'_>, others: &[Account]) -> [u64; 3] {
    joint
        .sql("update account set name = $2 where name = $1")
        .bind("ama")
        .bind("esi")
        .sql_set(
            "given (id uuid, name text)
             insert into account (id, name, balance, is_open) select id, name, $1, $2 from given
             where true on conflict (name) do nothing",
            others.len(),
        )
        .bind(7_i64)
        .bind(true)
        .column(others.iter().map(|other| other.id))
        .column(others.iter().map(|other| &other.name))
        .sql("delete from account where balance = $1")
        .bind(-1_i64)
        .rows_affected()
        .await
        .unwrap()
}

#[tokio::test]
async fn several_writes_are_one_round_trip_and_each_tells_its_rows() {
    let (_test, db) = database().await;
    let mut tx = db.begin().await.unwrap();
    open(&mut tx, &accounts(&["ama", "kofi"])).await;
    let others = accounts(&["kofi", "yaw", "adwoa"]);
    assert_eq!(write_jointly(tx.joint(), &others).await, [1, 2, 0]);
    assert_eq!(write_jointly(tx.joint(), &[]).await, [0, 0, 0]);
    tx.commit().await.unwrap();
    let names: Vec<String> = all(&db).await.into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["adwoa", "esi", "kofi", "yaw"]);
}

/// Empties every account, and opens these, of which none may exist.
async fn open_new(joint: db::Joint<'_>, others: &[Account]) -> db::Result<()> {
    joint
        .sql("update account set balance = $1")
        .bind(0_i64)
        .sql_set(
            "given (id uuid, name text)
             insert into account (id, name, balance, is_open) select id, name, $1, true from given
             where true on conflict (name) do nothing",
            others.len(),
        )
        .bind(7_i64)
        .column(others.iter().map(|other| other.id))
        .column(others.iter().map(|other| other.name.clone()))
        .whole()
        .run()
        .await
}

#[tokio::test]
async fn nothing_is_written_unless_a_part_is_whole() {
    let (_test, db) = database().await;
    let all_three = accounts(&["ama", "yaw", "adwoa"]);
    open_new(db.joint(), &all_three[..1]).await.unwrap();
    let refused = open_new(db.joint(), &all_three).await.unwrap_err();
    assert!(db::is_incomplete(&refused), "{refused}");
    let mut tx = db.begin().await.unwrap();
    let refused = open_new(tx.joint(), &all_three).await.unwrap_err();
    assert!(db::is_incomplete(&refused), "{refused}");
    assert!(tx.commit().await.is_err());
    let unchanged = all(&db).await;
    assert_eq!((unchanged.len(), unchanged[0].balance), (1, 7));
    open_new(db.joint(), &all_three[1..]).await.unwrap();
    assert_eq!(all(&db).await.len(), 3);
}

#[tokio::test]
async fn several_writes_alone_are_a_transaction() {
    let (_test, db) = database().await;
    let others = accounts(&["ama"]);
    assert_eq!(write_jointly(db.joint(), &others).await, [0, 1, 0]);
    assert_eq!(all(&db).await.len(), 1);
    let failing = db
        .joint()
        .sql("update account set name = $1")
        .bind("esi")
        .sql("update account set id = null");
    assert!(failing.run().await.is_err());
    assert_eq!(all(&db).await[0].name, "ama");
    let counted = db.joint().sql("delete from account").rows_affected::<2>();
    assert!(matches!(counted.await, Err(db::Error::Protocol(_))));
}
