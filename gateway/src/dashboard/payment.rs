//! `/payments/{reference}`: one payment, what has happened to it, and what was refunded of it.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{failure::FailureReason, ids::Reference};
use http::StatusCode;
use proto::{
    charges::{Charge, ChargeStatus, ChargeTimeline, ListRefundsRequest},
    sessions::{GetSessionRequest, Session},
};

use super::{
    Dashboard,
    login::Login,
    money_out, networks,
    page::{Cell, DetailPage, Refusal, Section, Table},
    payments::{PATH, money, state},
    refunds,
    text::{Phrase, phrase},
    timeline::{self, About},
};
use crate::{
    api::timeline::{Entry, What, of_charge},
    backend,
    error::Error,
    pages::amount::{shown, unbroken},
};

/// Most refunds of one payment that its page shows.
const REFUNDS_MAX: u32 = 100;

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(&format!("{PATH}/{{reference}}"), get(show))
}

/// The reference in an address. What is none is no page.
pub fn reference(path: Result<Path<String>, PathRejection>) -> Result<Reference, Error> {
    let Path(reference) = path.map_err(|_| Error::NotFound)?;
    reference.parse().map_err(|_| Error::NotFound)
}

/// A payment as its page and the form for a refund need it.
pub struct Payment {
    pub charge: Charge,
    pub payer_masked: String,
    pub timeline: ChargeTimeline,
}

impl Dashboard {
    /// One of the login's merchant's payments.
    pub async fn find_payment(
        &self,
        login: &Login,
        reference: &Reference,
    ) -> Result<Payment, Error> {
        let mut timeline = of_charge(&self.charges, &login.merchant, reference).await?;
        let found = timeline.charge.take().unwrap_or_default();
        let charge = found.charge;
        let charge = charge.ok_or_else(|| Error::internal("a timeline without its charge"))?;
        Ok(Payment {
            charge,
            payer_masked: found.payer_masked,
            timeline,
        })
    }

