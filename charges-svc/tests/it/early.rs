//! Callbacks that come before the rail has replied to the request.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use charges_svc::{
    charge::{Charge, Claim, State},
    store,
};
use chassis::testing::{
    fake_server::{FakeServer, Reaction, empty, json},
    until,
};
use db::testing::TestDb;
use futures::{
    FutureExt,
    future::{LocalBoxFuture, join, join_all, select_all},
};
use proto::charges::ReceiveCallbackRequest;
use rails::testing::with_tokens;
use tokio::sync::watch;
use tonic::Status;

use crate::{
    commit_wire::CommitWire,
    world::{Neighbour, World, new_momo_charge, request},
};

/// How often to try what a machine that stalls can prevent: a callback waits for half a second, and
/// is then recorded by itself.
const TRIES: usize = 10;

const PAY: &str = "POST /collection/v1_0/requesttopay";

/// Longer than the half second that a callback waits for a reply. Nothing tells of its end while the
/// commit is held up, so it must pass.
const LONGER_THAN_IT_WAITS: Duration = Duration::from_secs(1);

/// In the statement that records a reply and commits by itself, and in no other.
const REPLY_STEP: &[u8] = b"was_resent_at";

/// A service, and an MTN that keeps back its reply to a payment request, and has the money at once.
struct Shop {
    world: World,
    network: FakeServer,
    gate: watch::Sender<bool>,
}

impl Shop {
    async fn open() -> Self {
        Self::open_on(TestDb::new("charges-svc").await, &[]).await
    }

