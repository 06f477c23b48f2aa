//! Who holds a charge, whatever the hosts' clocks show.

use std::time::Duration;

use charges_svc::{
    SCHEMA, books,
    charge::{Charge, Lease, State},
    store::{self, blocks::Duty},
};
use chassis::{
    clock::{Clock, StoreReading},
    grpc::Channel,
    shutdown::{Shutdown, Tasks},
    testing::{ServedService, address, listen},
};
use db::{Db, Insert, Update, testing::TestDb};
use proto::{
    charges::{ChargeStatus, charges_client::ChargesClient},
    sessions::record_transaction_response::Outcome,
};
use rails::RailName;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tonic::Code;

use crate::{
    neighbour::{self, Updates},
    world::{config, lease, new_charge, request},
};

const MINUTE: Duration = Duration::from_secs(60);

/// The clock of a replica whose host's clock is off by this much.
fn clock_off_by(skew_ms: i64) -> Clock {
    Clock::simulated(Clock::system().host_now(), skew_ms, 0)
}

async fn open(database: &TestDb, clock: &Clock) -> Db {
    let config = config(&database.url, "http://127.0.0.1:1");
    let shutdown = Shutdown::new();
    let service = &config.service;
    let opening = Db::open(&service.database, service.mode, &SCHEMA, clock, &shutdown);
    opening.await.unwrap()
}

async fn insert(db: &Db, charge: &Charge) {
    let mut tx = db.begin().await.unwrap();
    assert_eq!(
        store::charges::insert(&mut tx, charge).await.unwrap(),
        Insert::Inserted
    );
    tx.commit().await.unwrap();
}

async fn claim(db: &Db, clock: &Clock) -> usize {
    let mut tx = db.begin().await.unwrap();
    let claimed = store::charges::claim_due(
        &mut tx,
        clock,
        RailName::Paystack,
        8,
        Duration::from_secs(30),
    )
    .await;
    tx.commit().await.unwrap();
    claimed.unwrap().rows.len()
}

/// Two replicas of one database, and their clocks.
struct Replicas {
    db: Db,
    clock: Clock,
    others_db: Db,
    others: Clock,
    _database: TestDb,
}

impl Replicas {
    /// `None` on SQLite, where one host has one clock.
    async fn off_by(offset_ms: i64, others_ms: i64) -> Option<Self> {
        let database = TestDb::new("charges-svc").await;
        let (clock, others) = (clock_off_by(offset_ms), clock_off_by(others_ms));
        let db = open(&database, &clock).await;
        if !db.is_postgres() {
            return None;
        }
        Some(Self {
            others_db: open(&database, &others).await,
            db,
            clock,
            others,
            _database: database,
        })
    }

    /// Writes one charge that is due, which we claim, and one that is due in 15 s.
    async fn take_one_of_two(&self) {
        insert(&self.db, &new_charge(self.clock.now() - MINUTE)).await;
        insert(&self.db, &new_charge(self.clock.now())).await;
        assert_eq!(claim(&self.db, &self.clock).await, 1);
    }
}

#[tokio::test]
async fn replicas_with_clocks_apart_take_nothing_from_each_other_and_nothing_early() {
    for (offset_ms, others_ms) in [(-60_000, 60_000), (60_000, -60_000)] {
        let Some(replicas) = Replicas::off_by(offset_ms, others_ms).await else {
            return;
        };
        replicas.take_one_of_two().await;
        let claimed = claim(&replicas.others_db, &replicas.others).await;
        assert_eq!(claimed, 0, "{offset_ms}");
    }
}

#[tokio::test]
async fn a_host_that_leaps_takes_nothing_from_others_and_nothing_early() {
    let Some(replicas) = Replicas::off_by(0, 0).await else {
        return;
    };
    replicas.take_one_of_two().await;
    replicas.others.step_host(26 * 3_600_000);
    assert_eq!(claim(&replicas.others_db, &replicas.others).await, 0);
}

/// A service whose calls to sessions-svc arrive only once the gate is open.
struct Gated {
    charges: ChargesClient<Channel>,
    clock: Clock,
    db: Db,
    gate: watch::Sender<bool>,
    service: ServedService,
    _neighbour: ServedService,
    _tasks: Tasks,
    database: TestDb,
}

impl Gated {
    async fn start() -> Self {
        let database = TestDb::new("charges-svc").await;
        let clock = clock_off_by(0);
        let neighbour =
            neighbour::start(Outcome::Recorded, Duration::ZERO, Updates::default()).await;
        let front = listen().await;
        let config = config(&database.url, &format!("http://{}", address(&front)));
        let (gate, opened) = watch::channel(false);
        let tasks = Tasks::new();
        tasks.spawn(pass_on(front, neighbour.address, opened));
        let service = ServedService::start(|sockets, shutdown| {
            charges_svc::serve(config, sockets, clock.clone(), shutdown)
        })
        .await;
        Self {
            charges: ChargesClient::new(service.channel()),
            clock,
            db: database.connect().await,
            gate,
            service,
            _neighbour: neighbour,
            _tasks: tasks,
            database,
        }
    }

