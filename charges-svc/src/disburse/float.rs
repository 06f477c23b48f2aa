//! What has to be true before a disbursement is sent.
//!
//! Promise: no two count on the same money of a float, whichever replicas send them, and no payout
//! is sent while a change of its merchant's account is held. A rail may take a transfer and find
//! only later that the float does not cover it, so whoever sends must know what else is on its way.

use std::sync::Arc;

use chassis::{clock::Timestamp, money::Money};
use db::{Tx, Update};
use rails::{FloatOutcome, Rail};

use super::write::Change;
use crate::{
    case::CaseKind,
    disbursement::{Disbursement, Event, Kind, next_query},
    error::Result,
    service::Service,
    store,
};

/// How far a sending has come.
pub(super) enum Begun {
    /// It is recorded as sent, and is this process's to send.
    Sending(Box<Disbursement>),
    /// Another was sent since this one looked at the float. Nothing is written.
    Overtaken,
    /// It waits, or is somebody else's.
    NotSent,
}

impl Service {
    /// Records a PENDING disbursement as sent, unless the float cannot cover it or a change of the
    /// payout account holds it.
    pub(super) async fn begin_sending(
        self: &Arc<Self>,
        rail: &Rail,
        held: &Disbursement,
    ) -> Result<Begun> {
        let mut conn = self.db.read().await?;
        // What was sent up to then is on its way, or has left the float that the rail tells.
        let last_turn = store::float_turns::last(&mut conn, rail.name).await?;
        let (id, currency) = (held.disbursement_id, held.amount().currency());
        let leaving = match rail.name.terms().float_is_net {
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
            return self.write(change).await.map(|_| Begun::NotSent);
        }
        let mut tx = self.db.begin().await?;
        let hold = hold(&mut tx, held, now).await?;
        let after = match hold {
            Some(until) => {
                let mut waiting = self.released(held.clone(), now, true);
                waiting.next_due_at = Some(until);
                waiting
            }
            None if store::float_turns::take(&mut tx, rail.name, last_turn).await?
                == Update::NotThere =>
            {
                return Ok(Begun::Overtaken);
            }
            None => {
                let mut sent = held.after(Event::Sending, now)?;
                let schedule = &self.settings.reconcile_schedule;
                sent.next_due_at = next_query(&sent, schedule, true, now);
                sent
            }
        };
        match store::disbursements::update(&mut tx, held, &after).await? {
            Update::Updated => {}
            Update::NotThere => return Ok(Begun::NotSent),
        }
        tx.commit().await?;
        if let Some(due) = after.next_due_at {
            self.disburse_alarms.ring_at(&after.rail, due);
        }
        Ok(match hold {
            Some(_) => Begun::NotSent,
            None => Begun::Sending(Box::new(after)),
        })
    }
}

/// Until when a payout waits because its merchant's account was changed after it was recorded.
async fn hold(tx: &mut Tx, held: &Disbursement, now: Timestamp) -> Result<Option<Timestamp>> {
    match held.kind {
        Kind::Payout => Ok(store::payout_accounts::find_hold(tx, held.merchant_id, now).await?),
        Kind::Refund => Ok(None),
    }
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
