//! The reconciler: queries rails about charges when they are due, and acts on the answers. It ends
//! every charge that neither the rail's own reply nor an operator has ended.
//!
//! Each rail has its own reconciler, with its own slots and budget, so that a rail that hangs does
//! not hold up the others.
//!
//! Promise: an unknown outcome stays unknown until the rail tells it. Any number of reconcilers
//! may run. One at a time holds a charge, and a slow one's answer is acted on only if the charge
//! is still as it was when it was claimed.

use std::{future::Future, sync::Arc};

use anyhow::Context as _;
use chassis::{clock::Timestamp, error_chain::chain, ids::CaseId, money::Money, telemetry};
use db::{
    Tx,
    work::{Claimed, TaskSet, Work},
};
use rails::{CallOutcome as _, Query, QueryOutcome, Rail, RailAnswer, RailName};
use tracing::Instrument as _;

use crate::{
    budget::TokenBucket,
    callback,
    case::{Case, CaseKind},
    charge::{Charge, Event},
    error::Result,
    ledger,
    resend::Resend,
    service::{Change, Service},
    store::{self, evidence::Action},
    verdict::{self, Verdict},
};

/// Most concurrent queries of one rail.
const RUNNING_MAX: usize = 32;

/// Queries one rail.
pub struct Reconciler {
    service: Arc<Service>,
    rail: RailName,
    budget: TokenBucket,
}

