//! `POST /api/v1/payments/initiate`: creates a payment session (spec §4.1).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chassis::{
    config::Mode,
    money::{Currency, Money},
};
use http::{HeaderMap, StatusCode};
use proto::sessions::{CreateSessionRequest, Payer};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
    idempotency::{self, IdempotencyKey, IdempotencyKeyHeader},
    openapi::schemas,
};
use crate::{Edge, backend, checkout::quote::Rates, error::Error, merchant::Merchant};

/// A payment session that a payer can open and pay.
#[derive(ToSchema)]
#[expect(dead_code, reason = "documents what Order::parse reads")]
pub struct InitiateRequest {
    /// What the payer is asked for.
    #[schema(value_type = schemas::Amount)]
    amount: (),
    /// The currency of the amount. Where the operator has no exchange rate for it, the answer carries
    /// a warning: the session cannot be paid until there is one.
    #[schema(value_type = Option<schemas::Currency>, default = "USD")]
    currency: (),
    /// Shown at checkout.
    #[schema(value_type = Option<schemas::Description>)]
    description: (),
    /// Where the payer is sent after paying, with `session_id` and `status` added. Being sent
    /// there is no proof of payment.
    #[schema(value_type = Option<schemas::WebAddress>)]
    redirect_url: (),
    /// Will become required. While it is left out, the answer carries a warning.
    #[schema(value_type = Option<schemas::Email>)]
    customer_email: (),
    /// Shown in the customer directory.
    #[schema(value_type = Option<schemas::PersonName>)]
    customer_name: (),
    /// Fills in the mobile money number at checkout. While it is left out, the answer carries a
    /// warning.
    #[schema(value_type = Option<schemas::PhoneNumber>)]
    customer_phone: (),
}

/// What a merchant asks for.
#[derive(Debug)]
struct Order {
    amount: Money,
    description: Option<String>,
    redirect_url: Option<String>,
    customer_email: Option<String>,
    customer_name: Option<String>,
    customer_phone: Option<String>,
    key: IdempotencyKey,
}

/// A new payment session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionCreated {
    #[schema(value_type = schemas::SessionId)]
    session_id: String,
    /// Hand this address to the payer.
    #[schema(
        format = "uri",
        examples("https://pay.example.com/pay/3f0d6c1e-6a0b-4a52-9a2b-7d1c1a5a8e10")
    )]
    payment_url: String,
    #[schema(value_type = schemas::Amount)]
    amount: Box<RawValue>,
    #[schema(value_type = schemas::Currency)]
    currency: &'static str,
    /// 24 hours after its creation.
    #[schema(value_type = schemas::Timestamp)]
    expires_at: String,
    /// Left out when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    warnings: Vec<Warning>,
}

/// Tells of a field that was left out and had better be sent, or of a currency in which nobody can
/// pay yet. More codes may come: ignore one that you do not know.
#[derive(Debug, Serialize, ToSchema)]
struct Warning {
    code: WarningCode,
    /// The field that it is about.
    field: &'static str,
    /// For people.
    message: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum WarningCode {
    CustomerEmailOmitted,
    CustomerPhoneOmitted,
    CurrencyWithoutRate,
}

/// Create a payment session
///
/// Makes a payment link for a customer. Hand its `payment_url` to the customer, who pays on the
/// hosted checkout within 24 hours.
#[utoipa::path(
    post,
    path = "/api/v1/payments/initiate",
    tag = "Payment sessions",
    params(IdempotencyKeyHeader),
    request_body = InitiateRequest,
    responses((status = 201, description = "The session was created.", body = SessionCreated)),
)]
pub async fn initiate(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    headers: HeaderMap,
    body: Object,
) -> Result<Response, Error> {
    let order = Order::parse(body, &headers, edge.mode)?;
    let warnings = order.warnings(&edge.rates);
    let key = order.key.clone();
    let created = edge
        .sessions
        .keyed(
            backend::DEADLINE,
            order.into_request(&merchant),
            |mut sessions, request| async move { sessions.create_session(request).await },
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

impl Order {
    fn parse(body: Object, headers: &HeaderMap, mode: Mode) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        let decimal = fields.required("amount", amount::parse);
        let is_given = fields.is_given("currency");
        let currency = fields.optional("currency", fields::currency);
        // Without a currency that is understood, nothing can be said about decimals.
        let currency = currency.or((!is_given).then_some(Currency::USD));
        let amount = match decimal.zip(currency) {
            Some((decimal, currency)) => fields.checked(
                "amount",
                Money::from_major(decimal, currency).map_err(amount::fault),
            ),
            None => None,
        };
        let description = fields::text(fields::DESCRIPTION_CHARACTERS_MAX);
        let name = fields::text(fields::NAME_CHARACTERS_MAX);
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

    /// Whether there is a rate is told as of now, also where the answer is a repeated one.
    fn warnings(&self, rates: &Rates) -> Vec<Warning> {
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