    /// What a payment was for, if its session is still known.
    async fn session_of(&self, login: &Login, charge: &Charge) -> Result<Option<Session>, Error> {
        let request = GetSessionRequest {
            session_id: charge.session_id.clone(),
            merchant_id: login.merchant_id(),
        };
        let session = self.sessions.read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.get_session(request).await },
        );
        match session.await {
            Ok(session) => Ok(Some(session)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let reference = reference(path)?;
    let refunds = ListRefundsRequest {
        merchant_id: login.merchant_id(),
        page_size: REFUNDS_MAX,
        reference: reference.to_string(),
        ..ListRefundsRequest::default()
    };
    let (payment, refunds) = tokio::try_join!(
        dashboard.find_payment(&login, &reference),
        dashboard.list_refunds(refunds),
    )?;
    let Payment {
        charge,
        payer_masked,
        timeline,
    } = payment;
    let (session, history) = tokio::try_join!(
        dashboard.session_of(&login, &charge),
        dashboard.history(&login, timeline.entries),
    )?;

    let mut page = DetailPage::new(login.shell(Section::Payments, "Payment"));
    page.lead = lead(&charge, &history.entries);
    page.follow(&state(charge.status()));
    let mut sent_back = refunds.refunds.iter();
    page.goes_on = sent_back
        .any(|refund| money_out::state(refund.status(), refund.reversed_at.as_deref()).waits());
    page.facts = facts(&charge, &payer_masked, session.as_ref())?;
    let next_query_at = timeline.next_query_at;
    page.facts.extend(next_query_at.map(timeline::next_query));
    if let Some(left) = &timeline.refundable {
        let left = money(Some(left))?;
        page.facts
            .push(("Can be refunded", Cell::text(&shown(left))));
        if left.is_positive() {
            let address = format!("{PATH}/{reference}/refund");
            page.links.push(("Refund this payment", address));
        }
    }
    if !refunds.refunds.is_empty() {
        let rows = refunds.refunds.iter().map(refunds::row);
        page.table = Some(Table {
            caption: match !refunds.next_page_token.is_empty() {
                true => "The newest refunds",
                false => "Refunds",
            },
            columns: refunds::COLUMNS.to_vec(),
            rows: rows.collect::<Result<_, _>>()?,
        });
    }
    if timeline.has_more_refunds || !refunds.next_page_token.is_empty() {
        let all = format!("{}?q={reference}", refunds::PATH);
        let newest = Cell::phrase("Only the newest are shown here").action("All its refunds", &all);
        page.facts.push(("Refunds", newest));
    }
    history.show(&mut page, About::Payment);
    page.links.push(("All payments", PATH.to_owned()));
    Ok(page.respond(StatusCode::OK))
}

/// What there is to know at once: why it failed and what to do, or that nobody knows yet.
fn lead(charge: &Charge, entries: &[Entry]) -> Vec<Phrase> {
    let line = Phrase::from;
    match charge.status() {
        ChargeStatus::Failed => {
            let why = charge.failure_message.clone();
            let mut lines: Vec<Phrase> = why.map(Phrase::of_a_service).into_iter().collect();
            let reason = charge.failure_reason.as_deref();
            let reason = reason.and_then(|reason| reason.parse::<FailureReason>().ok());
            if let Some(reason) = reason {
                let told = reason.at_checkout();
                lines.push(phrase!(
                    "What a payer is told: {0}",
                    Phrase::from(told.english)
                ));
                lines.push(line(match told.is_uncharged {
                    true => "Nothing was debited.",
                    false => {
                        "If the network debits the payer after all, we notice it and see that the money arrives or goes back."
                    }
                }));
            }
            lines
        }
        ChargeStatus::Initiated | ChargeStatus::OtpRequired => {
            let mut said = entries
                .iter()
                .rev()
                .filter(|entry| entry.refund_id.is_none());
            let last = said.find_map(|entry| match &entry.what {
                What::Said { outcome, .. } => Some(*outcome),
                _ => None,
            });
            match last.flatten() {
                Some("UNKNOWN" | "REFERENCE_UNKNOWN") => vec![line(
                    "The outcome is not known yet: the network has given no clear answer. Nothing is lost; we ask it again until it answers. Do not charge the payer a second time meanwhile.",
                )],
                _ => vec![line(
                    "The payer has not finished yet. Load this page again to see how it ends.",
                )],
            }
        }
        ChargeStatus::Settled | ChargeStatus::Unspecified => Vec::new(),
    }
}

fn facts(
    charge: &Charge,
    payer: &str,
    session: Option<&Session>,
) -> Result<Vec<(&'static str, Cell)>, Error> {
    let network = networks::name(charge.provider());
    let mut facts = vec![
        ("Amount", Cell::text(&shown(money(charge.amount.as_ref())?))),
        ("State", state(charge.status())),
        ("Payer", Cell::text(&unbroken(payer)).detail(network)),
        ("Reference", Cell::id(&charge.reference)),
        ("Shown to the payer as", Cell::id(&charge.tx_id_display)),
        ("Session", Cell::id(&charge.session_id)),
        ("Created", Cell::time(&charge.created_at)),
        ("Last change", Cell::time(&charge.updated_at)),
    ];
    let Some(session) = session else {
        return Ok(facts);
    };
    if let Some(asked) = &session.amount
        && charge.amount.as_ref() != Some(asked)
    {
        facts.push(("Asked for", Cell::text(&shown(money(Some(asked))?))));
    }
    let payer = session.payer.clone().unwrap_or_default();
    let texts = [
        ("What for", session.description.clone()),
        ("Payer's name", payer.name),
        ("Payer's e-mail", payer.email),
    ];
    let known = texts
        .into_iter()
        .filter_map(|(label, text)| Some((label, Cell::text(&text?))));
    facts.extend(known);
    Ok(facts)
}
