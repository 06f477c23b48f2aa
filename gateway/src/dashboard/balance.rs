//! `/balance`: what a merchant has collected and has not been paid out, and the statement of each day
//! that adds up to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Router,
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use chassis::{
    clock::Day,
    money::{Currency, Money},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use proto::{
    charges::{GetBalanceRequest, GetBalanceResponse, ReadStatementRequest, StatementFormat},
    money::Money as ProtoMoney,
};

use super::{
    Dashboard,
    enter::parameter,
    login::Login,
    page::{Cell, Control, Field, FilterForm, Refusal, Section, TablePage},
    payments::money,
};
use crate::{
    api::statements::passed_on, backend, error::Error, in_hand::RequestInHand, pages::amount::shown,
};

const PATH: &str = "/balance";

const STATEMENT: &str = "/balance/statement.csv";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(STATEMENT, get(statement))
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
    let page = page(&dashboard, &login, day_field("")).await?;
    Ok(page.respond(StatusCode::OK))
}

fn day_field(typed: &str) -> Field {
    Field::new("day", "Day", Control::Input("date"))
        .hint("Each movement of that day, signed by us.")
        .value(typed)
}

async fn page(dashboard: &Dashboard, login: &Login, day: Field) -> Result<TablePage, Error> {
    let balance = dashboard.balance(login).await?;
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
    page.filters = Some(FilterForm {
        action: STATEMENT.to_owned(),
        submit: "Download the day's statement",
        fields: vec![day],
        notice: None,
        export: String::new(),
    });
    Ok(page)
}

/// Passes a day's statement on, or says why there is none.
async fn statement(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Extension(in_hand): Extension<RequestInHand>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let typed = parameter(query.as_deref(), "day");
    let refuse = async |status, error: &str| {
        let field = day_field(&typed).error(Some(error.to_owned()));
        Ok(page(&dashboard, &login, field).await?.respond(status))
    };
    let Ok(day) = typed.trim().parse::<Day>() else {
        return refuse(StatusCode::BAD_REQUEST, "Give a day such as 2026-11-24.").await;
    };
    let Some(place) = dashboard.exports_room.enter(in_hand.client()) else {
        metrics::counter!("gateway_requests_shed_total").increment(1);
        return Err(Error::NothingStarted.into());
    };
    let request = ReadStatementRequest {
        merchant_id: login.merchant_id(),
        day: day.to_string(),
        format: StatementFormat::Csv.into(),
    };
    let pieces = dashboard.statements.read(
        backend::DEADLINE,
        request,
        |mut statements, request| async move { statements.read_statement(request).await },
    );
    let pieces = match pieces.await {
        Ok(pieces) => pieces,
        Err(Error::NotFound) => {
            let error = "Up to the end of that day, nothing had moved.";
            return refuse(StatusCode::NOT_FOUND, error).await;
        }
        Err(Error::StatementNotReady) => {
            let error = "That day's statement is not ready. It is soon after midnight GMT.";
            return refuse(StatusCode::NOT_FOUND, error).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut response = passed_on(pieces, place).await?.into_response();
    let disposition = format!("attachment; filename=\"statement-{day}.csv\"");
    let disposition = HeaderValue::try_from(disposition).map_err(Error::internal)?;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/csv; charset=utf-8"),
    );
    headers.insert(CONTENT_DISPOSITION, disposition);
    Ok(response)
}
