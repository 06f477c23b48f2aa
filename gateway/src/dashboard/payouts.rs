//! `/payouts`: money on its way to the merchant's own account.

pub mod account;
pub mod new;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, PayoutId},
};
use http::StatusCode;
use proto::charges::{
    DisbursementStatus, GetPayoutRequest, ListPayoutsRequest, ListPayoutsResponse, Payout,
    PayoutAccount, ReadPayoutAccountRequest,
};

use super::{
    Dashboard, export,
    filters::{Filters, Listed, PAGE_SIZE},
    help::support_contact,
    login::Login,
    money_out,
    page::{Cell, DetailPage, Refusal, Section, TablePage},
    payments,
    text::{Phrase, phrase},
    timeline::About,
};
use crate::{backend, error::Error, pages::amount::shown};

pub const PATH: &str = "/payouts";

const EXPORT: &str = "/payouts.csv";

const NEW: &str = "/payouts/new";

const ACCOUNT: &str = "/payouts/account";

/// The form that sets it.
const SET: &str = "/payouts/account/set";

const NO_TOTP: &str =
    "Set up an authenticator before the first payout, so that a password alone moves no money.";

const COLUMNS: [&str; 5] = ["Created", "Payout", "To", "State", "Amount"];

const EXPORT_COLUMNS: [&str; 13] = [
    "payout_id",
    "status",
    "provider",
    "account",
    "amount",
    "currency",
    "fee",
    "fee_currency",
    "scheduled",
    "failure_reason",
    "created_at",
    "completed_at",
    "reversed_at",
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
        .merge(new::routes())
        .merge(account::routes())
        .route(&format!("{PATH}/{{payout_id}}"), get(show_one))
}

fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListPayoutsRequest {
    let statuses = &money_out::STATUSES;
    let status = filters.choice("status", "State", statuses, DisbursementStatus::from_code);
    let (from, to) = filters.days();
    ListPayoutsRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<DisbursementId>(),
        from,
        to,
        status: status.unwrap_or_default().into(),
    }
}

impl Dashboard {
    async fn list_payouts(
        &self,
        request: ListPayoutsRequest,
    ) -> Result<ListPayoutsResponse, Error> {
        let listed = self.disbursements.read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.list_payouts(request).await },
        );
        listed.await
    }

    /// Where the merchant's payouts go, if that was set.
    async fn payout_account(&self, login: &Login) -> Result<Option<PayoutAccount>, Error> {
        let request = ReadPayoutAccountRequest {
            merchant_id: login.merchant_id(),
        };
        let account =
            self.disbursements.read(
                backend::DEADLINE,
                request,
                |mut disbursements, request| async move {
                    disbursements.read_payout_account(request).await
                },
            );
        match account.await {
            Ok(account) => Ok(Some(account)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = wanted(&mut filters, &login);
    let mut page = TablePage::new(login.shell(Section::Payouts, "Payouts"), &COLUMNS);
    page.button = Some(("Ask for a payout", NEW.to_owned()));
    page.facts = vec![(
        "Account",
        Cell::phrase("Where the money goes").link(ACCOUNT.to_owned()),
    )];
    page.empty = "No payout yet. Ask for one once you have collected something.";
    let listing = async {
        let listed = dashboard.list_payouts(request).await?;
        let rows = listed.payouts.iter().map(row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

fn row(payout: &Payout) -> Result<Vec<Cell>, Error> {
    let id = &payout.payout_id;
    let made = match payout.scheduled {
        true => "Daily settlement",
        false => "",
    };
    Ok(vec![
        Cell::time(&payout.created_at),
        Cell::text(id)
            .link(format!("{PATH}/{id}"))
            .detail(Phrase::from(made)),
        money_out::destination(payout.destination.as_ref()),
        money_out::state(payout.status(), payout.reversed_at.as_deref()),
        payments::amount(payout.amount.as_ref())?,
    ])
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    payout_id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(payout_id) = payout_id.map_err(|_| Error::NotFound)?;
    let payout_id: PayoutId = payout_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetPayoutRequest {
        merchant_id: login.merchant_id(),
        payout_id: payout_id.to_string(),
    };
    let payout = dashboard.disbursements.read(
        backend::DEADLINE,
        request.clone(),
        |mut disbursements, request| async move { disbursements.get_payout(request).await },
    );
    let timeline = dashboard.disbursements.read(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move {
            disbursements.get_payout_timeline(request).await
        },
    );
    let (payout, timeline) = tokio::join!(payout, timeline);
    let payout = payout?;
    let (status, reversed_at) = (payout.status(), payout.reversed_at.as_deref());
    let mut page = DetailPage::new(login.shell(Section::Payouts, "Payout"));
    page.lead = vec![money_out::meaning(status, reversed_at).into()];
    let why = payout.failure_message.clone();
    page.lead.extend(why.map(Phrase::of_a_service));
    let amount = payments::money(payout.amount.as_ref())?;
    let asked = match payout.scheduled {
        true => "By the daily settlement",
        false => "On request",
    };
    let state = money_out::state(status, reversed_at);
    page.follow(&state);
    page.facts = vec![
        ("Amount", Cell::text(&shown(amount))),
        ("State", state),
        ("To", money_out::destination(payout.destination.as_ref())),
        ("Made", Cell::phrase(asked)),
        ("Payout", Cell::id(&payout.payout_id)),
    ];
    if let Some(fee) = &payout.fee {
        let fee = payments::money(Some(fee))?;
        page.facts.insert(1, ("Fee", Cell::text(&shown(fee))));
    }
    page.facts
        .extend(reversed_at.map(|at| ("Taken back by the network", Cell::time(at))));
    let about = About::Payout;
    dashboard
        .show_timeline(&mut page, &login, about, timeline)
        .await;
    page.links = vec![("All payouts", PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

fn not_enabled() -> Phrase {
    phrase!(
        "Payouts are not switched on for you. Write to {0} from your e-mail address.",
        support_contact()
    )
}

fn is_held(dashboard: &Dashboard, account: &PayoutAccount) -> bool {
    let until = account.held_until.parse::<Timestamp>();
    until.is_ok_and(|until| dashboard.clock.now() < until)
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListPayoutsRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListPayoutsRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_payouts(request).await?;
            let rows = listed.payouts.into_iter().map(exported);
            Ok(Listed {
                rows: rows.collect::<Result<_, _>>()?,
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("payouts", filters);
    export::csv(&dashboard, login.merchant.id, list, &EXPORT_COLUMNS, read).await
}

fn exported(payout: Payout) -> Result<Vec<String>, Error> {
    let status = payout.status().code().unwrap_or_default();
    let [amount, currency] = export::amount(payout.amount.as_ref())?;
    let [fee, fee_currency] = export::amount(payout.fee.as_ref())?;
    let destination = payout.destination.unwrap_or_default();
    Ok(vec![
        payout.payout_id,
        status.to_owned(),
        destination.provider,
        destination.account_masked,
        amount,
        currency,
        fee,
        fee_currency,
        payout.scheduled.to_string(),
        payout.failure_reason.unwrap_or_default(),
        payout.created_at,
        payout.completed_at.unwrap_or_default(),
        payout.reversed_at.unwrap_or_default(),
    ])
}
