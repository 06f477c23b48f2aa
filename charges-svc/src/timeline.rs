//! What has happened to a charge and its refunds, as their merchant may see it: what we did and
//! understood, without the rail's own words, references and fees, and without what operators do.

use std::collections::HashMap;

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    closed_list::count_unknown,
    ids::{EventId, MerchantId, Reference},
    money::Money,
};
use uuid::Uuid;

use crate::{
    charge::ShownCharge,
    disbursement::{Disbursement, State},
    error::{Error, Result},
    ledger::Account,
    reading::Reading,
    service::Service,
    store::{
        self,
        evidence::{Action, Summary},
        postings::BalanceLine,
    },
};

/// Most refunds shown with their charge.
const REFUNDS_SHOWN: usize = 20;

/// The label of an answer that says that our float is empty.
const FLOAT_EMPTY: &str = "float_empty";

chassis::closed_list! {
    /// What an entry is about. What happened at one moment is shown in this order.
    #[derive(PartialOrd, Ord)]
    pub enum Kind: "a kind of entry" {
        Request = "REQUEST",
        NetworkRequest = "NETWORK_REQUEST",
        Prompt = "PROMPT",
        Otp = "OTP",
        Callback = "CALLBACK",
        Query = "QUERY",
        Status = "STATUS",
        Ledger = "LEDGER",
        Event = "EVENT",
    }
}

chassis::closed_list! {
    /// What was understood of what a network said, as it is kept with the evidence.
    pub enum Outcome: "an outcome" {
        Accepted = "accepted",
        OtpRequired = "otp_required",
        Refused = "refused",
        NotSent = "not_sent",
        SentAgain = "sent_again",
        AlreadyKnown = "already_known",
        WrongCode = "wrong_code",
        Expired = "expired",
        Pending = "pending",
        Abandoned = "abandoned",
        Succeeded = "succeeded",
        Failed = "failed",
        Reversed = "reversed",
        ReferenceUnknown = "reference_unknown",
        Unknown = "unknown",
    }
}

/// A charge and what has happened to it.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub status: ChargeStatus,
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// There are older refunds than those shown.
    pub has_more_refunds: bool,
    /// When the network is asked about the charge next.
    pub next_query_at: Option<Timestamp>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Timestamp,
    /// The refund that it is about; `None` if it is about the charge.
    pub refund_id: Option<String>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Request(Money),
    NetworkRequest(Outcome, Repeats),
    Prompt,
    Otp(Outcome, Repeats),
    Callback(Repeats),
    Query(Outcome, Repeats),
    /// It has ended.
    Status {
        status: &'static str,
        failure_reason: Option<String>,
    },
    Ledger(BalanceChange),
    Event(EventId),
}

/// How often the same happened, and when last.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    pub times: i64,
    pub last_at: Timestamp,
}

/// What a posting did to what the merchant has.
#[derive(Clone, Debug)]
pub struct BalanceChange {
    /// The code of its kind.
    pub posting: String,
    /// It was of what is reserved, and not of what is available.
    pub is_reserved: bool,
    /// Negative if it was taken away.
    pub amount: Money,
}

impl What {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Request(_) => Kind::Request,
            Self::NetworkRequest(..) => Kind::NetworkRequest,
            Self::Prompt => Kind::Prompt,
            Self::Otp(..) => Kind::Otp,
            Self::Callback(_) => Kind::Callback,
            Self::Query(..) => Kind::Query,
            Self::Status { .. } => Kind::Status,
            Self::Ledger(_) => Kind::Ledger,
            Self::Event(_) => Kind::Event,
        }
    }
}

impl Service {
    /// A merchant's charge with what has happened to it. Each entry is a fact, and stays one; what
    /// happens while they are read may be missing.
    pub async fn get_charge_timeline(
        &self,
        merchant_id: MerchantId,
        reference: Reference,
    ) -> Result<Timeline> {
        let reading = Reading {
            merchant_id,
            reference,
        };
        let found = self.readings.write(reading).await?;
        let found = found.ok_or(Error::ChargeNotFound)?;
        let next_query_at = found.timer.next_query_at;
        let charge = ShownCharge::try_from(found)?;
        let id = charge.facts.transaction_id;
        let mut conn = self.db.read().await?;
        // One more shows that there are more.
        let refunds = store::disbursements::refunds_of(&mut conn, id, REFUNDS_SHOWN + 1).await?;
        let mut refunds = refunds.rows;
        let has_more_refunds = refunds.len() > REFUNDS_SHOWN;
        refunds.truncate(REFUNDS_SHOWN);
        let of_refunds = refunds.iter().map(|refund| refund.disbursement_id.uuid());
        let subjects: Vec<Uuid> = [id.uuid()].into_iter().chain(of_refunds).collect();
        let said = store::evidence::summarize(&mut conn, &subjects).await?;
        let posted = store::postings::list_of_merchant(&mut conn, merchant_id, &subjects).await?;
        drop(conn);
        Ok(Timeline {
            next_query_at: match charge.status {
                ChargeStatus::Initiated => next_query_at,
                ChargeStatus::OtpRequired | ChargeStatus::Settled | ChargeStatus::Failed => None,
            },
            status: charge.status,
            entries: entries(&charge, &refunds, said, posted),
            has_more_refunds,
        })
    }
}

