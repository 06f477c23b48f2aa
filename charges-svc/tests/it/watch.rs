//! Charges that somebody watches.

use charges_svc::{
    charge::{Charge, Event},
    store::steps::Written,
};
use chassis::{failure::FailureReason, ids::MerchantId, testing::PATIENCE};
use futures::{StreamExt as _, channel::mpsc};
use proto::charges::{
    ChargeStatus, ChargeWatch, ResolveChargeRequest, WatchChargesRequest, WatchChargesResponse,
    WatchedCharge, resolve_charge_request::Outcome,
};
use tokio::time::timeout;
use tonic::Streaming;

use crate::world::{World, change, timing};

const DECLINED: Event = Event::Failed(FailureReason::PayerDeclined);

/// One watcher's stream.
struct Watcher {
    requests: mpsc::UnboundedSender<WatchChargesRequest>,
    answers: Streaming<WatchChargesResponse>,
}

impl Watcher {
    async fn open(world: &World) -> Self {
        let (requests, sent) = mpsc::unbounded();
        let opened = world.streams().await.watch_charges(sent).await;
        Self {
            requests,
            answers: opened.unwrap().into_inner(),
        }
    }

    fn begin(&self, watches: impl IntoIterator<Item = ChargeWatch>) {
        let request = WatchChargesRequest {
            begin: watches.into_iter().collect(),
            end: Vec::new(),
        };
        self.requests.unbounded_send(request).unwrap();
    }

    fn end(&self, watch_id: u64) {
        let request = WatchChargesRequest {
            begin: Vec::new(),
            end: vec![watch_id],
        };
        self.requests.unbounded_send(request).unwrap();
    }

    /// What is told next, or `None` at the end of the stream.
    async fn told(&mut self) -> Option<Vec<WatchedCharge>> {
        let answer = timeout(PATIENCE, self.answers.next()).await.unwrap();
        answer.map(|answer| answer.unwrap().told)
    }

    /// The only watch that is told next, and the status that it is told.
    async fn told_one(&mut self) -> (u64, ChargeStatus) {
        let told = self.told().await.unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        (told[0].watch_id, status(&told[0]))
    }
}

fn status(told: &WatchedCharge) -> ChargeStatus {
    told.charge.as_ref().unwrap().status()
}

/// A watch of a charge as it is.
fn watch(watch_id: u64, charge: &Charge) -> ChargeWatch {
    let status = charge.progress.state.shown().unwrap();
    ChargeWatch {
        watch_id,
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        status: ChargeStatus::from(status).into(),
        version: charge.progress.version,
    }
}

/// Commits a change as another replica would.
async fn change_elsewhere(world: &World, charge: &Charge, event: Event) -> Charge {
    let after = charge.after(event, world.clock.now(), timing()).unwrap();
    let mut tx = world.db.begin().await.unwrap();
    assert_eq!(change(&mut tx, charge, &after).await.unwrap(), Written::All);
    tx.commit().await.unwrap();
    after
}

#[tokio::test]
async fn a_watcher_is_told_what_the_process_itself_commits() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Unanswered]).await;
    let mut watcher = Watcher::open(&world).await;
    watcher.begin([watch(1, &charge)]);
    let request = ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
    };
    world.operations.resolve_charge(request).await.unwrap();
    let told = watcher.told().await.unwrap();
    let shown = told[0].charge.clone().unwrap();
    assert_eq!((told.len(), told[0].watch_id), (1, 1));
    assert_eq!(shown.status(), ChargeStatus::Failed);
    assert_eq!(shown.failure_reason.as_deref(), Some("PAYER_DECLINED"));
    world.end().await;
}

