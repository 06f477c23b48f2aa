//! What a merchant tells about its business, and what comes of it (KYC).
//!
//! `Merchant::kyc_status` says whether the merchant is approved. Beside it, a submission waits for
//! an operator ([`Review`]) until it is decided. An approved merchant may tell its business anew at
//! any time, such as before its approval ends: it stays approved while this renewal waits, until an
//! operator decides or the approval's last day is over. Of every other merchant, what was submitted
//! is the whole state.

use std::{str::FromStr, time::Duration};

use chassis::{
    clock::{Day, Timestamp},
    ids::{DecisionId, MerchantId},
};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use crate::{
    business_form::Form,
    merchant::{KycStatus, Merchant},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long an approval lasts, unless the operator says when it ends.
const APPROVED_FOR: Duration = DAY.saturating_mul(730);

/// How long before an approval ends the merchant is told so.
const WARNED_BEFORE: Duration = DAY.saturating_mul(30);

chassis::closed_list! {
    /// How a submission waits for a decision.
    pub enum Review: "a review's state" {
        Pending = "PENDING",
        /// An operator is looking at it: the merchant cannot change it.
        InReview = "IN_REVIEW",
    }
}

chassis::text_column!(Review);

impl From<Review> for KycStatus {
    fn from(review: Review) -> Self {
        match review {
            Review::Pending => Self::Pending,
            Review::InReview => Self::InReview,
        }
    }
}

/// What was submitted last, and what came of it.
#[derive(Clone, Debug, FromRow)]
pub struct Business {
    pub merchant_id: MerchantId,
    /// Counts submissions.
    pub version: i64,
    /// `None` once it is decided.
    pub review: Option<Review>,
    #[sqlx(flatten)]
    pub form: Form,
    pub submitted_at: Timestamp,
    /// Why it was rejected.
    pub reasons: Reasons,
    /// When, by whom and with which note it was decided last, perhaps on what was submitted before.
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    pub note: Option<String>,
    /// The last day of the approval.
    pub expires_on: Option<Day>,
    /// When to tell the merchant that its approval ends soon, unless that was done.
    pub warns_at: Option<Timestamp>,
    /// When the approval ends, unless it has.
    pub ends_at: Option<Timestamp>,
}

/// A merchant with what it has submitted.
#[derive(Clone, Debug, FromRow)]
pub struct Submitted {
    #[sqlx(flatten)]
    pub merchant: Merchant,
    #[sqlx(flatten)]
    pub business: Business,
}

impl Submitted {
    /// What a merchant submits that has submitted nothing before.
    pub fn first(mut merchant: Merchant, form: Form, now: Timestamp) -> Self {
        wait(&mut merchant, Review::Pending);
        let business = Business {
            merchant_id: merchant.merchant_id,
            version: 1,
            review: Some(Review::Pending),
            form,
            submitted_at: now,
            reasons: Reasons::default(),
            decided_at: None,
            decided_by: None,
            note: None,
            expires_on: None,
            warns_at: None,
            ends_at: None,
        };
        Self { merchant, business }
    }

    /// How it stands: a submission that waits comes before the merchant's own state.
    pub fn status(&self) -> Option<KycStatus> {
        let waiting = self.business.review.map(KycStatus::from);
        waiting.or(self.merchant.kyc_status)
    }

    /// Takes what the merchant submits now.
    pub fn submit(&mut self, form: Form, now: Timestamp) {
        let business = &mut self.business;
        business.version += 1;
        business.form = form;
        business.submitted_at = now;
        business.reasons = Reasons::default();
        business.review = Some(Review::Pending);
        wait(&mut self.merchant, Review::Pending);
    }

    /// Takes an operator's decision on what was looked at.
    pub fn decide(&mut self, decision: NewDecision, now: Timestamp) {
        let business = &mut self.business;
        business.decided_at = Some(now);
        business.decided_by = Some(decision.decided_by);
        business.note = Some(decision.note);
        business.review = None;
        business.reasons = Reasons::default();
        match decision.verdict {
            Verdict::Review => {
                business.review = Some(Review::InReview);
                wait(&mut self.merchant, Review::InReview);
            }
            Verdict::Approve { expires_on } => {
                let ends_at = expires_on.end();
                business.expires_on = Some(expires_on);
                business.ends_at = Some(ends_at);
                business.warns_at = Some(ends_at - WARNED_BEFORE).filter(|warns| *warns > now);
                self.merchant.kyc_status = Some(KycStatus::Approved);
            }
            Verdict::Reject(reasons) => {
                business.reasons = reasons;
                business.expires_on = None;
                self.end(KycStatus::Rejected);
            }
            Verdict::Expire => {
                let today = Day::of(now);
                business.expires_on = business.expires_on.map(|day| day.min(today));
                self.end(KycStatus::Expired);
            }
        }
    }

    /// Ends an approval whose last day is over. Returns whether there was one: an operator may have
    /// changed the merchant's state by hand since. A renewal that waits goes on waiting.
    pub fn expire(&mut self) -> bool {
        self.business.warns_at = None;
        self.business.ends_at = None;
        let is_approved = self.merchant.kyc_status == Some(KycStatus::Approved);
        if is_approved {
            let waiting = self.business.review.map(KycStatus::from);
            self.merchant.kyc_status = waiting.or(Some(KycStatus::Expired));
        }
        is_approved
    }

    /// Notes that the merchant is told that its approval ends soon. Returns whether it need be: who
    /// has sent a renewal knows.
    pub fn warn(&mut self) -> bool {
        self.business.warns_at = None;
        self.merchant.kyc_status == Some(KycStatus::Approved) && self.business.review.is_none()
    }

    fn end(&mut self, status: KycStatus) {
        self.business.warns_at = None;
        self.business.ends_at = None;
        self.merchant.kyc_status = Some(status);
    }
}

/// A merchant that waits has no other state, unless it is approved.
fn wait(merchant: &mut Merchant, review: Review) {
    if merchant.kyc_status != Some(KycStatus::Approved) {
        merchant.kyc_status = Some(review.into());
    }
}

/// What an operator decides on a submission.
#[derive(Clone, Debug)]
pub struct NewDecision {
    /// Of the submission that was looked at.
    pub version: i64,
    pub verdict: Verdict,
    pub decided_by: String,
    /// For other operators; may be empty.
    pub note: String,
}

/// How a submission is decided.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is being looked at from now on.
    Review,
    Approve {
        /// The last day of the approval.
        expires_on: Day,
    },
    Reject(Reasons),
    /// Its approval ends today.
    Expire,
}