impl Reconciler {
    pub fn new(rail: &Rail, service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            rail: rail.name,
            budget: TokenBucket::new(rail.queries_per_second, service.clock.now()),
        }
    }

    async fn find_next_due(&self) -> Result<Option<Timestamp>> {
        let service = &self.service;
        let mut conn = service.db.read().await?;
        let real_now = service.clock.real_now();
        Ok(store::charges::next_due(&mut conn, self.rail, real_now).await?)
    }

    async fn claim_due(&mut self, tasks: &mut TaskSet) -> Result<Claimed> {
        let service = &self.service;
        let now = service.clock.now();
        let room = self.budget.available(now).min(tasks.room() as u64);
        if room == 0 {
            return Ok(Claimed::Part(self.budget.next_at()));
        }
        let mut tx = service.db.begin().await?;
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let (clock, lease) = (&service.clock, service.settings.lease);
        let claimed = store::charges::claim_due(&mut tx, clock, self.rail, limit, lease).await?;
        tx.commit().await?;
        // What only a newer version knows stays claimed, so that the others get their turn.
        let is_all = ((claimed.rows.len() + claimed.unknown) as u64) < room;
        self.budget.spend(claimed.rows.len() as u64);
        for charge in claimed.rows {
            tasks.start(asking(service, self.rail, charge));
        }
        Ok(if is_all {
            Claimed::All
        } else {
            Claimed::Part(now)
        })
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

/// Queries one charge, in the trace of the request that created it.
fn asking(
    service: &Arc<Service>,
    rail: RailName,
    charge: Charge,
) -> impl Future<Output = ()> + use<> {
    let service = Arc::clone(service);
    let span = tracing::info_span!(
        "reconcile",
        transaction.id = %charge.facts.transaction_id,
        state = charge.progress.state.code(),
    );
    telemetry::set_parent(&span, charge.facts.traceparent.as_deref());
    let asking = async move {
        if let Err(error) = service.ask(rail, &charge).await {
            tracing::error!(error = %chain(error.as_ref()), "the charge waits for its lease");
        }
        // It may be due again.
        service.reconcile_alarms.ring(rail.code());
    };
    asking.instrument(span)
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
            let sent = self.resend(rail, &resending).await;
            sent.context("the rail's reply to the second request is not written")?;
        }
        Ok(())
    }

    /// Writes what follows from the answer. Each charge has a transaction of its own: it is locked
    /// while its state changes, and must not wait for others. Returns what to send if the payment
    /// request now goes out a second time, which `is_taken_again` permits.
    async fn conclude(
        &self,
        claimed: &Charge,
        asked_at: Timestamp,
        answer: &RailAnswer<QueryOutcome>,
        is_taken_again: bool,
    ) -> Result<Option<Resend>> {
        let (id, now) = (claimed.facts.transaction_id, self.clock.now());
        let mut tx = self.db.begin().await?;
        let mut charge = self.lock(&mut tx, id).await?;
        let evidence = (Action::Query, answer.outcome.label());
        store::evidence::keep(&mut tx, id, evidence, answer.rail_text.as_deref(), now).await?;
        let is_as_claimed = charge.progress.version == claimed.progress.version
            && charge.progress.mismatched == claimed.progress.mismatched;
        let found = verdict::heard(&charge, &answer.outcome, asked_at);
        let is_end = matches!(
            found,
            QueryOutcome::Succeeded { .. } | QueryOutcome::Failed(_) | QueryOutcome::Reversed
        );
        if is_end && !is_as_claimed {
            // This outcome is not acted on, so it must be found again.
            store::hints::put_off(&mut tx, id, now).await?;
        } else {
            self.note_hint(&mut tx, claimed, found).await?;
        }
        if verdict::shows_reference(found) && !charge.progress.seen_at_rail {
            store::charges::mark_seen(&mut tx, id).await?;
            charge.progress.seen_at_rail = true;
        }
        // The fence of our claim: whoever has taken the charge over since keeps it.
        let fence = claimed.claim.fence;
        if !is_as_claimed {
            store::charges::release(&mut tx, id, fence).await?;
            tx.commit().await?;
            return Ok(None);
        }
        let timing = self.timing_of(&charge.facts);
        let verdict = verdict::judge(&charge, found, asked_at, timing);
        if verdict == Verdict::Resend
            && is_taken_again
            && let Some(resending) = self.begin_resend(&mut tx, &charge, fence).await?
        {
            tx.commit().await?;
            return Ok(Some(resending));
        }
        let change = self.act(&mut tx, &charge, found, verdict).await?;
        if change.is_none() {
            // An answer says how things stood when it was asked for, however late it arrives.
            let mut timer = charge.timer;
            timer.next_query_at = match found {
                QueryOutcome::Unknown => charge.query_after_silence(asked_at, timing),
                _ => charge.query_after(asked_at, timing),
            };
            let _ours = store::charges::release_until(&mut tx, id, fence, &timer).await?;
        }
        tx.commit().await?;
        if let Some(change) = change {
            self.announce(change);
        }
        Ok(None)
    }

    /// An answer settles every callback that came before the query. Without an answer, the rail is
    /// queried again for them.
    async fn note_hint(&self, tx: &mut Tx, claimed: &Charge, found: &QueryOutcome) -> Result<()> {
        let (id, seen, now) = (
            claimed.facts.transaction_id,
            claimed.timer.hints,
            self.clock.now(),
        );
        if *found != QueryOutcome::Unknown {
            store::hints::end(tx, id, seen).await?;
        } else if let Some(hinted_at) = store::hints::waiting_since(tx, id, seen).await? {
            store::hints::put_off(tx, id, callback::ask_again(hinted_at, now)).await?;
        }
        Ok(())
    }

    /// Does what the verdict says. Returns the change to the charge, if there is one.
    async fn act(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        found: &QueryOutcome,
        verdict: Verdict,
    ) -> Result<Option<Change>> {
        let now = self.clock.now();
        match verdict {
            Verdict::Change(event) => {
                let change = self.change(tx, charge, event).await?;
                if event == Event::Settled {
                    self.post_fee(tx, charge, found, now).await?;
                }
                return Ok(Some(change));
            }
            Verdict::Open {
                kind,
                detail,
                suspense,
            } => {
                self.open_case(tx, charge, (kind, detail), suspense, now)
                    .await?;
                if suspense.is_some() {
                    self.post_fee(tx, charge, found, now).await?;
                }
            }
            Verdict::AskAgain | Verdict::Resend => {}
        }
        Ok(None)
    }

    /// Posts the fee that the rail says it kept, if any, once per charge.
    async fn post_fee(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        found: &QueryOutcome,
        now: Timestamp,
    ) -> Result<()> {
        let QueryOutcome::Succeeded { fee: Some(fee), .. } = found else {
            return Ok(());
        };
        if fee.is_positive() {
            let posting = ledger::rail_fee(&charge.facts, *fee, &self.settings.fee_account)?;
            let _once = store::postings::post(tx, &posting, now).await?;
        }
        Ok(())
    }

    /// Opens an operator's case, once of its kind, and posts its money: now, or later when the
    /// rail says how much it is.
    pub async fn open_case(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        (kind, detail): (CaseKind, String),
        suspense: Option<Money>,
        now: Timestamp,
    ) -> Result<()> {
        let about = (charge.facts.transaction_id, &charge.facts.reference);
        let case = Case::new(about, kind, detail, suspense, now);
        let Some(case_id) = store::cases::open(tx, &case).await? else {
            return Ok(());
        };
        if let Some(amount) = suspense {
            if kind == CaseKind::Mismatch {
                store::charges::mark_mismatched(tx, charge.facts.transaction_id).await?;
            }
            let posting = ledger::suspense(&charge.facts, amount)?;
            let _once = store::postings::post(tx, &posting, now).await?;
        }
        warn(case_id, charge, kind);
        Ok(())
    }
}

/// Logs and counts a case, so that somebody looks into it.
fn warn(case_id: CaseId, charge: &Charge, kind: CaseKind) {
    tracing::error!(
        case.id = %case_id,
        charge.reference = %charge.facts.reference,
        kind = kind.code(),
        "an operator's case is opened"
    );
    count_case(kind, 1);
}

/// Counts this many opened cases of this kind.
pub fn count_case(kind: CaseKind, opened: u64) {
    metrics::counter!("cases_opened_total", "kind" => kind.code()).increment(opened);
}
