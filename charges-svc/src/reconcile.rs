//! The reconciler: queries rails about charges when they are due, and acts on the answers. It ends
//! every charge that neither the rail's own reply nor an operator has ended.
//!
//! Each rail has its own reconciler, with its own places and budget, so that a rail that hangs does
//! not hold up the others.
//!
//! Promise: an unknown outcome stays unknown until the rail tells it. Any number of reconcilers
//! may run. One at a time holds a charge, and a slow one's answer is acted on only if the charge
//! is still as it was when it was claimed.

use std::sync::Arc;

use anyhow::Context as _;
use chassis::{clock::Timestamp, error_chain::chain, money::Money, telemetry};
use db::{
    KnownRows,
    work::{Claimed, TaskSet, Work},
};
use futures::{FutureExt as _, future::BoxFuture};
use rails::{CallOutcome as _, Query, QueryOutcome, Rail, RailAnswer, RailName};
use tracing::Instrument as _;

use crate::{
    case::CaseKind,
    charge::{Charge, Claim, Event},
    error::Result,
    hint,
    ledger::{self, Posting},
    resend::Resend,
    schedule::Timing,
    service::Service,
    store::{
        self,
        charges::Held,
        evidence::{Action, Statement},
        steps::{HintEnd, Step},
    },
    turns::RailTurns,
    verdict::{self, Verdict},
};

/// Most concurrent queries of one rail, beside those for callbacks that have just come. A rail that
/// does not answer holds as many connections.
const RUNNING_MAX: usize = 128;

/// Queries one rail.
pub struct Reconciler {
    service: Arc<Service>,
    rail: RailName,
    turns: Arc<RailTurns>,
}

impl Reconciler {
    pub fn new(rail: &Rail, service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            rail: rail.name,
            turns: Arc::clone(service.turns.at(rail.name)),
        }
    }

    async fn find_next_due(&self) -> Result<Option<Timestamp>> {
        let service = &self.service;
        let mut conn = service.db.read().await?;
        let real_now = service.clock.real_now();
        let due = store::charges::next_due(&mut conn, self.rail, real_now).await?;
        if due.is_none_or(|due| due > service.clock.now()) {
            // Perhaps somebody else has asked about what waited here.
            self.turns.looked(0, 0, false);
        }
        Ok(due)
    }

    async fn claim_due(&mut self, tasks: &mut TaskSet) -> Result<Claimed> {
        let now = self.service.clock.now();
        let room = self.turns.take_many(tasks.room() as u64);
        if room == 0 {
            return Ok(Claimed::Part(self.turns.next_at()));
        }
        let claimed = self.claim_up_to(room).await.inspect_err(|_| {
            self.turns.give_back(room);
        })?;
        let found = claimed.rows.len() + claimed.unknown;
        // What only a newer version knows stays claimed, so that the others get their turn.
        let is_all = (found as u64) < room;
        let used = claimed.rows.len() as u64;
        self.turns.looked(room, used, !is_all);
        if found == 0 {
            return Ok(Claimed::Nothing);
        }
        for charge in claimed.rows {
            tasks.start(asking(&self.service, self.rail, charge));
        }
        Ok(if is_all {
            Claimed::All
        } else {
            Claimed::Part(now)
        })
    }

    async fn claim_up_to(&self, room: u64) -> Result<KnownRows<Charge>> {
        let service = &self.service;
        let mut conn = service.db.write().await?;
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let (clock, lease) = (&service.clock, service.settings.lease);
        Ok(store::charges::claim_due(&mut conn, clock, self.rail, limit, lease).await?)
    }
}

impl Work for Reconciler {
    fn running_max(&self) -> usize {
        RUNNING_MAX
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let due = self.find_next_due().await;
        due.context("nobody knows when a charge is next due")
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let claimed = self.claim_due(tasks).await;
        claimed.context("the charges to ask about cannot be read")
    }
}

