//! What has happened to a payment, a payout or a refund, as its page shows it.

use std::collections::HashMap;

use chassis::failure::FailureReason;
use proto::charges::{DisbursementTimeline, TimelineEntry};

use super::{
    Dashboard,
    login::Login,
    page::{Cell, DetailPage, Moment},
    text::{self, Text, phrase},
};
use crate::{
    api::timeline::{Amount, DELIVERY_ATTEMPT, Entry, What, deliveries, merged},
    error::Error,
    pages::{self, amount::shown},
};

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Payment,
    Payout,
    Refund,
}

/// What has happened, with what became of the events.
#[derive(Debug)]
pub struct History {
    pub entries: Vec<Entry>,
    /// What became of the events cannot be read, and is not among it.
    lacks_deliveries: bool,
}

impl Dashboard {
    pub async fn history(
        &self,
        login: &Login,
        entries: Vec<TimelineEntry>,
    ) -> Result<History, Error> {
        let deliveries = deliveries(&self.events, &login.merchant, &entries).await;
        let deliveries = deliveries.inspect_err(pages::report);
        let lacks_deliveries = deliveries.is_err();
        let deliveries = deliveries.unwrap_or_else(|_| HashMap::new());
        Ok(History {
            entries: merged(entries, deliveries)?,
            lacks_deliveries,
        })
    }

    /// Shows on its page what has happened to a payout or a refund. The page does without it.
    pub async fn show_timeline(
        &self,
        page: &mut DetailPage,
        login: &Login,
        about: About,
        timeline: Result<DisbursementTimeline, Error>,
    ) {
        let history = async {
            let timeline = timeline?;
            let history = self.history(login, timeline.entries).await?;
            Ok((history, timeline.next_query_at))
        };
        match history.await.inspect_err(pages::report) {
            Ok((history, next_query_at)) => {
                history.show(page, about);
                page.facts.extend(next_query_at.map(next_query));
            }
            Err(_) => {
                let line = "What has happened to it cannot be shown right now.";
                page.lead.push(line.into());
            }
        }
    }
}

impl History {
    pub fn show(&self, page: &mut DetailPage, about: About) {
        if self.lacks_deliveries {
            let line = "The webhooks that were sent cannot be shown right now.";
            page.lead.push(line.into());
        }
        page.goes_on |= self.entries.iter().any(|entry| {
            let pending = Some("PENDING");
            matches!(&entry.what, What::Event { delivery_status, .. } if *delivery_status == pending)
        });
        let moments = self.entries.iter();
        page.moments = moments.map(|entry| moment(entry, about)).collect();
    }
}

/// The fact that tells when the network is asked next.
pub fn next_query(at: String) -> (&'static str, Cell) {
    ("The network is asked next", Cell::time(&at))
}

/// What is copied from here, if it is known.
fn id(name: &'static str, id: Option<&String>) -> Option<(&'static str, Cell)> {
    id.map(|id| (name, Cell::id(id)))
}

/// Who asked for it, as far as it is known.
fn asked_by(key_name: Option<&String>, request_id: Option<&String>) -> Vec<(&'static str, Cell)> {
    let key = key_name.map(|name| ("API key", Cell::text(name)));
    key.into_iter().chain(id("Request", request_id)).collect()
}

fn moment(entry: &Entry, about: About) -> Moment {
    let mut shown = match &entry.what {
        What::Request {
            amount: Amount(of),
            request_id,
            key_name,
            at_checkout,
        } => Moment {
            phrase: asked_for(about, entry.refund_id.is_some()),
            told: match at_checkout {
                true => "By the payer at the checkout.",
                false => "",
            },
            detail: shown(*of).into(),
            named: asked_by(key_name.as_ref(), request_id.as_ref()),
            ..Moment::default()
        },
        What::Prompt {} => Moment {
            phrase: "The payer has the prompt",
            ..Moment::default()
        },
        What::Said {
            outcome,
            times,
            last_at,
            network_reference,
        } => Moment {
            named: id("Reference at the network", network_reference.as_ref())
                .into_iter()
                .collect(),
            ..said(entry.kind, *outcome, *times, last_at)
        },
        What::Status {
            status,
            failure_reason,
        } => ended(status, failure_reason.as_deref()),
        What::Ledger {
            posting,
            account,
            amount: Amount(of),
        } => balance_change(account, &format!("{} ({posting})", shown(*of))),
        What::Event {
            event_id,
            event_type,
            delivery_status,
            ..
        } => event(event_id, event_type.as_deref(), *delivery_status),
        What::Attempt {
            number,
            succeeded,
            http_status,
            error,
            duration_ms,
            finished_at,
            ..
        } => {
            let status = http_status.map(|status| format!("HTTP {status}"));
            let said = status.or_else(|| error.clone()).unwrap_or_default();
            let detail = format!("#{number} · {said} · {duration_ms} ms");
            attempt(finished_at.is_some().then_some(*succeeded), detail)
        }
    };
    shown.at.clone_from(&entry.at);
    if entry.kind != DELIVERY_ATTEMPT
        && let Some(refund_id) = &entry.refund_id
    {
        shown.detail = phrase!("{0} {1}", refund_id, shown.detail).into();
    }
    shown
}

