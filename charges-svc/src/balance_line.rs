//! The lines of the ledger that a merchant's balance is the sum of, newest first, each with what was
//! there after it. What is in suspense is the sum of what came and is not decided: the account is
//! everybody's, so what has left it again is not among these lines.
//!
//! Promise: balances agree with what is available, reserved or in suspense at the moment of the page:
//! they are counted back from it and over no line that is not there. Where that would take too long,
//! because too many lines are newer, there are none; the statements of days have them all.

use crate::{
    error::Result,
    ledger::Account,
    line_id::LineId,
    service::Service,
    store::balance_lines::{self, PostedLine},
};
use chassis::{
    clock::Timestamp,
    ids::MerchantId,
    money::{Currency, Money, MoneyError},
    page::{PageRequest, Place},
};

/// Which part of what a merchant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Available,
    Reserved,
    Suspense,
}

/// What a posting did to what a merchant has.
#[derive(Clone, Debug)]
pub struct BalanceLine {
    pub at: Timestamp,
    /// The code of its kind.
    pub posting: String,
    /// Negative if it was taken away.
    pub amount: Money,
    /// What was there after it, if that was counted.
    pub balance: Option<Money>,
    /// The payment, payout or refund that it belongs to.
    pub reference: Option<String>,
    /// The code of the kind of case that decides about what is in suspense.
    pub held_for: Option<String>,
    /// The refund that is on its way to the payer with what is in suspense.
    pub refund_id: Option<String>,
}

/// A page of them, and the place after which there are more.
pub type BalanceLines = (Vec<BalanceLine>, Option<Place<LineId>>);

impl Service {
    pub async fn list_balance_lines(
        &self,
        merchant_id: MerchantId,
        (part, currency): (Part, Currency),
        asked: PageRequest<LineId>,
    ) -> Result<BalanceLines> {
        let mut conn = self.db.read().await?;
        let mut lines = match part {
            Part::Available => {
                let account = Account::Merchant(merchant_id);
                balance_lines::list(&mut conn, (&account, currency), &asked).await?
            }
            Part::Reserved => {
                let account = Account::Reserved(merchant_id);
                balance_lines::list(&mut conn, (&account, currency), &asked).await?
            }
            Part::Suspense => {
                balance_lines::list_held(&mut conn, (merchant_id, currency), &asked).await?
            }
        };
        drop(conn);
        let size = usize::try_from(asked.size).unwrap_or(usize::MAX);
        let has_more = lines.len() > size;
        lines.truncate(size);
        let last = lines.last().filter(|_| has_more);
        let next = last.map(PostedLine::place);
        Ok((counted_back(lines)?, next))
    }
}

/// Gives each line the balance after it, from that after the first on.
fn counted_back(lines: Vec<PostedLine>) -> Result<Vec<BalanceLine>, MoneyError> {
    let mut balance = lines.first().and_then(|line| line.balance_of_first());
    let mut counted = Vec::with_capacity(lines.len());
    for line in lines {
        let amount = line.amount();
        counted.push(BalanceLine {
            at: line.posted_at,
            posting: line.id.kind,
            amount,
            balance,
            reference: line.reference,
            held_for: line.held_for,
            refund_id: line.refund_id,
        });
        balance = balance.map(|after| before(after, amount)).transpose()?;
    }
    Ok(counted)
}

fn before(after: Money, amount: Money) -> Result<Money, MoneyError> {
    let minor = after.minor_units().checked_sub(amount.minor_units());
    let minor = minor.ok_or(MoneyError::OutOfRange)?;
    Ok(Money::new(minor, after.currency()))
}
