//! Accepting events in sets, and starting their first attempts at once.
//!
//! An event, its delivery and, if there is a place for it, its first attempt are written in one
//! transaction. After the commit that attempt starts from memory; if the process dies first, its
//! lease finds it like any other. There is a place if this process has one, the endpoint has one over
//! all processes, and nothing older waits for either.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use chassis::{
    clock::{Term, Timestamp},
    ids::{DeliveryId, EndpointId, EventId, MerchantId},
};
use db::{Db, Grouped, Insert, Result, Tx, is_unique_violation};
use uuid::Uuid;

use crate::{
    attempts::AttemptRunner,
    delivery::{AttemptRun, NewDelivery, Status},
    endpoint::Endpoint,
    event::AcceptedEvent,
    queues::Place,
    store::publish::{self, EventState},
};

/// An event to accept.
#[derive(Debug)]
pub struct Publication {
    event: AcceptedEvent,
    /// Of its delivery, if the merchant's endpoint wants one.
    delivery_id: DeliveryId,
    /// Under which its first attempt runs, if it starts at once.
    claim: Uuid,
    /// From its arrival, so that it ends before any lease that is written for it.
    shortest_term: Term,
    attempts: Arc<AttemptRunner>,
}

impl Publication {
    pub fn new(event: AcceptedEvent, attempts: &Arc<AttemptRunner>) -> Self {
        Self {
            event,
            delivery_id: DeliveryId::new(),
            claim: Uuid::new_v4(),
            shortest_term: attempts.clock.term(attempts.limits.lease),
            attempts: attempts.clone(),
        }
    }

    /// The first attempt, as it is on record.
    fn first_attempt(&self, endpoint_id: EndpointId, now: Timestamp) -> AttemptRun {
        AttemptRun {
            delivery_id: self.delivery_id.clone(),
            endpoint_id,
            merchant_id: self.event.merchant_id,
            event_id: self.event.event_id.clone(),
            event_type: self.event.event_type.code().to_owned(),
            status: Status::Pending,
            failures: 0,
            next_attempt_at: Some(now),
            due_at: now,
            attempts_count: 1,
            manual_running: false,
            claim: self.claim,
            body: self.event.body.clone(),
            traceparent: self.event.traceparent.clone(),
        }
    }
}

impl Grouped for Publication {
    /// A known event is left as it is.
    type Outcome = Insert;

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Insert>> {
        match write(db, set).await {
            // Another process is just accepting one of them, and by now it is known.
            Err(error) if is_unique_violation(&error) => write(db, set).await,
            written => written,
        }
    }
}

/// A first attempt that starts once it is committed.
struct Start<'a> {
    publication: &'a Publication,
    endpoint: Arc<Endpoint>,
    place: Place,
    term: Term,
}

/// What a set of publications becomes.
#[derive(Default)]
struct Plan<'a> {
    /// New events, in the order of their ids, in which every process inserts them.
    events: BTreeMap<&'a EventId, &'a AcceptedEvent>,
    deliveries: Vec<NewDelivery>,
    starting: Vec<Start<'a>>,
    /// Merchants of deliveries that wait.
    waiting: HashSet<MerchantId>,
}

async fn write(db: &Db, set: &[Publication]) -> Result<Vec<Insert>> {
    let Some(attempts) = set.first().map(|first| &first.attempts) else {
        return Ok(Vec::new());
    };
    let mut tx = db.begin().await?;
    let now = attempts.clock.now();
    let plan = Plan::make(&mut tx, attempts, set, now).await?;
    let events: Vec<&AcceptedEvent> = plan.events.values().copied().collect();
    if !events.is_empty() {
        publish::insert_events(&mut tx, &events, &plan.deliveries, now).await?;
    }
    tx.commit().await?;
    let mut outcomes = Vec::with_capacity(set.len());
    let ours = plan.starting.iter();
    let ours = ours.map(|start| &start.publication.event.event_id);
    let mut new: HashSet<&EventId> = plan.events.keys().copied().chain(ours).collect();
    for publication in set {
        outcomes.push(match new.remove(&publication.event.event_id) {
            true => Insert::Inserted,
            false => Insert::AlreadyThere,
        });
    }
    for start in plan.starting {
        let Start {
            publication,
            endpoint,
            place,
            term,
        } = start;
        let attempt = publication.first_attempt(endpoint.endpoint_id, now);
        attempts.start(attempt, endpoint, term, place);
    }
    for merchant_id in plan.waiting {
        attempts.queues.tell(merchant_id);
    }
    Ok(outcomes)
}

