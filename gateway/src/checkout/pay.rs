//! `POST /pay/{session_id}`: turns the form into a charge.
//!
//! The answer never says what became of the charge; the page that it redirects to does.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use chassis::phone::Phone;
use http::{HeaderMap, StatusCode};
use proto::charges::{CreateChargeRequest, HostedSession, Provider};
use uuid::Uuid;

use super::{
    Checkout,
    abuse::PaymentTry,
    or_refusal,
    page::Form,
    quote::Quote,
    see,
    situation::{PageState, Situation},
    text::Text,
    view::SessionView,
    visitor::Visitor,
};
use crate::{
    backend,
    error::Error,
    merchant::{Merchant, Purpose},
    pages::{form::FormFields, same_site},
};

pub async fn pay(
    State(checkout): State<Arc<Checkout>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answered = answer(&checkout, &visitor, &headers, body).await;
    or_refusal(&visitor, answered)
}

async fn answer(
    checkout: &Checkout,
    visitor: &Visitor,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    if !same_site::is_ours(headers) {
        return Err(Error::CrossSite);
    }
    let session = visitor.session()?;
    let fields = FormFields::read(headers, body).await?;
    let situation = checkout.look_up(visitor, session).await?;
    // Another tab or device was quicker, or this one sent its form twice.
    if !matches!(situation.state, PageState::Form | PageState::Failed) {
        return Ok(see(visitor));
    }
    let merchant = situation.merchant(checkout).await?;
    let view = SessionView {
        visitor,
        situation: &situation,
        merchant: &merchant,
    };
    if merchant.may(Purpose::TakePayment).is_err() {
        return Ok(see(visitor));
    }
    let Some(quote) = checkout.rates.quote(situation.asked) else {
        return Ok(view.no_rate());
    };
    let entered = PayerInput::read(&fields, &situation, visitor.text);
    if fields.get("quote") != quote.carried().unwrap_or_default() {
        let form = entered.with_notice(visitor.text.rate_changed);
        return Ok(view.form(StatusCode::CONFLICT, &quote, &form));
    }
    let PayerInput { form, chosen } = entered;
    let Some((provider, number)) = chosen else {
        return Ok(view.form(StatusCode::UNPROCESSABLE_ENTITY, &quote, &form));
    };
    let tried = PaymentTry {
        session: situation.id,
        address: visitor.address,
        number: number.clone(),
    };
    if let Err(wait) = checkout.abuse.take(&tried) {
        return Ok(view.too_many(&quote, form, wait));
    }
    let request = request(&view, &merchant, &quote, (provider, &number), &form.attempt);
    let charged = checkout.charges.keyed(
        backend::RAIL_DEADLINE,
        request,
        |mut charges, request| async move { charges.create_charge(request).await },
    );
    let charged = charged.await;
    let is_new = charged.as_ref().is_ok_and(|answer| !answer.replayed);
    if !is_new && !matches!(charged, Err(Error::OutcomeUnknown)) {
        checkout.abuse.give_back(&tried);
    }
    match charged {
        // The page shows what became of it, even if an earlier charge stands.
        Ok(_)
        | Err(
            Error::SessionNotPayable
            | Error::OutcomeUnknown
            | Error::IdempotencyInProgress
            | Error::IdempotencyKeyReused,
        ) => Ok(see(visitor)),
        Err(Error::NothingStarted) => {
            let form = Form {
                notice: Some(visitor.text.nothing_sent.to_owned()),
                ..form
            };
            Ok(view.form(StatusCode::SERVICE_UNAVAILABLE, &quote, &form))
        }
        Err(error) => Err(error),
    }
}

/// What the payer entered.
struct PayerInput {
    form: Form,
    /// Network and number, if both are valid.
    chosen: Option<(Provider, Phone)>,
}

impl PayerInput {
    fn read(fields: &FormFields, situation: &Situation, text: &Text) -> Self {
        let network = fields.get("network");
        let provider = Provider::from_code(network);
        let kept = situation.kept_number();
        let other_number = kept.is_none() || fields.get("number") != "kept";
        let typed = fields.get("mobile_number");
        let number = if other_number {
            let wrong = if typed.is_empty() {
                text.enter_number
            } else {
                text.wrong_number_form
            };
            Phone::parse_ghana_mobile(typed).map_err(|_| wrong)
        } else {
            kept.ok_or(text.enter_number)
        };
        // A form without a valid attempt is not one of ours, and gets a new attempt.
        let attempt = Uuid::try_parse(fields.get("attempt")).unwrap_or_else(|_| Uuid::new_v4());
        let form = Form {
            attempt: attempt.simple().to_string(),
            network: network.to_owned(),
            other_number,
            mobile_number: typed.chars().take(30).collect(),
            network_error: provider.is_none().then_some(text.choose_network),
            number_error: number.as_ref().err().copied(),
            notice: None,
        };
        Self {
            form,
            chosen: provider.zip(number.ok()),
        }
    }

    fn with_notice(self, notice: &str) -> Form {
        Form {
            notice: Some(notice.to_owned()),
            network_error: None,
            number_error: None,
            ..self.form
        }
    }
}

fn request(
    view: &SessionView<'_>,
    merchant: &Merchant,
    quote: &Quote,
    (provider, number): (Provider, &Phone),
    attempt: &str,
) -> CreateChargeRequest {
    let session = &view.situation.session;
    let payer = session.payer.clone().unwrap_or_default();
    CreateChargeRequest {
        merchant_id: session.merchant_id.clone(),
        merchant_name: merchant.name.clone(),
        amount: Some(quote.debit.into()),
        mobile_number: number.as_e164().to_owned(),
        provider: provider.into(),
        description: session.description.clone(),
        payer_email: payer.email,
        payer_name: payer.name,
        idempotency_key: format!("p:{}:{attempt}", session.session_id),
        hosted: Some(HostedSession {
            session_id: session.session_id.clone(),
            amount: session.amount.clone(),
            rate: quote.rate.clone(),
        }),
        // The payer does.
        asked_by: None,
    }
}