/// Queries one charge that this process holds, in the name and trace of the request that created
/// it.
pub fn asking(service: &Arc<Service>, rail: RailName, charge: Charge) -> BoxFuture<'static, ()> {
    let service = Arc::clone(service);
    let span = tracing::info_span!(
        parent: None,
        "reconcile",
        transaction.id = %charge.facts.transaction_id,
        state = charge.progress.state.code(),
        request.id = charge.facts.asked_by.request_id.as_deref(),
    );
    telemetry::set_parent(&span, charge.facts.traceparent.as_deref());
    let asking = async move {
        if let Err(error) = service.ask(rail, &charge).await {
            tracing::error!(error = %chain(error.as_ref()), "the charge waits for its lease");
        }
    };
    asking.instrument(span).boxed()
}

impl Service {
    /// Queries the rail about a charge that this process holds, and acts on the answer.
    async fn ask(self: &Arc<Self>, rail: RailName, claimed: &Charge) -> anyhow::Result<()> {
        let rail = self.rails.get(rail);
        let is_taken_again = self.is_taken_again(claimed).await?;
        let asked_at = self.clock.now();
        let asks_for_codes = rail.name.terms().asks_for_codes;
        let query = Query {
            rail_reference: claimed.facts.rail_reference,
            may_want_code: claimed.timer.otp_expires_at.is_some()
                || asks_for_codes.contains(&claimed.facts.provider),
        };
        let answer = rail.query(&query).await;
        let concluded = self.conclude(claimed, asked_at, &answer, is_taken_again);
        let resending = concluded
            .await
            .context("the rail's answer is not written")?;
        if let Some(resending) = resending {
            // Boxed: few queries send again, and the others keep no room for it.
            let sent = Box::pin(self.resend(rail, &resending)).await;
            sent.context("the rail's reply to the second request is not written")?;
        }
        Ok(())
    }

    /// Writes what follows from the answer. Returns what to send if the payment request now goes
    /// out a second time, which `is_taken_again` permits.
    async fn conclude(
        self: &Arc<Self>,
        claimed: &Charge,
        asked_at: Timestamp,
        answer: &RailAnswer<QueryOutcome>,
        is_taken_again: bool,
    ) -> Result<Option<Resend>> {
        let _place = self.admission.enter_step();
        let id = claimed.facts.transaction_id;
        let query = AnsweredQuery {
            claimed: claimed.clone(),
            asked_at,
            answer: answer.clone(),
            is_taken_again,
        };
        let (service, heard) = (Arc::clone(self), query.clone());
        let decide = move |held: &Held| {
            let (step, more) = service.decide_conclusion(held, &heard).ok()?;
            (more == More::Nothing && !Self::is_more_to_write(&step)).then_some(step)
        };
        if let Some(step) = self.steps.write(id, decide).await? {
            self.announce(step);
            return Ok(None);
        }
        let mut tx = self.db.begin().await?;
        let held = self.hold(&mut tx, id).await?;
        let (step, more) = self.decide_conclusion(&held, &query)?;
        self.write_step(&mut tx, &step).await?;
        let resending = match more {
            More::Nothing => None,
            More::Case(kind, detail, suspense) => {
                let about = (kind, detail);
                self.open_case(&mut tx, &step.after, about, suspense, step.at)
                    .await?;
                if suspense.is_some()
                    && let Some(fee) = self.fee(&held.charge, &query.answer.outcome)?
                {
                    let _once = store::postings::post(&mut tx, &fee, step.at).await?;
                }
                None
            }
            More::Resend => {
                let fence = claimed.claim.fence;
                self.begin_resend(&mut tx, &step.after, fence).await?
            }
        };
        tx.commit().await?;
        self.announce(step);
        Ok(resending)
    }