impl Verdict {
    pub fn status(&self) -> KycStatus {
        match self {
            Self::Review => KycStatus::InReview,
            Self::Approve { .. } => KycStatus::Approved,
            Self::Reject(_) => KycStatus::Rejected,
            Self::Expire => KycStatus::Expired,
        }
    }
}

/// The last day of an approval that is given now, if the operator names none.
pub fn usual_last_day(now: Timestamp) -> Day {
    Day::of(now + APPROVED_FOR)
}

/// A decision as it is kept for good.
#[derive(Clone, Debug, FromRow)]
pub struct Decision {
    pub decision_id: DecisionId,
    pub merchant_id: MerchantId,
    pub version: i64,
    pub status: KycStatus,
    pub reasons: Reasons,
    pub expires_on: Option<Day>,
    /// `None`: the approval's last day was over.
    pub decided_by: Option<String>,
    pub note: String,
    pub decided_at: Timestamp,
}

/// Why a submission is rejected, for the merchant: what is wrong with a field and what to send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons(pub Vec<FieldReason>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldReason {
    /// A [`Field`]'s name, or one that a newer version knows.
    pub field: String,
    pub reason: String,
}

impl Reasons {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts can be written")
    }
}

impl FromStr for Reasons {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

chassis::text_column!(Reasons, |reasons| reasons.to_json());
