//! Links to the real PostgreSQL server of `TEST_DATABASE_URL`. Without one, nothing is tested.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    str::FromStr as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use db::testing::TestDb;
use simulation::{
    faults::{Faults, Rates},
    line::When,
    postgres_link::PostgresLink,
    time::Time,
};
use sqlx::{
    ConnectOptions as _, Connection as _, Error, Executor as _, PgConnection,
    postgres::PgConnectOptions,
};
use tokio::sync::oneshot;

use crate::world::{faults, is_err, soon, step, time, until};

struct World {
    time: Time,
    link: PostgresLink,
    statements: Arc<AtomicUsize>,
    options: PgConnectOptions,
    /// Connected to the server without the link.
    direct: PgConnection,
    _database: TestDb,
}

impl World {
    /// Makes a table of words. Returns `None` without a server.
    async fn start(faults: Faults) -> Option<Self> {
        let database = TestDb::new("links").await;
        if !database.url.starts_with("postgres") {
            return None;
        }
        let options = PgConnectOptions::from_str(&database.url).unwrap();
        let server = address(&options);
        let mut direct = options.connect().await.unwrap();
        direct
            .execute("create table word (word text primary key)")
            .await
            .unwrap();
        let (time, statements) = (time(), Arc::<AtomicUsize>::default());
        let shared = Arc::clone(&statements);
        let link = PostgresLink::open("charges-0", 7, time.clone(), faults, server, shared);
        let link = link.await.unwrap();
        let options = options.host("127.0.0.1").port(link.address().port());
        Some(Self {
            time,
            link,
            statements,
            options,
            direct,
            _database: database,
        })
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        soon(self.options.connect()).await
    }

    fn statements(&self) -> usize {
        self.statements.load(Ordering::SeqCst)
    }

    async fn words(&mut self) -> Vec<String> {
        let words = sqlx::query_scalar("select word from word order by word");
        words.fetch_all(&mut self.direct).await.unwrap()
    }
}

fn address(options: &PgConnectOptions) -> SocketAddr {
    let mut found = (options.get_host(), options.get_port())
        .to_socket_addrs()
        .unwrap();
    found.next().unwrap()
}

async fn write(conn: &mut PgConnection, word: &str) -> Result<(), Error> {
    let mut tx = conn.begin().await?;
    let insert = sqlx::query("insert into word (word) values ($1)").bind(word);
    insert.execute(&mut *tx).await?;
    tx.commit().await
}

