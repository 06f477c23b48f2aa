//! Operators' cases, which only a person can decide.

use chassis::{
    clock::Timestamp,
    ids::{CaseId, ChargeId, Reference},
    money::{Currency, Money},
};
use sqlx::FromRow;
use uuid::Uuid;

use crate::disbursement::Disbursement;

chassis::closed_list! {
    /// Why a person must decide. A charge, a disbursement or a line of a rail's report has at most
    /// one case of each kind.
    pub enum CaseKind: "a kind of case" {
        /// The rail has given no outcome for a day.
        UnknownOutcome = "UNKNOWN_OUTCOME",
        /// The rail reports success with a reference, amount or currency other than ours.
        Mismatch = "MISMATCH",
        /// Money arrived after the charge had failed.
        LateMoney = "LATE_MONEY",
        /// The rail took a payment back.
        Reversed = "REVERSED",
        /// The charge settled although a release had already credited the merchant for its
        /// session.
        CreditedTwice = "CREDITED_TWICE",
        /// A disbursement waits for, or failed because of, a rail's empty float.
        FloatEmpty = "FLOAT_EMPTY",
        /// The rail has taken nothing of a disbursement for a day.
        NotSent = "NOT_SENT",
        /// The rail paid a disbursement that had failed.
        PaidLate = "PAID_LATE",
        /// The rail took back a disbursement that it had paid.
        TakenBack = "TAKEN_BACK",
        /// A rail's report has a line about nothing that we know.
        ReportUnknown = "REPORT_UNKNOWN",
        /// A rail's report has another amount or currency than we booked.
        ReportDiffers = "REPORT_DIFFERS",
        /// A rail's report says something else of a movement than we booked.
        ReportContradicts = "REPORT_CONTRADICTS",
        /// A rail's report has a second line for one movement.
        ReportTwice = "REPORT_TWICE",
        /// A rail's reports lack what we booked.
        ReportLacks = "REPORT_LACKS",
    }
}

chassis::text_column!(CaseKind);

impl CaseKind {
    /// Whether it is about a rail's report, which is no evidence of how a charge ended.
    pub fn is_of_report(self) -> bool {
        match self {
            Self::ReportUnknown
            | Self::ReportDiffers
            | Self::ReportContradicts
            | Self::ReportTwice
            | Self::ReportLacks => true,
            Self::UnknownOutcome
            | Self::Mismatch
            | Self::LateMoney
            | Self::Reversed
            | Self::CreditedTwice
            | Self::FloatEmpty
            | Self::NotSent
            | Self::PaidLate
            | Self::TakenBack => false,
        }
    }
}

chassis::closed_list! {
    /// How a case was closed.
    pub enum Closing: "a way to close a case" {
        /// Its money went back to the payer.
        Refund = "REFUND",
        /// Its money went to the merchant.
        Release = "RELEASE",
        /// The unknown outcome that it was about became known.
        OutcomeKnown = "OUTCOME_KNOWN",
    }
}

chassis::text_column!(Closing);

/// What an operator decides about a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its money goes back to the payer.
    Refund,
    /// Its money is back with the payer already. Carries how, and where that can be seen.
    Refunded(String),
    /// Its money is the merchant's. Carries why, if something speaks against it.
    Release(Option<String>),
}

impl Decision {
    /// How the case is closed in the end.
    pub fn closing(&self) -> Closing {
        match self {
            Self::Refund | Self::Refunded(_) => Closing::Refund,
            Self::Release(_) => Closing::Release,
        }
    }
}

/// An operator's case.
#[derive(Clone, Debug, FromRow)]
pub struct Case {
    pub case_id: CaseId,
    /// The charge, the disbursement or the line of a report. The column has its name from when only
    /// charges had cases.
    #[sqlx(rename = "transaction_id")]
    pub subject: Uuid,
    /// Read before what depends on it: a kind that only a newer version knows may be about something
    /// that only that version knows.
    pub kind: CaseKind,
    /// What people call it: a charge's reference, `PO-…` or `RF-…`, or what a report calls it that
    /// has none of these. Empty if only a newer version knows what it is about.
    pub reference: String,
    /// What happened, for operators.
    pub detail: String,
    suspense_minor: Option<i64>,
    suspense_currency: Option<Currency>,
    pub opened_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    /// What the refund is called that sends its suspense to the payer, unless it failed.
    pub refund_id: Option<String>,
}

impl Case {
    pub fn new(
        charge: (ChargeId, &Reference),
        kind: CaseKind,
        detail: String,
        suspense: Option<Money>,
        now: Timestamp,
    ) -> Self {
        Self {
            case_id: CaseId::new(),
            subject: charge.0.uuid(),
            kind,
            reference: charge.1.to_string(),
            detail,
            suspense_minor: suspense.map(Money::minor_units),
            suspense_currency: suspense.map(Money::currency),
            opened_at: now,
            closed_at: None,
            refund_id: None,
        }
    }

    pub fn of_disbursement(
        about: &Disbursement,
        kind: CaseKind,
        detail: String,
        now: Timestamp,
    ) -> Self {
        Self {
            case_id: CaseId::new(),
            subject: about.disbursement_id.uuid(),
            kind,
            reference: about.shown_id.clone(),
            detail,
            suspense_minor: None,
            suspense_currency: None,
            opened_at: now,
            closed_at: None,
            refund_id: None,
        }
    }

    /// `subject`: the line, or the record that no report has.
    pub fn of_report(
        (subject, reference): (Uuid, String),
        kind: CaseKind,
        detail: String,
        now: Timestamp,
    ) -> Self {
        Self {
            case_id: CaseId::new(),
            subject,
            kind,
            reference,
            detail,
            suspense_minor: None,
            suspense_currency: None,
            opened_at: now,
            closed_at: None,
            refund_id: None,
        }
    }

    /// Logs and counts that the case was opened, so that somebody looks into it. `case_id`: its own,
    /// or that of the earlier case of its kind that it opened again.
    pub fn announce(&self, case_id: CaseId) {
        tracing::error!(
            case.id = %case_id,
            case.reference = %self.reference,
            kind = self.kind.code(),
            "an operator's case is opened"
        );
        count_opened(self.kind, 1);
    }

    /// The money that was posted to suspense with this case.
    pub fn suspense(&self) -> Option<Money> {
        let (minor_units, currency) = self.suspense_minor.zip(self.suspense_currency)?;
        Some(Money::new(minor_units, currency))
    }
}

/// Counts this many opened cases of this kind.
pub fn count_opened(kind: CaseKind, opened: u64) {
    metrics::counter!("cases_opened_total", "kind" => kind.code()).increment(opened);
}
