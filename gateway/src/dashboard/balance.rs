//! `/balance`: what a merchant has collected and has not been paid out, the lines of the ledger that
//! it is the sum of, and the signed statement of each day.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
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
    charges::{
        BalanceLine, BalancePart, CaseKind, GetBalanceRequest, GetBalanceResponse,
        ListBalanceLinesRequest, ListBalanceLinesResponse, ReadStatementRequest, StatementFormat,
    },
    money::Money as ProtoMoney,
};

use super::{
    Dashboard,
    enter::parameter,
    export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::Login,
    page::{Cell, Control, Field, FilterForm, Refusal, Section, TablePage},
    payments::{self, money},
    payouts, refunds,
    text::Phrase,
};
use crate::{api::statements::passed_on, backend, error::Error, pages::amount::shown};

const PATH: &str = "/balance";

const EXPORT: &str = "/balance.csv";

const STATEMENT: &str = "/balance/statement.csv";

const COLUMNS: [&str; 5] = [
    "Posted",
    "What for",
    "Belongs to",
    "Amount",
    "Balance after it",
];

const EXPORT_COLUMNS: [&str; 9] = [
    "posted_at",
    "posting",
    "reference",
    "amount",
    "currency",
    "balance",
    "part",
    "held_for",
    "refund_id",
];

const PARTS: [(&str, &str); 3] = [
    ("", "What is available"),
    ("RESERVED", "What is reserved"),
    ("SUSPENSE", "What is held for a decision"),
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
        .route(STATEMENT, get(statement))
}

impl Dashboard {
    pub async fn balance(&self, login: &Login) -> Result<GetBalanceResponse, Error> {
        let request = GetBalanceRequest {
            merchant_id: login.merchant_id(),
            with_suspense: true,
        };
        let balance = self.charges.read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_balance(request).await },
        );
        balance.await
    }
}

fn by_currency(of: &[ProtoMoney]) -> Result<BTreeMap<&'static str, Money>, Error> {
    let read = of.iter().map(|amount| money(Some(amount)));
    read.map(|money| money.map(|money| (money.currency().code(), money)))
        .collect()
}

/// Reads the filters of the lines.
fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListBalanceLinesRequest {
    let part = filters.choice("part", "Lines of", &PARTS, BalancePart::from_code);
    let currency = Field::text("currency", "Currency");
    let currency = filters.read(currency, |code| {
        let currency = code.parse::<Currency>();
        currency.map_err(|_| "Give a currency such as GHS.")
    });
    let (from, to) = filters.days();
    ListBalanceLinesRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<String>(),
        from,
        to,
        part: part.unwrap_or_default().into(),
        currency: currency.map_or_else(String::new, |currency| currency.code().to_owned()),
    }
}

impl Dashboard {
    async fn list_balance_lines(
        &self,
        request: ListBalanceLinesRequest,
    ) -> Result<ListBalanceLinesResponse, Error> {
        let is_held = request.part() == BalancePart::Suspense;
        let listed = self.figures.read(
            backend::DEADLINE,
            request,
            |mut figures, request| async move { figures.list_balance_lines(request).await },
        );
        let listed = listed.await?;
        match is_held {
            true => all_held(listed),
            false => Ok(listed),
        }
    }
}

