//! `GET /api/v1/balance`: what a merchant has collected and has not been paid out. Additive.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State};
use chassis::money::{Currency, Money};
use proto::{charges::GetBalanceRequest, money::Money as ProtoMoney};
use serde::Serialize;
use serde_json::value::RawValue;

use super::amount;
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// `BalanceShown` of the contract.
#[derive(Debug, Serialize)]
pub struct BalanceShown {
    balances: Vec<CurrencyBalance>,
    payout_fee: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct CurrencyBalance {
    currency: &'static str,
    available: Box<RawValue>,
    reserved: Box<RawValue>,
}

pub async fn balance(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
) -> Result<Json<BalanceShown>, Error> {
    let request = GetBalanceRequest {
        merchant_id: merchant.id.to_string(),
        with_suspense: false,
    };
    let balance = edge
        .charges
        .read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_balance(request).await },
        )
        .await?;
    let available = by_currency(&balance.available)?;
    let reserved = by_currency(&balance.reserved)?;
    let mut currencies: Vec<Currency> = [Currency::GHS].into();
    let others = available.values().chain(reserved.values());
    currencies.extend(others.map(|money| money.currency()));
    currencies.sort_by_key(|currency| currency.code());
    currencies.dedup();
    let shown = |of: &BTreeMap<&str, Money>, currency: Currency| {
        let money = of.get(currency.code()).copied();
        amount::to_json(money.unwrap_or_else(|| Money::new(0, currency)))
    };
    let balances = currencies.into_iter().map(|currency| CurrencyBalance {
        currency: currency.code(),
        available: shown(&available, currency),
        reserved: shown(&reserved, currency),
    });
    let payout_fee = balance.payout_fee.as_ref().map(Money::try_from);
    let payout_fee = payout_fee.transpose().map_err(Error::internal)?;
    Ok(Json(BalanceShown {
        payout_fee: payout_fee.map(amount::to_json),
        balances: balances.collect(),
    }))
}

fn by_currency(of: &[ProtoMoney]) -> Result<BTreeMap<&'static str, Money>, Error> {
    let read = |money| Money::try_from(money).map_err(Error::internal);
    of.iter()
        .map(|money| read(money).map(|money| (money.currency().code(), money)))
        .collect()
}
