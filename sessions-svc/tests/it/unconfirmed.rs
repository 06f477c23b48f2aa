//! A session whose creation was committed, and whose answer from the database was lost.
//!
//! Only PostgreSQL's can be: SQLite runs in the process.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, Ordering},
};

use chassis::{
    shutdown::{Shutdown, Tasks},
    testing::{address, listen, until},
};
use db::testing::TestDb;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::World;

/// A proxy to PostgreSQL that can lose an answer: instead of passing it on, it ends the connection.
struct LossyWire {
    /// The URL of the same database, through the proxy.
    url: String,
    losses: Arc<Losses>,
    stop: Shutdown,
}

#[derive(Default)]
struct Losses {
    /// The port of the connection whose next answer is lost; 0 is nobody's.
    port: AtomicU16,
    lost: Mutex<Vec<u8>>,
}

impl LossyWire {
    /// Starts a proxy to the server of this URL.
    async fn lay(url: &str) -> Self {
        let (role, place) = url.rsplit_once('@').unwrap();
        let (server, database) = place.split_once('/').unwrap();
        let server = match server.contains(':') {
            true => server.to_owned(),
            false => format!("{server}:5432"),
        };
        let listener = listen().await;
        let url = format!("{role}@{}/{database}", address(&listener));
        let (losses, stop) = (Arc::new(Losses::default()), Shutdown::new());
        let (each, ends, tasks) = (losses.clone(), stop.clone(), Tasks::new());
        tasks.clone().spawn(async move {
            while let Some(Ok((near, _))) = tokio::select! {
                accepted = listener.accept() => Some(accepted),
                () = ends.wait() => None,
            } {
                let far = TcpStream::connect(&server).await.unwrap();
                tasks.spawn(carry(near, far, each.clone()));
            }
        });
        Self { url, losses, stop }
    }

    /// Loses the next answer to the connection that the server knows by this port.
    fn lose_the_next(&self, port: u16) {
        self.losses.port.store(port, Ordering::SeqCst);
    }

    fn lost(&self) -> Vec<u8> {
        self.losses.lost.lock().unwrap().clone()
    }
}

impl Drop for LossyWire {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

async fn carry(near: TcpStream, far: TcpStream, losses: Arc<Losses>) {
    let port = far.local_addr().unwrap().port();
    let (mut asked, mut answers) = near.into_split();
    let (mut answered, mut asks) = far.into_split();
    let answering = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = answered.read(&mut bytes).await {
            let part = &bytes[..length];
            if losses.port.load(Ordering::SeqCst) == port {
                losses.lost.lock().unwrap().extend_from_slice(part);
                return;
            }
            if answers.write_all(part).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = tokio::io::copy(&mut asked, &mut asks) => {}
        () = answering => {}
    }
}

/// The port of whoever waits for what another transaction has locked.
async fn waiting_port(world: &World) -> Option<u16> {
    let mut conn = world.db.read().await.unwrap();
    let waiting: Vec<(i32,)> = conn
        .sql(
            "select client_port from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'",
        )
        .all()
        .await
        .unwrap();
    waiting.first().map(|(port,)| u16::try_from(*port).unwrap())
}

#[tokio::test]
async fn a_creation_that_nobody_confirmed_is_recognised_as_its_own() {
    let database = TestDb::new("sessions-svc").await;
    if !database.url.starts_with("postgres") {
        return;
    }
    let wire = LossyWire::lay(&database.url).await;
    let world = World::start_through(database, &wire.url).await;
    let request = world.request("USD", 2_550);
    // Until it is rolled back, the creation waits for its key.
    let taking = world.take_key(&request).await;
    let losing = async {
        until("it waits for its key", async || {
            match waiting_port(&world).await {
                Some(port) => wire.lose_the_next(port),
                None => return false,
            }
            true
        })
        .await;
        drop(taking);
    };
    let (created, ()) = tokio::join!(world.create(request.clone()), losing);
    let lost = String::from_utf8_lossy(&wire.lost()).into_owned();
    assert!(
        lost.contains("SELECT 1\0"),
        "not the end of a statement: {lost:?}"
    );
    let created = created.unwrap();
    assert!(!created.replayed, "it was the first of its key");
    let again = world.create(request).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.session, created.session);
    let (sessions,): (i64,) = {
        let mut conn = world.db.read().await.unwrap();
        let counting = conn.sql("select count(*) from sessions");
        counting.one().await.unwrap()
    };
    assert_eq!(sessions, 1);
    world.end().await;
}
