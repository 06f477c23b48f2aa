//! `POST /api/v1/payments/charge`: debits a mobile money wallet (spec §4.3).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chassis::{
    limits,
    money::{Currency, Money},
    phone::Phone,
};
use http::{HeaderMap, StatusCode};
use proto::charges::{ChargeAnswer, ChargeStatus, CreateChargeRequest, Provider};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
    idempotency::{self, IdempotencyKey},
};
use crate::{backend, edge::Edge, error::Error, front::RequestId, merchant::Merchant};

/// A validated request.
#[derive(Debug)]
struct ChargeOrder {
    amount: Money,
    mobile_number: Phone,
    provider: Provider,
    description: Option<String>,
    payer_email: Option<String>,
    payer_name: Option<String>,
    key: IdempotencyKey,
}

/// `ChargeReply` of the contract: a charge as the two POSTs answer it.
#[derive(Debug, Serialize)]
struct ChargeReply {
    reference: String,
    transaction_id: String,
    session_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    currency: &'static str,
    message: String,
}

pub async fn charge(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    body: Object,
) -> Result<Response, Error> {
    let debit = ChargeOrder::parse(body, &headers)?;
    let key = debit.key.clone();
    let answer = edge
        .charges
        .keyed(
            backend::RAIL_DEADLINE,
            debit.into_request(&merchant, request_id),
            |mut charges, request| async move { charges.create_charge(request).await },
        )
        .await?;
    let replayed = answer.replayed;
    let mut response = answered(answer)?;
    key.write_replayed(replayed, response.headers_mut());
    Ok(response)
}

/// The answer to both POSTs on a charge: 202, or 422 if it has FAILED (spec §4.3, §4.4).
pub fn answered(answer: ChargeAnswer) -> Result<Response, Error> {
    let charge = answer.charge.unwrap_or_default();
    let (code, status) = match charge.status() {
        // An early settlement is reported by the webhook and by reading the charge, not here.
        ChargeStatus::Settled => (StatusCode::ACCEPTED, ChargeStatus::Initiated),
        ChargeStatus::Failed => (StatusCode::UNPROCESSABLE_ENTITY, ChargeStatus::Failed),
        status @ (ChargeStatus::Initiated
        | ChargeStatus::OtpRequired
        | ChargeStatus::Unspecified) => (StatusCode::ACCEPTED, status),
    };
    let status = status.code();
    let status = status.ok_or_else(|| Error::internal("a charge without status"))?;
    let amount = charge.amount.unwrap_or_default();
    let amount = Money::try_from(&amount).map_err(Error::internal)?;
    let answered = ChargeReply {
        reference: charge.reference,
        transaction_id: charge.transaction_id,
        session_id: charge.session_id,
        status,
        amount: amount::to_json(amount),
        currency: amount.currency().code(),
        message: answer.message,
    };
    Ok((code, Json(answered)).into_response())
}

impl ChargeOrder {
    fn parse(body: Object, headers: &HeaderMap) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        let amount = fields.required("amount", |value| {
            Money::from_major(amount::parse(value)?, Currency::GHS).map_err(amount::fault)
        });
        let mobile_number = fields.required("mobile_number", fields::ghana_mobile);
        let provider = fields.required("provider", fields::provider);
        fields.optional("currency", fields::charge_currency);
        let description = fields::text(limits::DESCRIPTION_CHARACTERS_MAX);
        let name = fields::text(limits::NAME_CHARACTERS_MAX);
        let description = fields.optional("description", description).flatten();
        let payer_email = fields.optional("payer_email", fields::email);
        let payer_name = fields.optional("payer_name", name).flatten();
        let key = fields.checked(idempotency::HEADER, IdempotencyKey::of(headers));
        let required = amount.zip(mobile_number).zip(provider).zip(key);
        let debit = required.map(|(((amount, mobile_number), provider), key)| Self {
            amount,
            mobile_number,
            provider,
            description,
            payer_email,
            payer_name,
            key,
        });
        fields.finish(debit)
    }

    fn into_request(self, merchant: &Merchant, request_id: RequestId) -> CreateChargeRequest {
        CreateChargeRequest {
            merchant_id: merchant.id.to_string(),
            merchant_name: merchant.name.clone(),
            amount: Some(self.amount.into()),
            mobile_number: self.mobile_number.as_e164().to_owned(),
            provider: self.provider.into(),
            description: self.description,
            payer_email: self.payer_email,
            payer_name: self.payer_name,
            idempotency_key: self.key.marked(),
            hosted: None,
            asked_by: Some(merchant.asked_by(request_id)),
        }
    }
}
