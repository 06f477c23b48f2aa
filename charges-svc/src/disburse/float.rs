//! What has to be true before a disbursement is sent.
//!
//! Promise: no two count on the same money of a float, whichever replicas send them, no payout is sent
//! while a change of its merchant's account is held, and no refund of what the payer is known to
//! have already. A rail may take a transfer and find
//! only later that the float does not cover it, so whoever sends must know what else is on its way.
//! One that refuses at once what the float does not cover needs no such turns.

use std::{sync::Arc, time::Duration};

use chassis::{clock::Timestamp, money::Money};
use db::{Conn, Update};
use rails::{FloatOutcome, Rail};

use super::write::Change;
use crate::{
    case::CaseKind,
    disbursement::{Disbursement, Event, Kind, next_query},
    error::Result,
    service::Service,
    store,
};

/// How soon it is tried again if another replica has just counted on the same float.
const OVERTAKEN_WAIT: Duration = Duration::from_millis(500);

impl Service {
    /// Records a PENDING disbursement as sent. `None` if it has to wait, for the float or because a
    /// change of the payout account holds it, or is somebody else's.
    pub(super) async fn begin_sending(
        self: &Arc<Self>,
        rail: &Rail,
        held: &Disbursement,
    ) -> Result<Option<Disbursement>> {
        let mut conn = self.db.read().await?;
        if let Some(until) = hold(&mut conn, held, self.clock.now()).await? {
            drop(conn);
            return self.wait(held, until).await;
        }
        // What was sent up to then is on its way, or has left the float that the rail tells.
        let last_turn = store::float_turns::last(&mut conn, rail.name).await?;
        let (id, currency) = (held.disbursement_id, held.amount().currency());
        let is_net = rail.name.terms().float_is_net;
        let leaving = match is_net {
            true => Money::new(0, currency),
            false => store::disbursements::on_their_way(&mut conn, rail.name, currency, id).await?,
        };
        drop(conn);
        let lacking = lacking(rail, held.amount(), leaving).await;
        let now = self.clock.now();
        if lacking.is_some() || !self.outlives_a_call(held.claim) {
            // Without a case, whoever takes it next has time to send it.
            let mut change = Change::new(held.clone(), self.released(held.clone(), now, true), now);
            change.case = lacking.map(|lacking| (CaseKind::FloatEmpty, lacking));
            return self.write(change).await.map(|_| None);
        }
        let mut tx = self.db.begin().await?;
        // Again, and in a way that a change of the account waits for.
        if let Some(until) = hold(&mut tx, held, now).await? {
            drop(tx);
            return self.wait(held, until).await;
        }
        if !is_net
            && store::float_turns::take(&mut tx, rail.name, last_turn).await? == Update::NotThere
        {
            drop(tx);
            return self.wait(held, now + OVERTAKEN_WAIT).await;
        }
        let mut sent = held.after(Event::Sending, now)?;
        sent.next_due_at = next_query(&sent, &self.settings.reconcile_schedule, true, now);
        match store::disbursements::update(&mut tx, held, &sent).await? {
            Update::Updated => {}
            Update::NotThere => return Ok(None),
        }
        tx.commit().await?;
        if let Some(due) = sent.next_due_at {
            self.disburse_alarms.ring_at(&sent.rail, due);
        }
        Ok(Some(sent))
    }

    /// Leaves a PENDING disbursement to whoever takes it at that time.
    async fn wait(
        self: &Arc<Self>,
        held: &Disbursement,
        until: Timestamp,
    ) -> Result<Option<Disbursement>> {
        let now = self.clock.now();
        let mut waiting = self.released(held.clone(), now, true);
        waiting.next_due_at = Some(until);
        let change = Change::new(held.clone(), waiting, now);
        self.write(change).await.map(|_| None)
    }
}

/// How long a refund that is barred waits for its operator before anybody looks at it again.
const BARRED_WAIT: Duration = Duration::from_hours(1);

/// Until when a payout waits because its merchant's account was changed after it was recorded, or a
/// refund because it is barred.
pub(super) async fn hold(
    conn: &mut Conn,
    held: &Disbursement,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    if held.kind == Kind::Refund {
        return Ok(is_barred(conn, held).await?.then(|| now + BARRED_WAIT));
    }
    let until = store::payout_accounts::held_until(conn, held.merchant_id).await?;
    Ok(until.filter(|until| *until > now))
}

/// Whether a refund would send back what the payer has already: the rail took the payment back, or
/// paid another refund after it had failed.
pub(super) async fn is_barred(conn: &mut Conn, held: &Disbursement) -> Result<bool> {
    let refunded = &held.refunded;
    let Some(id) = refunded.transaction_id else {
        return Ok(false);
    };
    if store::cases::is_reversed(conn, id).await? {
        return Ok(true);
    }
    if let Some(case_id) = refunded.case_id {
        return Ok(store::disbursements::find_paid_late(conn, case_id)
            .await?
            .is_some());
    }
    let Some(charge) = store::charges::find(conn, id).await? else {
        return Ok(false);
    };
    let collected = charge.facts.amount();
    let refunds = store::disbursements::refunds(conn, id, collected.currency()).await?;
    Ok(refunds.sum.minor_units() > collected.minor_units())
}

/// What the float lacks for an amount, in words, if the rail says how much there is. `leaving` may
/// still leave it.
async fn lacking(rail: &Rail, amount: Money, leaving: Money) -> Option<String> {
    let FloatOutcome::Held(held) = rail.float().await.outcome else {
        return None;
    };
    if held.currency() != amount.currency() {
        return None;
    }
    let free = held.minor_units().saturating_sub(leaving.minor_units());
    (free < amount.minor_units()).then(|| {
        format!(
            "the float holds {}, of which {} is on its way, and {} is to be paid",
            held.to_major(),
            leaving.to_major(),
            amount.to_major(),
        )
    })
}
