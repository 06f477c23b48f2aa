//! What has happened to a charge and its refunds, or to a payout or a refund alone, as their merchant
//! may see it: what we did and understood, without the rail's own words and fees, and without what
//! operators do. Our reference at the rail is among it; the number that the rail itself gives is not,
//! because it is told in the rail's words alone.

use std::collections::HashMap;

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    closed_list::count_unknown,
    ids::{EventId, MerchantId, RailReference, Reference},
    money::Money,
};
use db::Conn;
use uuid::Uuid;

use crate::{
    asked_by::AskedBy,
    charge::{Facts, ShownCharge},
    disbursement::{Disbursement, Kind as DisbursementKind, State},
    error::{Error, Result},
    ledger::Account,
    reading::Reading,
    refund::refundable,
    service::Service,
    store::{
        self,
        evidence::{Action, Summary},
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
    pub charge: ShownCharge,
    /// What can still be refunded of it, once it has settled.
    pub refundable: Option<Money>,
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// There are older refunds than those shown.
    pub has_more_refunds: bool,
    /// When the network is asked about the charge next.
    pub next_query_at: Option<Timestamp>,
}

/// A payout or a refund, and what has happened to it.
#[derive(Clone, Debug)]
pub struct DisbursementTimeline {
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// When the network is asked about it next.
    pub next_query_at: Option<Timestamp>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Timestamp,
    /// The refund that it is about, in the timeline of its charge.
    pub refund_id: Option<String>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Request {
        amount: Money,
        asked_by: AskedBy,
        /// The payer asked for it.
        at_checkout: bool,
    },
    NetworkRequest(Outcome, Repeats, RailReference),
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
            Self::Request { .. } => Kind::Request,
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
        let found = self.readings.run(reading).await?;
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
        let entries = entries(&mut conn, merchant_id, Some(&charge), &refunds).await?;
        let refundable = match charge.status {
            ChargeStatus::Settled => Some(refundable(&mut conn, &charge.facts).await?.0),
            ChargeStatus::Initiated | ChargeStatus::OtpRequired | ChargeStatus::Failed => None,
        };
        Ok(Timeline {
            next_query_at: match charge.status {
                ChargeStatus::Initiated => next_query_at,
                ChargeStatus::OtpRequired | ChargeStatus::Settled | ChargeStatus::Failed => None,
            },
            charge,
            refundable,
            entries,
            has_more_refunds,
        })
    }

    /// A merchant's payout or refund, alone, with what has happened to it.
    pub async fn get_disbursement_timeline(
        &self,
        merchant_id: MerchantId,
        kind: DisbursementKind,
        shown_id: &str,
    ) -> Result<DisbursementTimeline> {
        let found = self.get_disbursement(merchant_id, kind, shown_id).await?;
        let mut conn = self.db.read().await?;
        let about = std::slice::from_ref(&found);
        Ok(DisbursementTimeline {
            entries: entries(&mut conn, merchant_id, None, about).await?,
            next_query_at: match found.progress.state {
                State::Processing => found.next_due_at,
                State::Pending | State::Completed | State::Failed => None,
            },
        })
    }
}

/// What entries are about.
struct Subject<'s> {
    refund_id: Option<&'s str>,
    rail_reference: RailReference,
}