#[tokio::test]
async fn statements_pass_and_are_counted_while_the_server_works() {
    let Some(mut world) = World::start(Faults::off()).await else {
        return;
    };
    let mut conn = world.connect().await.unwrap();
    soon(write(&mut conn, "one")).await.unwrap();
    assert_eq!(
        (world.words().await, world.statements()),
        (vec!["one".to_owned()], 0)
    );

    world
        .direct
        .execute("select pg_advisory_lock(1)")
        .await
        .unwrap();
    let statements = Arc::clone(&world.statements);
    let waits = conn.execute("select pg_advisory_lock(1)");
    let releases = async {
        until(|| statements.load(Ordering::SeqCst) == 1).await;
        world.direct.execute("select pg_advisory_unlock(1)").await
    };
    let (waited, released) = soon(async { tokio::join!(waits, releases) }).await;
    waited.and(released).unwrap();
    assert_eq!(statements.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_commit_whose_confirmation_is_lost_is_a_commit() {
    let switch = Faults::off().with(Rates {
        unconfirmed: 1_000,
        ..Rates::NONE
    });
    let Some(mut world) = World::start(switch.clone()).await else {
        return;
    };
    let mut conn = world.connect().await.unwrap();
    switch.on();
    is_err(soon(write(&mut conn, "one")).await);
    assert_eq!(world.words().await, ["one"]);
    assert_eq!(world.statements(), 0);
}

#[tokio::test]
async fn the_database_may_be_away_after_a_lost_confirmation() {
    let switch = Faults::off().with(Rates {
        unconfirmed: 1_000,
        failover_ms_max: 5_000,
        ..Rates::NONE
    });
    let Some(world) = World::start(switch.clone()).await else {
        return;
    };
    switch.on();
    let refused = soon(async {
        for number in 0.. {
            match world.connect().await {
                Ok(mut conn) => is_err(write(&mut conn, &number.to_string()).await),
                Err(refused) => return Some(refused),
            }
        }
        None
    });
    let refused = refused.await.unwrap();
    let code = refused.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("57P03"));
    world.time.step_to(5_000);
    world.connect().await.unwrap();
}

#[tokio::test]
async fn an_exchange_that_is_held_does_not_count() {
    let Some(world) = World::start(Faults::off()).await else {
        return;
    };
    let mut conn = world.connect().await.unwrap();
    world.link.freeze(10_000);
    let holding = async {
        until(|| world.link.is_holding()).await;
        assert_eq!(world.statements(), 0);
        step(&world.time);
    };
    let (written, ()) = soon(async { tokio::join!(write(&mut conn, "one"), holding) }).await;
    written.unwrap();
}

#[tokio::test]
async fn exchanges_are_lost_before_or_after_their_effect() {
    let before = Rates {
        lost_before: 1_000,
        ..Rates::NONE
    };
    let after = Rates {
        lost_after: 1_000,
        ..Rates::NONE
    };
    for (rates, words) in [(before, vec![]), (after, vec!["one".to_owned()])] {
        let switch = Faults::off().with(rates);
        let Some(mut world) = World::start(switch.clone()).await else {
            return;
        };
        let mut conn = world.connect().await.unwrap();
        switch.on();
        is_err(soon(conn.execute("insert into word (word) values ('one')")).await);
        assert_eq!(world.words().await, words);
    }
}

#[tokio::test]
async fn a_cut_rolls_back_at_the_server() {
    let Some(mut world) = World::start(Faults::off()).await else {
        return;
    };
    let mut conn = world.connect().await.unwrap();
    conn.execute("begin; insert into word (word) values ('one')")
        .await
        .unwrap();
    world.link.cut();
    is_err(soon(conn.execute("commit")).await);
    is_err(world.connect().await);
    // This waits for the other transaction to end.
    soon(write(&mut world.direct, "one")).await.unwrap();

    world.link.mend();
    let mut conn = world.connect().await.unwrap();
    soon(write(&mut conn, "two")).await.unwrap();
    assert_eq!(world.words().await, ["one", "two"]);
}

#[tokio::test]
async fn a_server_that_restarts_says_so() {
    let Some(world) = World::start(Faults::off()).await else {
        return;
    };
    let mut conn = world.connect().await.unwrap();
    world.link.restart(5_000);
    is_err(soon(conn.ping()).await);
    let error = world.connect().await.unwrap_err();
    let code = error.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("57P03"));
    world.time.step_to(5_000);
    soon(write(&mut world.connect().await.unwrap(), "one"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_refused_connection_is_told() {
    let faults = faults(Rates {
        refused: 1_000,
        ..Rates::NONE
    });
    let Some(world) = World::start(faults).await else {
        return;
    };
    is_err(world.connect().await);
}

/// Trips a wire at the commit of a word. Returns whether its writer learned of the commit, and the
/// stored words.
async fn tripped(when: When) -> Option<(bool, Vec<String>)> {
    let mut world = World::start(Faults::off()).await?;
    let mut conn = world.connect().await.unwrap();
    soon(write(&mut conn, "one")).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    tx.execute("insert into word (word) values ('two')")
        .await
        .unwrap();
    let (trip, tripped) = oneshot::channel();
    world.link.trip(0, when, trip);
    let told = soon(tx.commit()).await.is_ok();
    soon(tripped).await.unwrap();
    is_err(world.connect().await);
    is_err(soon(conn.ping()).await);
    assert_eq!(world.statements(), 0);
    Some((told, world.words().await))
}

#[tokio::test]
async fn a_wire_before_a_commit_undoes_it() {
    let Some(outcome) = tripped(When::Before).await else {
        return;
    };
    assert_eq!(outcome, (false, vec!["one".to_owned()]));
}

#[tokio::test]
async fn a_wire_after_a_commit_finds_it_done() {
    let words = vec!["one".to_owned(), "two".to_owned()];
    let Some(outcome) = tripped(When::After).await else {
        return;
    };
    assert_eq!(outcome, (false, words.clone()));
    let Some(outcome) = tripped(When::AfterAnswer).await else {
        return;
    };
    assert_eq!(outcome, (true, words));
}
