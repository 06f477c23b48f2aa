//! `/balance`: what a merchant has collected and has not been paid out.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Router, extract::State, response::Response, routing::get};
use chassis::money::{Currency, Money};
use http::StatusCode;
use proto::{
    charges::{GetBalanceRequest, GetBalanceResponse},
    money::Money as ProtoMoney,
};

use super::{
    Dashboard,
    login::Login,
    page::{Cell, Refusal, Section, TablePage},
    payments::money,
};
use crate::{backend, error::Error, pages::amount::shown};

const PATH: &str = "/balance";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(PATH, get(show))
}

impl Dashboard {
    pub async fn balance(&self, login: &Login) -> Result<GetBalanceResponse, Error> {
        let request = GetBalanceRequest {
            merchant_id: login.merchant_id(),
        };
        let balance = self.charges.read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_balance(request).await },
        );
        balance.await
    }
}

/// What is available of a currency.
pub fn available(balance: &GetBalanceResponse, currency: Currency) -> Result<Money, Error> {
    let of = by_currency(&balance.available)?;
    let found = of.get(currency.code()).copied();
    Ok(found.unwrap_or_else(|| Money::new(0, currency)))
}

fn by_currency(of: &[ProtoMoney]) -> Result<BTreeMap<&'static str, Money>, Error> {
    let read = of.iter().map(|amount| money(Some(amount)));
    read.map(|money| money.map(|money| (money.currency().code(), money)))
        .collect()
}

async fn show(State(dashboard): State<Arc<Dashboard>>, login: Login) -> Result<Response, Refusal> {
    let balance = dashboard.balance(&login).await?;
    let shell = login.shell(Section::Balance, "Balance");
    let mut page = TablePage::new(shell, &["Currency", "Available", "Reserved"]);
    page.lead = vec![
        "Available is what you have collected and can be paid out. Reserved is on its way out, in payouts and refunds that have not ended.",
    ];
    page.caption = "What you have";
    page.button = Some(("Payouts", "/payouts".to_owned()));
    let available = by_currency(&balance.available)?;
    let reserved = by_currency(&balance.reserved)?;
    let mut all: BTreeMap<&str, Currency> = BTreeMap::from([("GHS", Currency::GHS)]);
    let known = available.values().chain(reserved.values());
    all.extend(known.map(|money| (money.currency().code(), money.currency())));
    page.rows = all
        .into_values()
        .map(|currency| {
            let of = |amounts: &BTreeMap<&str, Money>| {
                let found = amounts.get(currency.code()).copied();
                Cell::amount(shown(found.unwrap_or_else(|| Money::new(0, currency))))
            };
            vec![Cell::text(currency.code()), of(&available), of(&reserved)]
        })
        .collect();
    Ok(page.respond(StatusCode::OK))
}