/// What has happened to a charge, to these disbursements, or to both.
async fn entries(
    conn: &mut Conn,
    merchant_id: MerchantId,
    charge: Option<&ShownCharge>,
    disbursements: &[Disbursement],
) -> Result<Vec<Entry>> {
    let of_charge = charge.map(|charge| {
        let facts = &charge.facts;
        let subject = Subject {
            refund_id: None,
            rail_reference: facts.rail_reference,
        };
        (facts.transaction_id.uuid(), subject)
    });
    let of_disbursements = disbursements.iter().map(|one| {
        let subject = Subject {
            refund_id: charge.map(|_| one.shown_id.as_str()),
            rail_reference: one.rail_reference,
        };
        (one.disbursement_id.uuid(), subject)
    });
    let subjects: HashMap<Uuid, Subject<'_>> =
        of_charge.into_iter().chain(of_disbursements).collect();
    let ids: Vec<Uuid> = subjects.keys().copied().collect();
    let said = store::evidence::summarize(conn, &ids).await?;
    let posted = store::postings::list_of_merchant(conn, merchant_id, &ids).await?;
    let entry = |about: Uuid, at, what| Entry {
        at,
        refund_id: subjects
            .get(&about)
            .and_then(|subject| subject.refund_id.map(str::to_owned)),
        what,
    };
    let mut entries = Vec::new();
    if let Some(charge) = charge {
        let id = charge.facts.transaction_id.uuid();
        let begun = begin_of_charge(&charge.facts);
        entries.push(entry(id, charge.facts.created_at, begun));
        if let Some(what) = end_of_charge(charge) {
            entries.extend(what.map(|what| entry(id, charge.updated_at, what)));
        }
    }
    for disbursement in disbursements {
        let id = disbursement.disbursement_id.uuid();
        let begun = begin_of_disbursement(disbursement);
        entries.push(entry(id, disbursement.created_at, begun));
        if let Some((at, what)) = end_of_disbursement(disbursement) {
            entries.extend(what.map(|what| entry(id, at, what)));
        }
    }
    for summary in said {
        let (about, at) = (summary.subject, summary.first_at);
        if let Some(subject) = subjects.get(&about) {
            let understood = understood(&summary, subject.rail_reference);
            entries.extend(understood.into_iter().map(|what| entry(about, at, what)));
        }
    }
    let reserved = Account::Reserved(merchant_id).to_string();
    for posted in posted {
        let line = &posted.line;
        let change = BalanceChange {
            is_reserved: line.account == reserved,
            amount: line.amount(),
            posting: line.kind.clone(),
        };
        entries.push(entry(posted.about, line.posted_at, What::Ledger(change)));
    }
    // Stable: what is alike stays in the order in which it was read.
    entries.sort_by_key(|entry| (entry.at, entry.what.kind()));
    Ok(entries)
}

fn begin_of_charge(facts: &Facts) -> What {
    What::Request {
        amount: facts.amount(),
        asked_by: facts.asked_by.clone(),
        at_checkout: facts.hosted,
    }
}

fn begin_of_disbursement(disbursement: &Disbursement) -> What {
    What::Request {
        amount: disbursement.amount(),
        asked_by: disbursement.asked_by.clone(),
        at_checkout: false,
    }
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

/// When a disbursement ended, what its end is, and its event.
fn end_of_disbursement(ended: &Disbursement) -> Option<(Timestamp, [What; 2])> {
    let progress = &ended.progress;
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
    let event = What::Event(EventId::of(ended.disbursement_id.uuid()));
    Some((at, [status, event]))
}

/// What the merchant sees of what was said. What operators say is not among it.
fn understood(said: &Summary, rail_reference: RailReference) -> Vec<What> {
    let repeats = Repeats {
        times: said.times,
        last_at: said.last_at,
    };
    let Ok(action) = said.action.parse::<Action>() else {
        count_unknown("action");
        return Vec::new();
    };
    let happened: &dyn Fn(Outcome) -> What = match action {
        Action::RequestPayment | Action::Send => {
            &|outcome| What::NetworkRequest(outcome, repeats, rail_reference)
        }
        Action::SubmitOtp => &|outcome| What::Otp(outcome, repeats),
        Action::Query => &|outcome| What::Query(outcome, repeats),
        Action::Callback => return vec![What::Callback(repeats)],
        Action::Operator => return Vec::new(),
    };
    let Some(outcome) = outcome(action, &said.outcome) else {
        count_unknown("outcome");
        return Vec::new();
    };
    let mut seen = vec![happened(outcome)];
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