    async fn open_on(database: TestDb, flags: &[(&str, &str)]) -> Self {
        let (gate, held) = watch::channel(false);
        let taken = AtomicBool::new(false);
        let network = with_tokens(move |seen| match seen.call.strip_prefix("GET ") {
            Some(_) if !taken.load(Ordering::SeqCst) => {
                json(404, r#"{"code":"RESOURCE_NOT_FOUND","message":"x"}"#)
            }
            Some(path) => {
                let reference = path.rsplit('/').next().unwrap();
                let body = format!(
                    r#"{{"amount":"25.50","currency":"GHS","externalId":"{reference}","status":"SUCCESSFUL"}}"#
                );
                json(200, body)
            }
            None => {
                taken.store(true, Ordering::SeqCst);
                Reaction::Held(held.clone(), Box::new(empty(202)))
            }
        })
        .await;
        let address = network.address();
        let momo = [
            ("momo-base-url", address.as_str()),
            // Enough for the reconciler and a callback at the same moment.
            ("momo-queries-per-second", "1000"),
        ];
        let flags = [flags, &momo].concat();
        Self {
            world: World::start_through(database, Neighbour::Open, &flags).await,
            network,
            gate,
        }
    }

    /// The same with a wire to its database. `None` on SQLite, which runs in the process.
    async fn open_by_wire() -> Option<(Self, CommitWire)> {
        let database = TestDb::new("charges-svc").await;
        if !database.url.starts_with("postgres") {
            return None;
        }
        let wire = CommitWire::lay(&database.url).await;
        let shop = Self::open_on(database, &[("database-url", wire.url.as_str())]).await;
        Some((shop, wire))
    }

    /// Lets the network reply.
    fn reply(&self) {
        self.gate.send(true).unwrap();
    }

    /// Creates a charge, and does this while the rail is asked.
    async fn charge<T>(&self, meanwhile: impl AsyncFnOnce(&Charge) -> T) -> (Charge, T) {
        self.while_asked(self.create(), meanwhile).await
    }

    async fn create(&self) {
        let told = self.world.charges.clone().create_charge(request()).await;
        assert!(told.is_ok(), "{told:?}");
    }

    /// Does this while the rail is asked by `asking`.
    async fn while_asked<T>(
        &self,
        asking: impl Future<Output = ()>,
        meanwhile: impl AsyncFnOnce(&Charge) -> T,
    ) -> (Charge, T) {
        let meanwhile = async {
            let charge = self.the_charge().await;
            let outcome = meanwhile(&charge).await;
            (charge, outcome)
        };
        let ((), done) = join(asking, meanwhile).await;
        done
    }

    /// The only charge, once its rail is being asked.
    async fn the_charge(&self) -> Charge {
        let is_asked = async || {
            let calls = self.network.calls();
            calls.iter().any(|call| call == PAY)
        };
        until("the rail is asked", is_asked).await;
        let mut conn = self.world.db.read().await.unwrap();
        let (id,) = conn
            .sql("select transaction_id from charges")
            .one()
            .await
            .unwrap();
        let found = store::charges::find(&mut conn, id).await.unwrap();
        found.unwrap()
    }

    /// The charge as it is now.
    async fn now(&self, charge: &Charge) -> Charge {
        self.world.charge(&charge.facts.reference).await
    }

    async fn call_back(&self, charge: &Charge) -> Result<(), Status> {
        let callback = ReceiveCallbackRequest {
            rail: "momo".to_owned(),
            token: charge.facts.callback_token.clone(),
            body: b"{}".to_vec(),
            ..Default::default()
        };
        let mut charges = self.world.charges.clone();
        charges.receive_callback(callback).await.map(drop)
    }

    /// Lets no callback be recorded by itself: what is acknowledged from now on was recorded in a
    /// step of its charge.
    async fn refuse_lone_callbacks(&self) {
        let statements: &[&'static str] = match self.world.db.is_postgres() {
            true => &[
                "create function refuse() returns trigger language plpgsql as
                     'begin raise exception ''a lone callback''; end'",
                "create trigger no_lone_callback before update on charges for each row
                     when (new.hints > old.hints and new.state = old.state)
                     execute function refuse()",
            ],
            false => &["create trigger no_lone_callback before update on charges
                     when new.hints > old.hints and new.state = old.state
                 begin
                     select raise(abort, 'a lone callback');
                 end"],
        };
        let mut tx = self.world.db.begin().await.unwrap();
        for statement in statements {
            tx.sql(statement).run().await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// A callback that waits for the reply, after [`Shop::refuse_lone_callbacks`]. Only one of a
    /// charge waits at a time, so the refusal of another shows that it does.
    async fn waiting_callback<'a>(
        &'a self,
        charge: &'a Charge,
    ) -> LocalBoxFuture<'a, Result<(), Status>> {
        let callbacks = [self.call_back(charge), self.call_back(charge)];
        let callbacks = callbacks.map(FutureExt::boxed_local);
        let (refused, _, mut others) = select_all(callbacks).await;
        assert!(refused.is_err(), "recorded before the reply");
        others.remove(0)
    }

    /// How many callbacks were recorded, once the charge is settled and free.
    async fn recorded(&self, charge: &Charge) -> i64 {
        let is_settled = async || {
            let now = self.now(charge).await;
            now.progress.state == State::Settled && now.claim.fence == Claim::default().fence
        };
        until("the charge is settled", is_settled).await;
        let mut conn = self.world.db.read().await.unwrap();
        let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid()).await;
        let said = evidence.unwrap().into_iter();
        let callbacks: i64 = said
            .filter(|said| said.action == "callback")
            .map(|said| said.times)
            .sum();
        assert_eq!(self.now(charge).await.timer.hints, callbacks);
        callbacks
    }

    fn queries(&self) -> usize {
        let calls = self.network.calls();
        calls.iter().filter(|call| call.starts_with("GET")).count()
    }
}

/// Whether a callback that waits for the reply is recorded with it, and the rail then queried at
/// once.
async fn is_recorded_with_the_reply(shop: &Shop, asking: impl Future<Output = ()>) -> bool {
    shop.refuse_lone_callbacks().await;
    let (charge, (queries, heard)) = shop
        .while_asked(asking, async |charge| {
            let waiting = shop.waiting_callback(charge).await;
            let queries = shop.queries();
            shop.reply();
            (queries, waiting.await)
        })
        .await;
    if heard.is_ok() {
        assert_eq!(shop.recorded(&charge).await, 1);
        assert_eq!(shop.queries(), queries + 1);
    }
    heard.is_ok()
}

/// Whether one of several tries succeeds.
async fn once(tried: impl AsyncFn() -> bool) -> bool {
    for _ in 0..TRIES {
        if tried().await {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_callback_that_comes_before_the_reply_is_recorded_with_it() {
    let tried = async || {
        let shop = Shop::open().await;
        let is_recorded = is_recorded_with_the_reply(&shop, shop.create()).await;
        shop.world.end().await;
        is_recorded
    };
    assert!(once(tried).await, "each was recorded by itself");
}

#[tokio::test]
async fn a_callback_that_comes_before_the_reply_to_a_second_request_is_recorded_with_it() {
    let tried = async || {
        let mut shop = Shop::open().await;
        shop.world.stop().await;
        let orphan = new_momo_charge(shop.world.clock.now());
        shop.world.given(orphan, &[]).await;
        shop.world = shop.world.restart().await;
        let resending = async {
            let until_sent = Duration::from_secs(80);
            shop.world.clock.advance(until_sent).await.unwrap();
        };
        let is_recorded = is_recorded_with_the_reply(&shop, resending).await;
        shop.world.end().await;
        is_recorded
    };
    assert!(once(tried).await, "each was recorded by itself");
}

/// Its wait for the reply is over while the reply is being recorded, and it with it.
#[tokio::test]
async fn a_callback_that_is_being_recorded_is_not_recorded_again() {
    for _ in 0..TRIES {
        let Some((shop, wire)) = Shop::open_by_wire().await else {
            return;
        };
        shop.refuse_lone_callbacks().await;
        let (charge, (held, heard)) = shop
            .charge(async |charge| {
                let waiting = shop.waiting_callback(charge).await;
                wire.hold_the_next(REPLY_STEP);
                shop.reply();
                until("the reply's step is held up", async || wire.is_holding()).await;
                tokio::time::sleep(LONGER_THAN_IT_WAITS).await;
                let held = shop.now(charge).await.progress.state;
                wire.let_go();
                (held, waiting.await)
            })
            .await;
        // Otherwise the machine stalled, and the callback was recorded by itself.
        if held == State::Submitting && heard.is_ok() {
            assert_eq!(shop.recorded(&charge).await, 1);
            return shop.world.end().await;
        }
        shop.world.end().await;
    }
    panic!("each callback was recorded by itself");
}

#[tokio::test]
async fn a_second_callback_before_the_reply_is_not_lost() {
    let shop = Shop::open().await;
    let (charge, heard) = shop
        .charge(async |charge| {
            let replying = async {
                let is_recorded = async || shop.now(charge).await.timer.hints == 1;
                until("one of them is recorded by itself", is_recorded).await;
                shop.reply();
            };
            let callbacks = [shop.call_back(charge), shop.call_back(charge)];
            let (heard, ()) = join(join_all(callbacks), replying).await;
            heard
        })
        .await;
    assert!(heard.iter().all(Result::is_ok), "{heard:?}");
    assert_eq!(shop.recorded(&charge).await, 2);
    shop.world.end().await;
}

/// The rail may have lost its reply.
#[tokio::test]
async fn a_callback_does_not_wait_for_a_reply_that_does_not_come() {
    let shop = Shop::open().await;
    let (charge, heard) = shop
        .charge(async |charge| {
            shop.call_back(charge).await.unwrap();
            let heard = shop.now(charge).await;
            shop.reply();
            heard
        })
        .await;
    assert_eq!(heard.progress.state, State::Submitting);
    assert_eq!(heard.timer.hints, 1);
    assert_eq!(shop.recorded(&charge).await, 1);
    shop.world.end().await;
}
