//! Movements of money: how a line names them, and how they ended.

use chassis::money::Money;
use proto::charges::{Charge, ChargeStatus, Destination, DisbursementStatus, Payout, Refund};

use super::{
    Doors,
    line::{Line, Tone, took},
};

/// How a movement of money ended.
struct End<'a> {
    status: &'static str,
    is_good: bool,
    failure_reason: Option<&'a str>,
    created_at: &'a str,
    ended_at: &'a str,
}

impl End<'_> {
    fn line(&self, doors: &Doors, movement: String) -> Line {
        let (created_at, ended_at) = (doors.time(self.created_at), doors.time(self.ended_at));
        let reason = self.failure_reason.map(|reason| format!(" {reason}"));
        let reason = reason.unwrap_or_default();
        let took = took(ended_at.since(created_at));
        let tone = match self.is_good {
            true => Tone::Good,
            false => Tone::Bad,
        };
        Line::new(ended_at)
            .with(Tone::Plain, movement)
            .with(tone, format!("{}{reason} after {took}", self.status))
    }
}

/// A payment, as a line names it.
pub fn payment(charge: &Charge, payer_masked: &str) -> String {
    let provider = charge.provider().code().unwrap_or_default();
    let amount = amount(charge.amount.as_ref());
    format!(
        "{} {amount} {provider} {payer_masked}",
        charge.tx_id_display
    )
}

pub fn end_of_payment(doors: &Doors, charge: &Charge, payer_masked: &str) -> Line {
    let status = charge.status();
    let end = End {
        status: status.code().unwrap_or_default(),
        is_good: status == ChargeStatus::Settled,
        failure_reason: charge.failure_reason.as_deref(),
        created_at: &charge.created_at,
        ended_at: &charge.updated_at,
    };
    end.line(doors, payment(charge, payer_masked))
}

pub fn end_of_payout(doors: &Doors, payout: &Payout) -> Line {
    let status = payout.status();
    let end = End {
        status: status.code().unwrap_or_default(),
        is_good: status == DisbursementStatus::Completed,
        failure_reason: payout.failure_reason.as_deref(),
        created_at: &payout.created_at,
        ended_at: &payout.updated_at,
    };
    let (amount, to) = (
        amount(payout.amount.as_ref()),
        payee(payout.destination.as_ref()),
    );
    end.line(doors, format!("{} {amount} to {to}", payout.payout_id))
}

pub fn end_of_refund(doors: &Doors, refund: &Refund) -> Line {
    let status = refund.status();
    let end = End {
        status: status.code().unwrap_or_default(),
        is_good: status == DisbursementStatus::Completed,
        failure_reason: refund.failure_reason.as_deref(),
        created_at: &refund.created_at,
        ended_at: &refund.updated_at,
    };
    let (amount, to) = (
        amount(refund.amount.as_ref()),
        payee(refund.destination.as_ref()),
    );
    let (id, display) = (&refund.refund_id, &refund.tx_id_display);
    end.line(doors, format!("{id} {amount} of {display} to {to}"))
}

fn payee(destination: Option<&Destination>) -> String {
    let payee = destination.map(|to| format!("{} {}", to.provider, to.account_masked));
    payee.unwrap_or_default()
}

pub fn amount(money: Option<&proto::money::Money>) -> String {
    let money = money.and_then(|money| Money::try_from(money).ok());
    money.map(|money| money.to_string()).unwrap_or_default()
}