    /// What follows from the rail's answer to a query.
    fn decide_conclusion(&self, held: &Held, query: &AnsweredQuery) -> Result<(Step, More)> {
        let AnsweredQuery {
            claimed,
            asked_at,
            answer,
            is_taken_again,
        } = query;
        let (asked_at, now) = (*asked_at, self.clock.now());
        let mut charge = held.charge.clone();
        let is_as_claimed = charge.progress.version == claimed.progress.version
            && charge.progress.mismatched == claimed.progress.mismatched;
        let found = verdict::heard(&charge, &answer.outcome, asked_at);
        let is_end = matches!(
            found,
            QueryOutcome::Succeeded { .. } | QueryOutcome::Failed(_) | QueryOutcome::Reversed
        );
        let hint = match held.hinted_at {
            // This outcome is not acted on, so it must be found again.
            Some(_) if is_end && !is_as_claimed => HintEnd::At(now),
            // Only what came before the query is settled by its answer.
            Some(hinted_at) if charge.timer.hints == claimed.timer.hints => {
                hint_end(found, hinted_at, now)
            }
            Some(_) | None => HintEnd::NotYet,
        };
        charge.progress.seen_at_rail |= verdict::shows_reference(found);
        let timing = self.timing_of(&charge.facts);
        let judge = || verdict::judge(&charge, found, asked_at, timing);
        let verdict = is_as_claimed.then(judge);
        // The fence of our claim: whoever has taken the charge over since keeps it.
        let is_ours = charge.claim.fence == claimed.claim.fence;
        let mut more = More::Nothing;
        let mut step = match verdict {
            Some(Verdict::Change(event)) => {
                let mut step = self.step(&charge, event, now)?;
                if event == Event::Settled {
                    step.postings.extend(self.fee(&charge, found)?);
                }
                step
            }
            Some(Verdict::Resend)
                if *is_taken_again && is_ours && charge.may_be_resent(now, timing) =>
            {
                more = More::Resend;
                Step::new(&held.charge, charge, now)
            }
            None => Step::new(&held.charge, released(charge, is_ours), now),
            Some(verdict) => {
                if let Verdict::Open {
                    kind,
                    detail,
                    suspense,
                } = verdict
                {
                    more = More::Case(kind, detail, suspense);
                }
                if is_ours {
                    charge.timer.next_query_at = next_query(&charge, found, asked_at, timing);
                }
                Step::new(&held.charge, released(charge, is_ours), now)
            }
        };
        step.end_hint(hint, held.hinted_at);
        step.evidence = Some(Statement {
            action: Action::Query,
            outcome: answer.outcome.label(),
            rail_text: answer.rail_text.clone(),
            at: now,
        });
        Ok((step, more))
    }

    /// The posting of the fee that the rail says it kept, if any.
    fn fee(&self, charge: &Charge, found: &QueryOutcome) -> Result<Option<Posting>> {
        match found {
            QueryOutcome::Succeeded { fee: Some(fee), .. } if fee.is_positive() => {
                let account = &self.settings.fee_account;
                Ok(Some(ledger::rail_fee(&charge.facts, *fee, account)?))
            }
            _ => Ok(None),
        }
    }
}

/// A query of a charge that this process holds, with its answer.
#[derive(Clone, Debug)]
struct AnsweredQuery {
    claimed: Charge,
    asked_at: Timestamp,
    answer: RailAnswer<QueryOutcome>,
    is_taken_again: bool,
}

/// What follows from an answer besides the step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum More {
    Nothing,
    /// An operator's case, and the money that has arrived with it.
    Case(CaseKind, String, Option<Money>),
    /// The payment request goes out a second time.
    Resend,
}

/// An answer settles every callback that came before the query. Without an answer, the rail is
/// queried again for them.
fn hint_end(found: &QueryOutcome, hinted_at: Timestamp, now: Timestamp) -> HintEnd {
    if *found != QueryOutcome::Unknown {
        HintEnd::Answered
    } else {
        HintEnd::At(hint::ask_again(hinted_at, now))
    }
}

/// When to ask again. An answer says how things stood when it was asked for, however late it
/// arrives.
fn next_query(
    charge: &Charge,
    found: &QueryOutcome,
    asked_at: Timestamp,
    timing: Timing<'_>,
) -> Option<Timestamp> {
    match found {
        QueryOutcome::Unknown => charge.query_after_silence(asked_at, timing),
        _ => charge.query_after(asked_at, timing),
    }
}

/// The charge without our claim.
fn released(charge: Charge, is_ours: bool) -> Charge {
    let claim = match is_ours {
        true => Claim::default(),
        false => charge.claim,
    };
    Charge { claim, ..charge }
}
