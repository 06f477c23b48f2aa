//! `POST /api/v1/payments/initiate`: creates a payment session (spec §4.1).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chassis::{
    config::Mode,
    limits,
    money::{Currency, Money},
};
use http::{HeaderMap, StatusCode};
use proto::sessions::{CreateSessionRequest, Payer};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
    idempotency::{self, IdempotencyKey},
};
use crate::{
    backend, checkout::quote::ExchangeRates, edge::Edge, error::Error, field_error::as_code,
    merchant::Merchant,
};

/// A validated request.
#[derive(Debug)]
struct SessionOrder {
    amount: Money,
    description: Option<String>,
    redirect_url: Option<String>,
    customer_email: Option<String>,
    customer_name: Option<String>,
    customer_phone: Option<String>,
    key: IdempotencyKey,
}

/// `SessionCreated` of the contract.
#[derive(Debug, Serialize)]
struct SessionCreated {
    session_id: String,
    payment_url: String,
    amount: Box<RawValue>,
    currency: &'static str,
    expires_at: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

/// Points out a field that was left out but should be sent, or a currency in which nobody can pay
/// yet.
#[derive(Debug, Serialize)]
struct Warning {
    #[serde(serialize_with = "as_code")]
    code: WarningCode,
    field: &'static str,
    message: &'static str,
}

chassis::closed_list! {
    /// What a warning is about.
    pub enum WarningCode: "a warning's code" {
        CustomerEmailOmitted = "CUSTOMER_EMAIL_OMITTED",
        CustomerPhoneOmitted = "CUSTOMER_PHONE_OMITTED",
        CurrencyWithoutRate = "CURRENCY_WITHOUT_RATE",
    }
}

pub async fn initiate(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    headers: HeaderMap,
    body: Object,
) -> Result<Response, Error> {
    let order = SessionOrder::parse(body, &headers, edge.mode)?;
    let warnings = order.warnings(&edge.rates);
    let key = order.key.clone();
    let created = edge
        .new_sessions
        .keyed(
            backend::DEADLINE,
            order.into_request(&merchant),
            |sessions, request| async move { sessions.call(request).await },
        )
        .await?;
    let session = created.session.unwrap_or_default();
    let amount = session.amount.unwrap_or_default();
    let amount = Money::try_from(&amount).map_err(Error::internal)?;
    let answer = SessionCreated {
        payment_url: format!("{}/pay/{}", edge.checkout_url, session.session_id),
        session_id: session.session_id,
        amount: amount::to_json(amount),
        currency: amount.currency().code(),
        expires_at: session.expires_at,
        warnings,
    };
    let mut response = (StatusCode::CREATED, Json(answer)).into_response();
    key.write_replayed(created.replayed, response.headers_mut());
    Ok(response)
}

impl SessionOrder {
    fn parse(body: Object, headers: &HeaderMap, mode: Mode) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        let decimal = fields.required("amount", amount::parse);
        let is_given = fields.is_given("currency");
        let currency = fields.optional("currency", fields::currency);
        // Decimals can only be checked against a known currency.
        let currency = currency.or((!is_given).then_some(Currency::USD));
        let amount = match decimal.zip(currency) {
            Some((decimal, currency)) => fields.checked(
                "amount",
                Money::from_major(decimal, currency).map_err(amount::fault),
            ),
            None => None,
        };
        let description = fields::text(limits::DESCRIPTION_CHARACTERS_MAX);
        let name = fields::text(limits::NAME_CHARACTERS_MAX);
        let description = fields.optional("description", description).flatten();
        let redirect_url = fields.optional("redirect_url", fields::redirect_url(mode));
        let customer_email = fields.optional("customer_email", fields::email);
        let customer_name = fields.optional("customer_name", name).flatten();
        let customer_phone = fields.optional("customer_phone", fields::phone);
        let key = fields.checked(idempotency::HEADER, IdempotencyKey::of(headers));
        let order = amount.zip(key).map(|(amount, key)| Self {
            amount,
            description,
            redirect_url,
            customer_email,
            customer_name,
            customer_phone: customer_phone.map(|phone| phone.as_e164().to_owned()),
            key,
        });
        fields.finish(order)
    }

    /// Whether there is a rate is reported as of now, even if the answer is a repeated one.
    fn warnings(&self, rates: &ExchangeRates) -> Vec<Warning> {
        let email = self.customer_email.is_none().then_some(Warning {
            code: WarningCode::CustomerEmailOmitted,
            field: "customer_email",
            message: "customer_email will be required. It is the only identity of a payer who \
                      pays with crypto.",
        });
        let phone = self.customer_phone.is_none().then_some(Warning {
            code: WarningCode::CustomerPhoneOmitted,
            field: "customer_phone",
            message: "Send customer_phone: it fills in the mobile money number at checkout and \
                      is the best way to recognise a returning payer.",
        });
        let has_rate = rates.has(self.amount.currency());
        let rate = (!has_rate).then_some(Warning {
            code: WarningCode::CurrencyWithoutRate,
            field: "currency",
            message: "The session cannot be paid yet: there is no exchange rate from this \
                      currency to GHS, which mobile money is debited in.",
        });
        email.into_iter().chain(phone).chain(rate).collect()
    }

    fn into_request(self, merchant: &Merchant) -> CreateSessionRequest {
        CreateSessionRequest {
            merchant_id: merchant.id.to_string(),
            amount: Some(self.amount.into()),
            description: self.description,
            redirect_url: self.redirect_url,
            payer: Some(Payer {
                phone: self.customer_phone,
                email: self.customer_email,
                name: self.customer_name,
            }),
            idempotency_key: self.key.marked(),
        }
    }
}
