//! The ledger: double entry, balanced in each currency, unique by (kind, subject), append-only.
//!
//! Promise: the accounts always sum to zero in every currency. Credits are positive, debits
//! negative.

use std::fmt;

use chassis::{
    ids::{CaseId, MerchantId},
    money::{Money, MoneyError},
};
use uuid::Uuid;

use crate::{
    case::{Case, CaseKind, Closing},
    charge::{Charge, Facts, State},
    disbursement::Disbursement,
};

/// An account that money is posted to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// What a merchant has collected and has not been paid out.
    Merchant(MerchantId),
    /// What is reserved of a merchant's money for disbursements on their way.
    Reserved(MerchantId),
    /// What a rail has collected for us and still holds.
    Clearing { rail: String },
    /// What a rail holds for disbursements.
    Float { rail: String },
    /// Money that has arrived and whose owner an operator must determine.
    Suspense,
    /// What rails keep of what they collect, under the configured name.
    Fees(String),
    /// What is the operator's own.
    House,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merchant(merchant_id) => write!(f, "merchant:{merchant_id}"),
            Self::Reserved(merchant_id) => write!(f, "merchant:{merchant_id}:reserved"),
            Self::Float { rail } => write!(f, "rail:{rail}:float"),
            Self::House => f.write_str("house"),
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
        /// A disbursement was recorded. The subject of this and the next is the disbursement.
        Reserve = "RESERVE",
        /// It was paid.
        Disbursement = "DISBURSEMENT",
        /// The merchant paid for it.
        PayoutFee = "PAYOUT_FEE",
        /// It failed, and its money is the merchant's again.
        Return = "RETURN",
        /// The rail took it back after it was paid.
        DisbursementReversal = "DISBURSEMENT_REVERSAL",
        /// The rail paid it after it had failed.
        LateDisbursement = "LATE_DISBURSEMENT",
        /// The rail took back what it had paid late.
        LateReversal = "LATE_REVERSAL",
        /// What the rail took for it.
        DisbursementFee = "DISBURSEMENT_FEE",
        /// The merchant gave back what was paid late. The subject is the case.
        Recovery = "RECOVERY",
        /// The house bears what was paid late. The subject is the case.
        WriteOff = "WRITE_OFF",
        /// Treasury moved money by hand. The subject is the move.
        FloatMove = "FLOAT_MOVE",
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

/// A merchant's money is reserved for a disbursement and its fee.
pub fn reserve(disbursement: &Disbursement) -> Result<Posting, MoneyError> {
    let merchant_id = disbursement.merchant_id;
    let accounts = (
        Account::Merchant(merchant_id),
        Account::Reserved(merchant_id),
    );
    let subject = disbursement.disbursement_id.uuid();
    let reserved = disbursement.reserved()?;
    Posting::transfer(PostingKind::Reserve, subject, accounts, reserved)
}

/// What a merchant pays for a payout that was paid. `None` if it costs nothing.
pub fn payout_fee(payout: &Disbursement) -> Result<Option<Posting>, MoneyError> {
    let fee = payout.fee();
    if !fee.is_positive() {
        return Ok(None);
    }
    let accounts = (Account::Reserved(payout.merchant_id), Account::House);
    let subject = payout.disbursement_id.uuid();
    Posting::transfer(PostingKind::PayoutFee, subject, accounts, fee).map(Some)
}

/// A disbursement was paid out of the rail's float.
pub fn disbursement(disbursement: &Disbursement) -> Result<Posting, MoneyError> {
    let accounts = (source(disbursement), float(disbursement));
    outward(PostingKind::Disbursement, disbursement, accounts)
}

/// What was reserved for a disbursement that failed is the merchant's again. `None` for a refund of
/// suspense, for which nothing was reserved.
pub fn returned(disbursement: &Disbursement) -> Result<Option<Posting>, MoneyError> {
    if disbursement.refunded.case_id.is_some() {
        return Ok(None);
    }
    let merchant_id = disbursement.merchant_id;
    let accounts = (
        Account::Reserved(merchant_id),
        Account::Merchant(merchant_id),
    );
    let subject = disbursement.disbursement_id.uuid();
    let reserved = disbursement.reserved()?;
    Posting::transfer(PostingKind::Return, subject, accounts, reserved).map(Some)
}

/// The rail took back what it had paid: it is in the float, and its owner's again.
pub fn disbursement_reversal(disbursement: &Disbursement) -> Result<Posting, MoneyError> {
    let owner = match disbursement.refunded.case_id {
        Some(_) => Account::Suspense,
        None => Account::Merchant(disbursement.merchant_id),
    };
    let accounts = (float(disbursement), owner);
    outward(PostingKind::DisbursementReversal, disbursement, accounts)
}

