//! `/payments/{reference}/refund`: the form that refunds a payment, whole or in part.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{ids::Reference, money::Money};
use http::StatusCode;
use proto::{
    charges::{Charge, CreateRefundRequest},
    merchants::Action,
};

use super::{
    Dashboard,
    login::{Confirmed, Login, Sent, SentConfirmed},
    money_out::{self, Nonce},
    page::{FormPage, MessagePage, Refusal, Section},
    payment::{self, Payment},
    payments, refunds,
    text::{Phrase, phrase},
};
use crate::{
    backend,
    error::{DisbursementRefusal, Error},
    pages::{amount::shown, see},
};

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(
        &format!("{}/{{reference}}/refund", payments::PATH),
        get(show_new).post(create),
    )
}

/// A settled payment and what is left of it, or the page that says why nothing can be refunded.
async fn refundable(
    dashboard: &Dashboard,
    login: &Login,
    reference: &Reference,
) -> Result<Result<(Charge, Money), Response>, Error> {
    let Payment {
        charge, timeline, ..
    } = dashboard.find_payment(login, reference).await?;
    let refuse = |line| {
        let shell = login.shell(Section::Payments, "Nothing to refund");
        let back = format!("{}/{reference}", payments::PATH);
        let page = MessagePage::saying(shell, line).next("Back to the payment", &back);
        page.respond(StatusCode::CONFLICT)
    };
    let Some(left) = &timeline.refundable else {
        return Ok(Err(refuse("Only a settled payment can be refunded.")));
    };
    let left = payments::money(Some(left))?;
    if !left.is_positive() {
        return Ok(Err(refuse("Nothing is left of this payment to refund.")));
    }
    Ok(Ok((charge, left)))
}

fn form(
    login: &Login,
    charge: &Charge,
    left: Option<Money>,
    (typed, nonce): (&str, Nonce),
) -> FormPage {
    let shell = login.shell(Section::Payments, "Refund a payment");
    let mut page = FormPage::new(shell, "", "Refund it");
    page.lead = vec![phrase!("Payment {0}", &charge.reference)];
    page.lead
        .extend(left.map(|left| phrase!("Can be refunded: {0}", shown(left))));
    let line = "The money goes back to the wallet that paid, and cannot be called back.";
    page.lead.push(line.into());
    page.hidden = vec![nonce];
    page.fields = vec![money_out::amount_field(typed).hint("All of it, or a part.")];
    page.is_grave = true;
    page.links = vec![("All payments", payments::PATH)];
    page
}

async fn show_new(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let reference = payment::reference(path)?;
    if let Some(refusal) = login.moves_no_money() {
        return Ok(refusal);
    }
    match refundable(&dashboard, &login, &reference).await? {
        Ok((charge, left)) => {
            let all = left.to_major().to_string();
            let page = form(&login, &charge, Some(left), (&all, money_out::new_nonce()));
            Ok(page.respond(StatusCode::OK))
        }
        Err(refused) => Ok(refused),
    }
}

async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    path: Result<Path<String>, PathRejection>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    let reference = payment::reference(path)?;
    if let Some(refusal) = login.moves_no_money() {
        return Ok(refusal);
    }
    let typed = fields.get("amount");
    let Payment { charge, .. } = dashboard.find_payment(&login, &reference).await?;
    let refuse = |nonce, status, error: Option<Phrase>, notice: Option<Phrase>| {
        let mut page = form(&login, &charge, None, (typed, nonce));
        page.fields = vec![money_out::amount_field(typed).error(error)];
        Ok(page.refuse(status, notice))
    };
    let amount = match money_out::parse_amount(typed) {
        Ok(amount) => amount,
        Err(error) => {
            let same = money_out::same_nonce(&fields);
            return refuse(same, StatusCode::BAD_REQUEST, Some(error), None);
        }
    };
    let Some(idempotency_key) = money_out::key(&fields) else {
        let notice = "This form was not whole. Look at it once more and send it again.";
        let nonce = money_out::new_nonce();
        return refuse(nonce, StatusCode::BAD_REQUEST, None, Some(notice.into()));
    };
    let object = format!("{} of {reference}", shown(amount));
    dashboard
        .note_form(&login, Action::RefundRequested, &object, &idempotency_key)
        .await?;
    let request = CreateRefundRequest {
        merchant_id: login.merchant_id(),
        reference: reference.to_string(),
        amount: Some(amount.into()),
        idempotency_key,
        // By a person, whom the activity names.
        asked_by: None,
    };
    let made = dashboard.disbursements.keyed(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move { disbursements.create_refund(request).await },
    );
    match made.await {
        Ok(answer) => {
            let refund = answer.refund.unwrap_or_default();
            Ok(see(&format!("{}/{}", refunds::PATH, refund.refund_id)))
        }
        Err(Error::DisbursementRefused { why, replayed }) => {
            let (error, notice) = told(why, replayed)?;
            let next = money_out::next_nonce(&fields);
            refuse(next, StatusCode::CONFLICT, error, notice)
        }
        Err(Error::Validation(faults)) => {
            let next = money_out::next_nonce(&fields);
            let mut page = form(&login, &charge, None, (typed, next));
            let notice = super::page::blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::IdempotencyKeyReused | Error::IdempotencyInProgress) => {
            let payment = format!("{}/{reference}", payments::PATH);
            let next = ("Back to the payment", payment.as_str());
            Ok(money_out::sent_before(&login, Section::Payments, next))
        }
        Err(error) => Err(error.into()),
    }
}

/// Why the form was refused: what is wrong with the amount, or a notice.
fn told(
    why: DisbursementRefusal,
    replayed: bool,
) -> Result<(Option<Phrase>, Option<Phrase>), Error> {
    Ok(match why {
        // What it carries is as old as the first answer.
        _ if replayed => (None, Some(money_out::REFUSED_BEFORE.into())),
        DisbursementRefusal::RefundExceedsCharge(left) => {
            let error = phrase!("Only {0} is left of this payment.", shown(left));
            (Some(error), None)
        }
        DisbursementRefusal::InsufficientBalance(available) => {
            let error = phrase!("Your balance has only {0} available.", shown(available));
            (Some(error), None)
        }
        DisbursementRefusal::ChargeNotSettled => {
            (None, Some("Only a settled payment can be refunded.".into()))
        }
        // About payouts.
        DisbursementRefusal::PayoutsNotEnabled | DisbursementRefusal::PayoutAccountOnHold(_) => {
            return Err(Error::DisbursementRefused { why, replayed });
        }
    })
}