impl<'a> Plan<'a> {
    async fn make(
        tx: &mut Tx,
        attempts: &AttemptRunner,
        set: &'a [Publication],
        now: Timestamp,
    ) -> Result<Self> {
        let merchants = set.iter().map(|publication| publication.event.merchant_id);
        let merchants: HashSet<MerchantId> = merchants.collect();
        let merchants: Vec<_> = merchants
            .into_iter()
            .map(|merchant_id| (merchant_id, attempts.queues.may_start(merchant_id)))
            .collect();
        let mut endpoints = HashMap::new();
        for found in publish::find_endpoints(tx, &merchants).await? {
            let locked = found.is_locked.then_some(found.endpoint.endpoint_id);
            endpoints.insert(
                found.endpoint.merchant_id,
                (Arc::new(found.endpoint), locked),
            );
        }
        // Each event once, and each locked endpoint once.
        let mut seen = HashSet::new();
        let mut locked: HashMap<MerchantId, EndpointId> = endpoints
            .iter()
            .filter_map(|(merchant_id, (_, locked))| Some((*merchant_id, (*locked)?)))
            .collect();
        let asked: Vec<_> = set
            .iter()
            .map(|publication| &publication.event)
            .filter(|event| seen.insert(&event.event_id))
            .map(|event| (event, locked.remove(&event.merchant_id)))
            .collect();
        let states = publish::look_at_events(tx, &asked, now).await?;
        let states: HashMap<&EventId, &EventState> = states
            .iter()
            .map(|state| (&state.event_id, state))
            .collect();
        let term = attempts.clock.term(attempts.limits.lease);
        let most = attempts.limits.running_per_endpoint_max;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut room: HashMap<EndpointId, i64> = HashMap::new();
        for (event, endpoint_id) in &asked {
            let state = states.get(&event.event_id);
            if let Some((endpoint_id, state)) = endpoint_id.zip(state) {
                let free = if state.has_waiting {
                    0
                } else {
                    most - state.running
                };
                room.insert(endpoint_id, free);
            }
        }
        let mut plan = Self::default();
        for publication in set {
            let event = &publication.event;
            let endpoint = endpoints
                .get(&event.merchant_id)
                .map(|(endpoint, _)| endpoint);
            let endpoint = endpoint.filter(|found| found.events.includes(event.event_type));
            let known = states.get(&event.event_id).filter(|state| state.is_known);
            match (known, endpoint) {
                (Some(known), Some(endpoint)) if known.claim == Some(publication.claim) => {
                    plan.find_again(publication, endpoint, attempts);
                }
                (Some(_), _) => {}
                (None, endpoint) => {
                    let is_first = plan.events.insert(&event.event_id, event).is_none();
                    if let Some(endpoint) = endpoint.filter(|_| is_first) {
                        let room = room.entry(endpoint.endpoint_id).or_default();
                        plan.deliver(publication, endpoint, (attempts, term), room);
                    }
                }
            }
        }
        Ok(plan)
    }

    /// A delivery of a new event, which starts if there is room.
    fn deliver(
        &mut self,
        publication: &'a Publication,
        endpoint: &Arc<Endpoint>,
        (attempts, term): (&AttemptRunner, Term),
        room: &mut i64,
    ) {
        let event = &publication.event;
        let place = (*room > 0).then(|| attempts.queues.place(event.merchant_id));
        let place = place.flatten();
        self.deliveries.push(NewDelivery {
            delivery_id: publication.delivery_id.clone(),
            event_id: event.event_id.clone(),
            event_type: event.event_type,
            merchant_id: event.merchant_id,
            endpoint_id: endpoint.endpoint_id,
            claim: place.is_some().then_some((publication.claim, term.until)),
        });
        match place {
            Some(place) => {
                *room -= 1;
                self.starting.push(Start {
                    publication,
                    endpoint: endpoint.clone(),
                    place,
                    term,
                });
            }
            None => {
                // The next one does not overtake it.
                *room = 0;
                if endpoint.enabled {
                    self.waiting.insert(event.merchant_id);
                }
            }
        }
    }

    /// The answer to our own commit was lost: the attempt is on record, so it starts.
    fn find_again(
        &mut self,
        publication: &'a Publication,
        endpoint: &Arc<Endpoint>,
        attempts: &AttemptRunner,
    ) {
        let place = attempts.queues.place(publication.event.merchant_id);
        // Without a place it is left to its lease.
        if let Some(place) = place {
            self.starting.push(Start {
                publication,
                endpoint: endpoint.clone(),
                place,
                term: publication.shortest_term,
            });
        }
    }
}