/// The float is short of what was paid after it had failed. An operator determines who bears it.
pub fn late_disbursement(disbursement: &Disbursement) -> Result<Posting, MoneyError> {
    let accounts = (Account::Suspense, float(disbursement));
    outward(PostingKind::LateDisbursement, disbursement, accounts)
}

/// What was paid late is in the float again, and belongs to whoever bore it: to suspense, as long as
/// nobody has determined who does. `decided`: how the case about it was closed.
pub fn late_reversal(
    disbursement: &Disbursement,
    decided: Option<Closing>,
) -> Result<Posting, MoneyError> {
    let bearer = match decided {
        Some(Closing::Refund) => Account::Merchant(disbursement.merchant_id),
        Some(Closing::Release) => Account::House,
        Some(Closing::OutcomeKnown) | None => Account::Suspense,
    };
    let accounts = (float(disbursement), bearer);
    outward(PostingKind::LateReversal, disbursement, accounts)
}

/// What the rail took from the float for a disbursement, which the house bears.
pub fn disbursement_fee(disbursement: &Disbursement, fee: Money) -> Result<Posting, MoneyError> {
    let accounts = (Account::House, float(disbursement));
    let subject = disbursement.disbursement_id.uuid();
    Posting::transfer(PostingKind::DisbursementFee, subject, accounts, fee)
}

/// Who bears what was paid late: the merchant, who has it twice, or the house.
pub fn paid_late(
    case_id: CaseId,
    disbursement: &Disbursement,
    closing: Closing,
) -> Result<Posting, MoneyError> {
    let (kind, bearer) = match closing {
        Closing::Refund => (
            PostingKind::Recovery,
            Account::Merchant(disbursement.merchant_id),
        ),
        Closing::Release | Closing::OutcomeKnown => (PostingKind::WriteOff, Account::House),
    };
    let accounts = (bearer, Account::Suspense);
    Posting::transfer(kind, case_id.uuid(), accounts, disbursement.amount())
}

/// What treasury moved by hand, from the first account to the second.
pub fn float_move(
    move_id: Uuid,
    accounts: (Account, Account),
    amount: Money,
) -> Result<Posting, MoneyError> {
    Posting::transfer(PostingKind::FloatMove, move_id, accounts, amount)
}

fn outward(
    kind: PostingKind,
    disbursement: &Disbursement,
    accounts: (Account, Account),
) -> Result<Posting, MoneyError> {
    let subject = disbursement.disbursement_id.uuid();
    Posting::transfer(kind, subject, accounts, disbursement.amount())
}

/// What a disbursement is paid from.
fn source(disbursement: &Disbursement) -> Account {
    match disbursement.refunded.case_id {
        Some(_) => Account::Suspense,
        None => Account::Reserved(disbursement.merchant_id),
    }
}

fn float(disbursement: &Disbursement) -> Account {
    let rail = disbursement.rail.clone();
    Account::Float { rail }
}

/// Where a case's money went. `None` if there is nothing to post. `released` is what the merchant
/// was given of the charge's suspense, and `refunded` what it has sent back to the payer itself.
pub fn closing(
    case: &Case,
    charge: &Charge,
    closing: Closing,
    released: Option<Money>,
    refunded: Money,
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
            let Some(amount) = taken_back(case, charge, released, refunded) else {
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

/// What the merchant was credited and has to give back. Its own refunds count only where the payer
/// has the money once by them: if the rail took the payment back, the merchant has paid twice.
fn taken_back(
    case: &Case,
    charge: &Charge,
    released: Option<Money>,
    refunded: Money,
) -> Option<Money> {
    let is_settled = charge.progress.state == State::Settled;
    let credited = charge.facts.amount();
    match case.kind {
        CaseKind::Reversed if is_settled => Some(credited),
        CaseKind::CreditedTwice if is_settled => {
            let left = credited
                .minor_units()
                .saturating_sub(refunded.minor_units());
            Some(Money::new(left, credited.currency()))
        }
        CaseKind::Reversed => released,
        CaseKind::CreditedTwice
        | CaseKind::UnknownOutcome
        | CaseKind::Mismatch
        | CaseKind::LateMoney
        | CaseKind::FloatEmpty
        | CaseKind::NotSent
        | CaseKind::PaidLate
        | CaseKind::TakenBack
        | CaseKind::ReportUnknown
        | CaseKind::ReportDiffers
        | CaseKind::ReportContradicts
        | CaseKind::ReportTwice
        | CaseKind::ReportLacks => None,
    }
}

fn clearing(charge: &Facts) -> Account {
    let rail = charge.rail.clone();
    Account::Clearing { rail }
}

#[cfg(test)]
mod tests;