fn asked_for(about: About, is_refund: bool) -> &'static str {
    match (about, is_refund) {
        (About::Refund, _) | (_, true) => "Refund asked for",
        (About::Payment, false) => "Payment asked for",
        (About::Payout, false) => "Payout asked for",
    }
}

fn balance_change(account: &str, detail: &str) -> Moment {
    Moment {
        phrase: match account {
            "RESERVED" => "What is reserved changed",
            _ => "Your balance changed",
        },
        detail: detail.into(),
        ..Moment::default()
    }
}

/// `None`: it runs.
fn attempt(succeeded: Option<bool>, detail: String) -> Moment {
    let (phrase, state) = match succeeded {
        None => ("Webhook is being sent", "wait"),
        Some(true) => ("Webhook answered", "good"),
        Some(false) => ("Webhook failed", "bad"),
    };
    Moment {
        phrase,
        state,
        detail: detail.into(),
        ..Moment::default()
    }
}

fn event(event_id: &str, event_type: Option<&str>, delivery_status: Option<&str>) -> Moment {
    Moment {
        phrase: "Event for your webhook.",
        told: match delivery_status {
            None => "No endpoint was set for it.",
            Some("PENDING") => "On its way.",
            Some("DELIVERED") => "Delivered.",
            Some("EXHAUSTED") => "Given up after all attempts.",
            Some(_) => "",
        },
        detail: event_type.unwrap_or_default().into(),
        named: vec![("Event", Cell::id(event_id))],
        ..Moment::default()
    }
}

fn said(kind: &str, outcome: Option<&'static str>, times: u32, last_at: &str) -> Moment {
    Moment {
        phrase: match kind {
            "NETWORK_REQUEST" => "Sent to the network.",
            "OTP" => "The payer's code was passed on.",
            "CALLBACK" => "The network called back.",
            _ => "We asked the network.",
        },
        told: match kind {
            "CALLBACK" => "A hint only: we ask the network ourselves.",
            _ => outcome
                .map(|outcome| outcome_words(kind, outcome))
                .unwrap_or_default(),
        },
        detail: match times {
            0 | 1 => Text::default(),
            times => phrase!(
                "{0} times, last at {1}",
                times.to_string(),
                text::moment(last_at)
            )
            .into(),
        },
        ..Moment::default()
    }
}

fn ended(status: &str, failure_reason: Option<&str>) -> Moment {
    let (phrase, state) = match status {
        "SETTLED" => ("Settled", "good"),
        "COMPLETED" => ("Arrived", "good"),
        "FAILED" => ("Failed", "bad"),
        _ => ("Ended", "idle"),
    };
    let reason = failure_reason.and_then(|reason| reason.parse::<FailureReason>().ok());
    Moment {
        phrase,
        state,
        told: reason.map(FailureReason::message).unwrap_or_default(),
        ..Moment::default()
    }
}

/// What a network said, in words.
fn outcome_words(kind: &str, code: &str) -> &'static str {
    match code {
        "ACCEPTED" if kind == "OTP" => "The network accepted it.",
        "ACCEPTED" => "It accepted the request.",
        "OTP_REQUIRED" => "It wants a code from the payer.",
        "REFUSED" => "It refused. Nothing was or will be moved.",
        "NOT_SENT" => "It could not be reached, so nothing was sent.",
        "SENT_AGAIN" => "It is sent once more, under the same reference.",
        "ALREADY_KNOWN" => "It has this request already.",
        "WRONG_CODE" => "The code was wrong.",
        "EXPIRED" => "The code has expired.",
        "PENDING" => "It has not ended yet.",
        "ABANDONED" => "The payer has not paid so far.",
        "SUCCEEDED" => "It succeeded.",
        "FAILED" => "It failed.",
        "REVERSED" => "It was reversed: the money went back.",
        "REFERENCE_UNKNOWN" => "It does not know this request.",
        "UNKNOWN" => "No clear answer.",
        _ => "",
    }
}