    /// The one charge, once it is written.
    async fn charge(&self) -> Charge {
        let sql = "select reference from charges";
        loop {
            let mut conn = self.db.read().await.unwrap();
            // The table may not be there yet.
            if let Ok(Some((reference,))) = conn.sql(sql).optional().await {
                let found = store::charges::find_by_reference(&mut conn, &reference).await;
                return found.unwrap().unwrap();
            }
            drop(conn);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Acts as if the machine had been suspended for a minute, which only the wall clock shows.
    /// Makes the charge due later, to keep the reconciler out of it.
    async fn suspend(&self) {
        let mut tx = self.db.begin().await.unwrap();
        let later = self.clock.now() + 10 * MINUTE;
        let update = tx.sql("update charges set next_query_at = $1").bind(later);
        assert_eq!(update.rows_affected().await.unwrap(), 1);
        tx.commit().await.unwrap();
        let host = self.clock.steady_now();
        let look = StoreReading {
            before: host,
            store: host + MINUTE,
            after: host,
        };
        self.clock.align(&[look]);
    }

    /// Whether the rail was called.
    async fn was_called(&self) -> bool {
        let sql = "select count(*) from rail_evidence where action = 'request_payment'";
        let mut conn = self.db.read().await.unwrap();
        let (calls,): (i64,) = conn.sql(sql).one().await.unwrap();
        calls > 0
    }

    async fn end(self) {
        self.database.until_relayed().await;
        self.service.stop().await;
        self.db.close().await;
    }
}

async fn pass_on(
    front: TcpListener,
    back: std::net::SocketAddr,
    mut opened: watch::Receiver<bool>,
) {
    let connections = Tasks::new();
    loop {
        let (mut from, _) = front.accept().await.unwrap();
        if opened.wait_for(|opened| *opened).await.is_err() {
            return;
        }
        connections.spawn(async move {
            let mut to = TcpStream::connect(back).await.unwrap();
            copy_bidirectional(&mut from, &mut to).await.ok();
        });
    }
}

#[tokio::test]
async fn a_charge_whose_lease_ended_before_the_first_byte_is_not_sent() {
    let gated = Gated::start().await;
    let mut charges = gated.charges.clone();
    let suspending = async {
        let charge = gated.charge().await;
        gated.suspend().await;
        gated.gate.send_replace(true);
        charge
    };
    let (answer, charge) = tokio::join!(charges.create_charge(request()), suspending);
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
    let mut conn = gated.db.read().await.unwrap();
    let found = store::charges::find(&mut conn, charge.facts.transaction_id).await;
    assert_eq!(found.unwrap().unwrap().progress.state, State::Void);
    drop(conn);
    assert!(!gated.was_called().await);
    gated.end().await;
}

#[tokio::test]
async fn a_charge_that_somebody_else_has_taken_over_is_theirs_to_end() {
    let gated = Gated::start().await;
    let mut charges = gated.charges.clone();
    let taking_over = async {
        let charge = gated.charge().await;
        gated.suspend().await;
        let mut tx = gated.db.begin().await.unwrap();
        let theirs: Lease = lease(&gated.clock);
        store::charges::claim(&mut tx, charge.facts.transaction_id, theirs)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        gated.gate.send_replace(true);
        theirs
    };
    let (answer, theirs) = tokio::join!(charges.create_charge(request()), taking_over);
    let told = answer.unwrap().into_inner().charge.unwrap();
    assert_eq!(told.status(), ChargeStatus::Initiated, "nobody knows");
    let charge = gated.charge().await;
    assert_eq!(charge.progress.state, State::Submitting);
    assert_eq!(charge.claim.fence, Some(theirs.fence));
    assert!(!gated.was_called().await);
    gated.end().await;
}

#[tokio::test]
async fn where_no_other_process_can_hold_one_a_dead_ones_check_is_due_at_once() {
    let database = TestDb::new("charges-svc").await;
    let clock = clock_off_by(0);
    let db = open(&database, &clock).await;
    if db.is_postgres() {
        return;
    }
    let now = clock.real_now();
    let mut tx = db.begin().await.unwrap();
    let claimed = store::works::claim(&mut tx, Duty::CheckNew.code(), now, now + 15 * MINUTE).await;
    assert_eq!(claimed.unwrap(), Update::Updated);
    tx.commit().await.unwrap();
    assert_eq!(books::check_new(&db, &clock).await.unwrap(), None);
    db.release_leases(&SCHEMA).await.unwrap();
    let found = books::check_new(&db, &clock).await.unwrap();
    assert_eq!(found, Some(Vec::new()));
}