fn entries(
    charge: &ShownCharge,
    refunds: &[Disbursement],
    said: Vec<Summary>,
    posted: Vec<BalanceLine>,
) -> Vec<Entry> {
    let refund_ids: HashMap<Uuid, &str> = refunds
        .iter()
        .map(|refund| (refund.disbursement_id.uuid(), refund.shown_id.as_str()))
        .collect();
    let entry = |about: Uuid, at, what| Entry {
        at,
        refund_id: refund_ids.get(&about).map(ToString::to_string),
        what,
    };
    let mut entries = Vec::new();
    let facts = &charge.facts;
    let id = facts.transaction_id.uuid();
    entries.push(entry(id, facts.created_at, What::Request(facts.amount())));
    if let Some(what) = end_of_charge(charge) {
        entries.extend(what.map(|what| entry(id, charge.updated_at, what)));
    }
    for refund in refunds {
        let id = refund.disbursement_id.uuid();
        let requested = What::Request(refund.amount());
        entries.push(entry(id, refund.created_at, requested));
        if let Some((at, what)) = end_of_refund(refund) {
            entries.extend(what.map(|what| entry(id, at, what)));
        }
    }
    for summary in said {
        let (about, at) = (summary.subject, summary.first_at);
        entries.extend(
            understood(&summary)
                .into_iter()
                .map(|what| entry(about, at, what)),
        );
    }
    for posted in posted {
        let line = &posted.line;
        let change = BalanceChange {
            is_reserved: line.account == Account::Reserved(facts.merchant_id).to_string(),
            amount: line.amount(),
            posting: line.kind.clone(),
        };
        entries.push(entry(posted.about, line.posted_at, What::Ledger(change)));
    }
    // Stable: what is alike stays in the order in which it was read.
    entries.sort_by_key(|entry| (entry.at, entry.what.kind()));
    entries
}

/// What a charge's end is, and its event.
fn end_of_charge(charge: &ShownCharge) -> Option<[What; 2]> {
    match charge.status {
        ChargeStatus::Initiated | ChargeStatus::OtpRequired => None,
        ChargeStatus::Settled | ChargeStatus::Failed => Some([
            What::Status {
                status: charge.status.code(),
                failure_reason: charge.failure_reason.clone(),
            },
            What::Event(EventId::of(charge.facts.transaction_id.uuid())),
        ]),
    }
}

/// When a refund ended, what its end is, and its event.
fn end_of_refund(refund: &Disbursement) -> Option<(Timestamp, [What; 2])> {
    let progress = &refund.progress;
    let at = match progress.state {
        State::Pending | State::Processing => return None,
        // The rail may have taken it back since.
        State::Completed => progress.completed_at?,
        State::Failed => progress.updated_at,
    };
    let status = What::Status {
        status: progress.state.code(),
        failure_reason: progress.failure_reason.clone(),
    };
    let event = What::Event(EventId::of(refund.disbursement_id.uuid()));
    Some((at, [status, event]))
}

/// What the merchant sees of what was said. What operators say is not among it.
fn understood(said: &Summary) -> Vec<What> {
    let repeats = Repeats {
        times: said.times,
        last_at: said.last_at,
    };
    let Ok(action) = said.action.parse::<Action>() else {
        count_unknown("action");
        return Vec::new();
    };
    let happened: fn(Outcome, Repeats) -> What = match action {
        Action::RequestPayment | Action::Send => What::NetworkRequest,
        Action::SubmitOtp => What::Otp,
        Action::Query => What::Query,
        Action::Callback => return vec![What::Callback(repeats)],
        Action::Operator => return Vec::new(),
    };
    let Some(outcome) = outcome(action, &said.outcome) else {
        count_unknown("outcome");
        return Vec::new();
    };
    let mut seen = vec![happened(outcome, repeats)];
    if outcome == Outcome::Accepted && matches!(action, Action::RequestPayment | Action::SubmitOtp)
    {
        seen.push(What::Prompt);
    }
    seen
}

/// An outcome as it is kept. Of our empty float a merchant sees what it means for the refund alone.
fn outcome(action: Action, kept: &str) -> Option<Outcome> {
    match (action, kept) {
        (Action::Query, FLOAT_EMPTY) => Some(Outcome::Failed),
        (_, FLOAT_EMPTY) => Some(Outcome::NotSent),
        _ => kept.parse().ok(),
    }
}
