//! The ledger: double entry, balanced in each currency, unique by (kind, subject), append-only.
//!
//! Promise: the accounts always sum to zero in every currency. Credits are positive, debits
//! negative.

use std::fmt;

use chassis::{
    ids::MerchantId,
    money::{Money, MoneyError},
};
use uuid::Uuid;

use crate::{
    case::{Case, CaseKind, Closing},
    charge::{Charge, Facts, State},
};

/// An account that money is posted to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// What a merchant has collected and has not been paid out.
    Merchant(MerchantId),
    /// What a rail has collected for us and still holds.
    Clearing { rail: String },
    /// Money that has arrived and whose owner an operator must determine.
    Suspense,
    /// What rails keep of what they collect, under the configured name.
    Fees(String),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merchant(merchant_id) => write!(f, "merchant:{merchant_id}"),
            Self::Clearing { rail } => write!(f, "rail:{rail}:clearing"),
            Self::Suspense => f.write_str("suspense"),
            Self::Fees(name) => write!(f, "fees:{name}"),
        }
    }
}

chassis::closed_list! {
    /// Why money moved. A posting is unique by its kind and subject.
    pub enum PostingKind: "a kind of posting" {
        /// A charge settled. The subject is its transaction.
        Settlement = "SETTLEMENT",
        /// The rail kept a fee. The subject is the transaction.
        RailFee = "RAIL_FEE",
        /// A charge's money arrived late or was not what we asked for. Once per transaction.
        Suspense = "SUSPENSE",
        /// Suspense went back to the payer. The subject is the case.
        Refund = "REFUND",
        /// Suspense went to the merchant. The subject is the case.
        Release = "RELEASE",
        /// What a merchant was credited went back to the payer. Once per transaction, which is the
        /// subject. Versions that knew only one reason used its case as the subject.
        Reversal = "REVERSAL",
    }
}

/// One movement of money. An unbalanced one cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    pub kind: PostingKind,
    pub subject: Uuid,
    /// The debit and the credit.
    lines: [Line; 2],
}

/// What a posting does to one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub account: Account,
    /// Positive for a credit, negative for a debit, never zero.
    pub amount: Money,
}

impl Posting {
    /// Moves `amount` from one account to another. Refuses an amount that is not positive.
    fn transfer(
        kind: PostingKind,
        subject: Uuid,
        (from, to): (Account, Account),
        amount: Money,
    ) -> Result<Self, MoneyError> {
        if !amount.is_positive() {
            return Err(MoneyError::OutOfRange);
        }
        let debit = Line {
            account: from,
            amount: amount.checked_neg()?,
        };
        let credit = Line {
            account: to,
            amount,
        };
        Ok(Self {
            kind,
            subject,
            lines: [debit, credit],
        })
    }

    /// The debit and the credit.
    pub fn lines(&self) -> &[Line; 2] {
        &self.lines
    }
}

/// The merchant gets what the rail collected.
pub fn settlement(charge: &Facts) -> Result<Posting, MoneyError> {
    let accounts = (clearing(charge), Account::Merchant(charge.merchant_id));
    let subject = charge.transaction_id.uuid();
    Posting::transfer(PostingKind::Settlement, subject, accounts, charge.amount())
}

/// What the rail kept leaves its clearing account.
pub fn rail_fee(charge: &Facts, fee: Money, fee_account: &str) -> Result<Posting, MoneyError> {
    let accounts = (Account::Fees(fee_account.to_owned()), clearing(charge));
    let subject = charge.transaction_id.uuid();
    Posting::transfer(PostingKind::RailFee, subject, accounts, fee)
}

/// What the rail collected belongs to nobody yet.
pub fn suspense(charge: &Facts, amount: Money) -> Result<Posting, MoneyError> {
    let accounts = (clearing(charge), Account::Suspense);
    let subject = charge.transaction_id.uuid();
    Posting::transfer(PostingKind::Suspense, subject, accounts, amount)
}

/// Where a case's money went. `None` if there is nothing to post. `released` is what the merchant
/// was given of the charge's suspense.
pub fn closing(
    case: &Case,
    charge: &Charge,
    closing: Closing,
    released: Option<Money>,
) -> Result<Option<Posting>, MoneyError> {
    let of_case = case.case_id.uuid();
    let merchant = Account::Merchant(charge.facts.merchant_id);
    let (kind, subject, accounts, amount) = match (closing, case.suspense()) {
        (Closing::Refund, Some(amount)) => (
            PostingKind::Refund,
            of_case,
            (Account::Suspense, clearing(&charge.facts)),
            amount,
        ),
        (Closing::Release, Some(amount)) => (
            PostingKind::Release,
            of_case,
            (Account::Suspense, merchant),
            amount,
        ),
        (Closing::Refund, None) => {
            let Some(amount) = taken_back(case, charge, released) else {
                return Ok(None);
            };
            (
                PostingKind::Reversal,
                charge.facts.transaction_id.uuid(),
                (merchant, clearing(&charge.facts)),
                amount,
            )
        }
        (Closing::Release, None) | (Closing::OutcomeKnown, _) => return Ok(None),
    };
    Posting::transfer(kind, subject, accounts, amount).map(Some)
}

/// What the merchant was credited and has to give back.
fn taken_back(case: &Case, charge: &Charge, released: Option<Money>) -> Option<Money> {
    match case.kind {
        CaseKind::Reversed | CaseKind::CreditedTwice if charge.progress.state == State::Settled => {
            Some(charge.facts.amount())
        }
        CaseKind::Reversed => released,
        CaseKind::CreditedTwice
        | CaseKind::UnknownOutcome
        | CaseKind::Mismatch
        | CaseKind::LateMoney => None,
    }
}

fn clearing(charge: &Facts) -> Account {
    let rail = charge.rail.clone();
    Account::Clearing { rail }
}

#[cfg(test)]
mod tests;
