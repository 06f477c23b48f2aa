//! Converts timelines to proto.

use proto::charges::{
    AskedBy as ProtoAskedBy, BalanceChange as ProtoBalanceChange,
    ChargeStatus as ProtoChargeStatus, ChargeTimeline,
    DisbursementTimeline as ProtoDisbursementTimeline, TimelineEntry, TimelineKind,
    TimelineOutcome,
};

use crate::{
    asked_by::AskedBy,
    timeline::{
        BalanceChange, DisbursementTimeline, Entry, Kind, Outcome, Repeats, Timeline, What,
    },
};

chassis::proto_list! {
    Kind = TimelineKind {
        Request, NetworkRequest, Prompt, Otp, Callback, Query, Status, Ledger, Event,
    }
}
chassis::proto_list! {
    Outcome = TimelineOutcome {
        Accepted, OtpRequired, Refused, NotSent, SentAgain, AlreadyKnown, WrongCode, Expired,
        Pending, Abandoned, Succeeded, Failed, Reversed, ReferenceUnknown, Unknown,
    }
}

impl From<Timeline> for ChargeTimeline {
    fn from(timeline: Timeline) -> Self {
        Self {
            status: ProtoChargeStatus::from(timeline.charge.status).into(),
            entries: timeline.entries.into_iter().map(Into::into).collect(),
            has_more_refunds: timeline.has_more_refunds,
            next_query_at: timeline.next_query_at.map(|at| at.to_string()),
            charge: Some(timeline.charge.into()),
            refundable: timeline.refundable.map(Into::into),
        }
    }
}

impl From<DisbursementTimeline> for ProtoDisbursementTimeline {
    fn from(timeline: DisbursementTimeline) -> Self {
        Self {
            entries: timeline.entries.into_iter().map(Into::into).collect(),
            next_query_at: timeline.next_query_at.map(|at| at.to_string()),
        }
    }
}

impl From<AskedBy> for ProtoAskedBy {
    fn from(asked_by: AskedBy) -> Self {
        Self {
            request_id: asked_by.request_id,
            key_name: asked_by.key_name,
        }
    }
}

impl From<Entry> for TimelineEntry {
    fn from(entry: Entry) -> Self {
        let shown = Self {
            at: entry.at.to_string(),
            kind: TimelineKind::from(entry.what.kind()).into(),
            refund_id: entry.refund_id,
            ..Self::default()
        };
        match entry.what {
            What::Request {
                amount,
                asked_by,
                at_checkout,
            } => Self {
                amount: Some(amount.into()),
                asked_by: asked_by.is_known().then(|| asked_by.into()),
                at_checkout,
                ..shown
            },
            What::Prompt => shown,
            What::NetworkRequest(outcome, repeats, rail_reference) => Self {
                outcome: TimelineOutcome::from(outcome).into(),
                network_reference: Some(rail_reference.to_string()),
                ..repeated(shown, repeats)
            },
            What::Otp(outcome, repeats) | What::Query(outcome, repeats) => Self {
                outcome: TimelineOutcome::from(outcome).into(),
                ..repeated(shown, repeats)
            },
            What::Callback(repeats) => repeated(shown, repeats),
            What::Status {
                status,
                failure_reason,
            } => Self {
                status: Some(status.to_owned()),
                failure_reason,
                ..shown
            },
            What::Ledger(change) => Self {
                balance_change: Some(change.into()),
                ..shown
            },
            What::Event(event_id) => Self {
                event_id: Some(event_id.to_string()),
                ..shown
            },
        }
    }
}

fn repeated(shown: TimelineEntry, repeats: Repeats) -> TimelineEntry {
    TimelineEntry {
        times: Some(u32::try_from(repeats.times).unwrap_or(u32::MAX)),
        last_at: Some(repeats.last_at.to_string()),
        ..shown
    }
}

impl From<BalanceChange> for ProtoBalanceChange {
    fn from(change: BalanceChange) -> Self {
        Self {
            posting: change.posting,
            is_reserved: change.is_reserved,
            amount: Some(change.amount.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for kind in Kind::ALL {
            assert_eq!(TimelineKind::from(*kind).code(), Some(kind.code()));
        }
        for outcome in Outcome::ALL {
            let code = outcome.code().to_uppercase();
            let proto = TimelineOutcome::from(*outcome);
            assert_eq!(proto.code(), Some(code.as_str()));
        }
    }
}
