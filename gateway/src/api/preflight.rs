//! `POST /api/v1/payments/charge/preflight`: what can be told of a charge before it is asked for.
//! Nobody is prompted and nothing is recorded. Additive.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use chassis::{
    limits::AMOUNT_HUNDREDTHS_MAX,
    money::{Currency, Money},
    phone::Phone,
};
use proto::charges::{CheckWalletRequest, Provider};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
};
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// What the numbers of each network begin with. Numbers are portable, so it is a hint.
const PREFIXES: &[(&str, Provider)] = &[
    ("024", Provider::Mtn),
    ("025", Provider::Mtn),
    ("053", Provider::Mtn),
    ("054", Provider::Mtn),
    ("055", Provider::Mtn),
    ("059", Provider::Mtn),
    ("020", Provider::Telecel),
    ("050", Provider::Telecel),
    ("026", Provider::At),
    ("027", Provider::At),
    ("056", Provider::At),
    ("057", Provider::At),
];

/// `Preflight` of the contract.
#[derive(Debug, Serialize)]
pub struct Preflight {
    /// As the merchant gave it, in the form in which we keep it.
    mobile_number: String,
    provider: Option<&'static str>,
    likely_network: Option<&'static str>,
    wallet: &'static str,
    limits: Limits,
}

/// What one charge may be.
#[derive(Debug, Serialize)]
struct Limits {
    least: Box<RawValue>,
    most: Box<RawValue>,
    currency: &'static str,
}

/// A validated request.
#[derive(Debug)]
struct Intended {
    mobile_number: Phone,
    provider: Provider,
}

pub async fn preflight(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    body: Object,
) -> Result<Json<Preflight>, Error> {
    let Intended {
        mobile_number,
        provider,
    } = Intended::parse(body)?;
    edge.rate_limits
        .check_number(merchant.id, &mobile_number)
        .await
        .map_err(Error::RateLimited)?;
    let request = CheckWalletRequest {
        mobile_number: mobile_number.as_e164().to_owned(),
        provider: provider.into(),
    };
    let answer = edge
        .charges
        .read(
            backend::RAIL_DEADLINE,
            request,
            |mut charges, request| async move { charges.check_wallet(request).await },
        )
        .await?;
    let wallet = answer.wallet().code();
    Ok(Json(Preflight {
        likely_network: likely_network(&mobile_number).and_then(Provider::code),
        mobile_number: mobile_number.as_e164().to_owned(),
        provider: provider.code(),
        wallet: wallet.ok_or_else(|| Error::internal("a wallet without state"))?,
        limits: Limits {
            least: amount::to_json(Money::new(1, Currency::GHS)),
            most: amount::to_json(Money::new(AMOUNT_HUNDREDTHS_MAX, Currency::GHS)),
            currency: Currency::GHS.code(),
        },
    }))
}

fn likely_network(number: &Phone) -> Option<Provider> {
    let local = number.local();
    let known = PREFIXES
        .iter()
        .find(|(prefix, _)| local.starts_with(prefix));
    known.map(|(_, provider)| *provider)
}

impl Intended {
    fn parse(body: Object) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        let mobile_number = fields.required("mobile_number", fields::ghana_mobile);
        let provider = fields.required("provider", fields::provider);
        fields.optional("amount", |value| {
            Money::from_major(amount::parse(value)?, Currency::GHS).map_err(amount::fault)
        });
        fields.optional("currency", fields::charge_currency);
        let required = mobile_number.zip(provider);
        fields.finish(required.map(|(mobile_number, provider)| Self {
            mobile_number,
            provider,
        }))
    }
}