#[tokio::test]
async fn watchers_are_told_what_another_process_commits() {
    let world = World::start().await;
    let charge = world.given_charge(&[]).await;
    let [mut first, mut second] = [Watcher::open(&world).await, Watcher::open(&world).await];
    first.begin([watch(1, &charge), watch(2, &charge)]);
    second.begin([watch(1, &charge)]);
    let wants_code = change_elsewhere(&world, &charge, Event::CodeWanted).await;
    let mut told = first.told().await.unwrap();
    if told.len() == 1 {
        told.extend(first.told().await.unwrap());
    }
    told.sort_by_key(|told| told.watch_id);
    let told: Vec<_> = told
        .iter()
        .map(|told| (told.watch_id, status(told)))
        .collect();
    let otp = ChargeStatus::OtpRequired;
    assert_eq!(told, [(1, otp), (2, otp)], "each of its watches once");
    assert_eq!(second.told_one().await, (1, otp));
    first.begin([watch(3, &wants_code)]);
    change_elsewhere(&world, &wants_code, Event::Accepted).await;
    assert_eq!(first.told_one().await, (3, ChargeStatus::Initiated));
    world.stop().await;
}

#[tokio::test]
async fn what_changed_before_it_was_watched_is_told() {
    let world = World::start().await;
    let known = world.given_charge(&[]).await;
    change_elsewhere(&world, &known, DECLINED).await;
    let mut watcher = Watcher::open(&world).await;
    watcher.begin([watch(1, &known)]);
    assert_eq!(watcher.told_one().await, (1, ChargeStatus::Failed));
    world.stop().await;
}

#[tokio::test]
async fn a_change_that_is_not_shown_is_not_told() {
    let world = World::start().await;
    let charge = world.given_charge(&[]).await;
    let other = world.given_charge(&[]).await;
    let mut watcher = Watcher::open(&world).await;
    watcher.begin([watch(1, &charge)]);
    let accepted = change_elsewhere(&world, &charge, Event::Accepted).await;
    watcher.begin([watch(2, &other)]);
    change_elsewhere(&world, &other, DECLINED).await;
    assert_eq!(watcher.told_one().await, (2, ChargeStatus::Failed));
    change_elsewhere(&world, &accepted, DECLINED).await;
    assert_eq!(watcher.told_one().await, (1, ChargeStatus::Failed));
    world.stop().await;
}

#[tokio::test]
async fn another_merchants_watch_and_one_that_was_ended_are_told_nothing() {
    let world = World::start().await;
    let charge = world.given_charge(&[]).await;
    let mut watcher = Watcher::open(&world).await;
    let anothers = ChargeWatch {
        merchant_id: MerchantId::new().to_string(),
        ..watch(1, &charge)
    };
    let malformed = ChargeWatch {
        reference: "TX-?".to_owned(),
        ..watch(2, &charge)
    };
    watcher.begin([anothers, malformed, watch(3, &charge), watch(4, &charge)]);
    watcher.end(3);
    change_elsewhere(&world, &charge, DECLINED).await;
    assert_eq!(watcher.told_one().await, (4, ChargeStatus::Failed));
    world.stop().await;
    let told = watcher.told().await;
    assert!(told.is_none(), "nothing else: {told:?}");
}

#[tokio::test]
async fn a_process_that_stops_tells_every_charge_as_it_is() {
    let world = World::start().await;
    let (first, second) = (world.given_charge(&[]).await, world.given_charge(&[]).await);
    let mut watcher = Watcher::open(&world).await;
    watcher.begin([watch(1, &first)]);
    // What has been told is proof that it was watching before the process stops.
    change_elsewhere(&world, &first, DECLINED).await;
    watcher.begin([watch(2, &second), watch(3, &second)]);
    assert_eq!(watcher.told_one().await, (1, ChargeStatus::Failed));
    let probe = world.given_charge(&[]).await;
    watcher.begin([watch(4, &probe)]);
    change_elsewhere(&world, &probe, DECLINED).await;
    assert_eq!(watcher.told_one().await, (4, ChargeStatus::Failed));
    world.stop().await;
    let mut told = watcher.told().await.unwrap();
    told.sort_by_key(|told| told.watch_id);
    let told: Vec<_> = told
        .iter()
        .map(|told| (told.watch_id, status(told)))
        .collect();
    let initiated = ChargeStatus::Initiated;
    assert_eq!(told, [(2, initiated), (3, initiated)]);
    assert!(watcher.told().await.is_none(), "and ends the stream");
}