/// What is held for a decision, and nothing else under that name: a charges-svc that does not know of
/// it yet lists what is available in its place.
fn all_held(listed: ListBalanceLinesResponse) -> Result<ListBalanceLinesResponse, Error> {
    match listed.lines.iter().all(|line| line.held_for.is_some()) {
        true => Ok(listed),
        false => Err(Error::NothingStarted),
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    page(&dashboard, &login, query.as_deref(), day_field("")).await
}

fn day_field(typed: &str) -> Field {
    Field::new("day", "Day", Control::Input("date"))
        .hint("Each movement of that day, signed by us.")
        .value(typed)
}

/// The page, with what somebody typed as a statement's day.
async fn page(
    dashboard: &Dashboard,
    login: &Login,
    query: Option<&str>,
    day: Field,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query);
    let request = wanted(&mut filters, login);
    let mut page = TablePage::new(login.shell(Section::Balance, "Balance"), &COLUMNS);
    page.lead = vec![
        "Available is what you have collected and can be paid out. Reserved is on its way out, in payouts and refunds that have not ended.",
    ];
    page.button = Some(("Payouts", "/payouts".to_owned()));
    page.caption = "What it is the sum of";
    page.empty = "Nothing has moved yet. Each payment that settles adds a line.";
    let balance = dashboard.balance(login).await?;
    page.facts = facts(&balance)?;
    if !balance.suspense.is_empty() || request.part() == BalancePart::Suspense {
        page.lead.push(
            "Held for a decision is what payers paid late, or not as asked for, and is no part of the others. We find out with the network whose it is: then it becomes available as “Late money is yours”, or goes back to the payer.",
        );
    }
    page.below = Some(FilterForm {
        action: STATEMENT.to_owned(),
        submit: "Download the day's statement",
        fields: vec![day],
        notice: None,
        export: String::new(),
    });
    let listing = async {
        let listed = dashboard.list_balance_lines(request).await?;
        let rows = listed.lines.iter().map(row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

/// What there is of each currency.
fn facts(balance: &GetBalanceResponse) -> Result<Vec<(&'static str, Cell)>, Error> {
    let available = by_currency(&balance.available)?;
    let reserved = by_currency(&balance.reserved)?;
    let held = by_currency(&balance.suspense)?;
    let mut all: BTreeMap<&str, Currency> = BTreeMap::from([("GHS", Currency::GHS)]);
    let known = available.values().chain(reserved.values());
    all.extend(known.map(|money| (money.currency().code(), money.currency())));
    let mut facts = Vec::new();
    for (code, currency) in all {
        let of = |amounts: &BTreeMap<&str, Money>| {
            let found = amounts.get(code).copied();
            Cell::text(&shown(found.unwrap_or_else(|| Money::new(0, currency))))
        };
        let lines = |part: &str| format!("{PATH}?part={part}&currency={code}");
        facts.push(("Available", of(&available).link(lines(""))));
        facts.push(("Reserved", of(&reserved).link(lines("RESERVED"))));
    }
    facts.extend(held.into_iter().map(|(code, money)| {
        let lines = format!("{PATH}?part=SUSPENSE&currency={code}");
        ("Held for a decision", Cell::text(&shown(money)).link(lines))
    }));
    Ok(facts)
}

fn row(line: &BalanceLine) -> Result<Vec<Cell>, Error> {
    let balance = match &line.balance {
        Some(balance) => payments::amount(Some(balance))?,
        None => Cell::amount(String::new()),
    };
    Ok(vec![
        Cell::time(&line.at),
        what_for(line),
        belongs_to(line.reference.as_deref().unwrap_or_default()),
        payments::amount(line.amount.as_ref())?,
        balance,
    ])
}

fn what_for(line: &BalanceLine) -> Cell {
    if let Some(why) = &line.held_for {
        return held(why, line.refund_id.as_deref());
    }
    match posting(&line.posting) {
        Some(phrase) => Cell::phrase(phrase),
        None => Cell::text(&line.posting),
    }
}

/// Why something is held, and what becomes of it.
fn held(why: &str, refund_id: Option<&str>) -> Cell {
    let held = Cell::phrase(match CaseKind::from_code(why) {
        Some(CaseKind::LateMoney) => "Paid after it had failed",
        Some(CaseKind::Mismatch) => "Paid, but not as asked for",
        _ => "Held for a decision",
    });
    match refund_id {
        Some(refund_id) => held
            .detail(Phrase::from("On its way back to the payer."))
            .action("Its refund", &format!("{}/{refund_id}", refunds::PATH)),
        None => held.detail(Phrase::from("We are finding out whose it is.")),
    }
}

/// What a posting means for the merchant, in words.
fn posting(code: &str) -> Option<&'static str> {
    Some(match code {
        "SETTLEMENT" => "Payment collected",
        "RELEASE" => "Late money is yours",
        "REVERSAL" => "Payment taken back",
        "RESERVE" => "Set aside to be sent",
        "DISBURSEMENT" => "Sent",
        "PAYOUT_FEE" => "Fee of the payout",
        "RETURN" => "Not sent, and back on the balance",
        "DISBURSEMENT_REVERSAL" => "Came back after it was sent",
        "LATE_REVERSAL" => "Came back",
        "RECOVERY" => "Was sent twice, and taken back",
        _ => return None,
    })
}

/// The payment, payout or refund, with its page.
fn belongs_to(reference: &str) -> Cell {
    let path = match reference.split_once('-') {
        Some(("TX", _)) => payments::PATH,
        Some(("PO", _)) => payouts::PATH,
        Some(("RF", _)) => refunds::PATH,
        _ => return Cell::text(reference),
    };
    Cell::text(reference).link(format!("{path}/{reference}"))
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListBalanceLinesRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let part = match request.part() {
                BalancePart::Unspecified => BalancePart::Available,
                part => part,
            };
            let part = part.code().unwrap_or_default();
            let request = ListBalanceLinesRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_balance_lines(request).await?;
            let rows = listed.lines.iter().map(|line| exported(line, part));
            Ok(Listed {
                rows: rows.collect::<Result<_, _>>()?,
                next_page_token: listed.next_page_token,
            })
        }
    };
    export::csv(
        &dashboard,
        login.merchant.id,
        ("balance", filters),
        &EXPORT_COLUMNS,
        read,
    )
    .await
}

fn exported(line: &BalanceLine, part: &str) -> Result<Vec<String>, Error> {
    let [amount, currency] = export::amount(line.amount.as_ref())?;
    let [balance, _] = export::amount(line.balance.as_ref())?;
    Ok(vec![
        line.at.clone(),
        line.posting.clone(),
        line.reference.clone().unwrap_or_default(),
        amount,
        currency,
        balance,
        part.to_owned(),
        line.held_for.clone().unwrap_or_default(),
        line.refund_id.clone().unwrap_or_default(),
    ])
}

/// Passes a day's statement on, or says why there is none.
async fn statement(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let typed = parameter(query.as_deref(), "day");
    let refuse = async |status, error: &'static str| {
        let field = day_field(&typed).error(Some(error.into()));
        let mut page = page(&dashboard, &login, None, field).await?;
        *page.status_mut() = status;
        Ok(page)
    };
    let Ok(day) = typed.trim().parse::<Day>() else {
        return refuse(StatusCode::BAD_REQUEST, "Give a day such as 2026-11-24.").await;
    };
    let Some(place) = dashboard.exports_room.enter(login.merchant.id) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_never_listed_as_held() {
        let line = |held_for: Option<&str>| BalanceLine {
            held_for: held_for.map(str::to_owned),
            ..BalanceLine::default()
        };
        let listed = |lines| ListBalanceLinesResponse {
            lines,
            ..ListBalanceLinesResponse::default()
        };
        let held = || line(Some("LATE_MONEY"));
        assert!(all_held(listed(vec![])).is_ok());
        assert!(all_held(listed(vec![held(), held()])).is_ok());
        let refused = all_held(listed(vec![held(), line(None)]));
        assert!(matches!(refused, Err(Error::NothingStarted)));
    }
}
