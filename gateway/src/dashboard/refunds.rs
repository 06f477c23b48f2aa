//! Refunds: `/refunds`, and each one's page.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::ids::{DisbursementId, Reference, RefundId};
use http::StatusCode;
use proto::charges::{
    DisbursementStatus, GetRefundRequest, ListRefundsRequest, ListRefundsResponse, Refund,
};

use super::{
    Dashboard, export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::Login,
    money_out,
    page::{Cell, DetailPage, Refusal, Section, TablePage},
    payments,
    text::Phrase,
    timeline::About,
};
use crate::{backend, error::Error, pages::amount::shown};

pub const PATH: &str = "/refunds";

const EXPORT: &str = "/refunds.csv";

pub const COLUMNS: [&str; 5] = ["Created", "Refund", "To", "State", "Amount"];

const EXPORT_COLUMNS: [&str; 12] = [
    "refund_id",
    "reference",
    "session_id",
    "status",
    "provider",
    "account",
    "amount",
    "currency",
    "failure_reason",
    "created_at",
    "completed_at",
    "reversed_at",
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
        .route(&format!("{PATH}/{{refund_id}}"), get(show_one))
}

fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListRefundsRequest {
    let field = super::page::Field::new("q", "Payment", super::page::Control::Input("search"))
        .hint("Its reference");
    let reference = filters.read(field, |text| {
        let reference = text.to_ascii_uppercase().parse::<Reference>();
        reference.map_err(|_| "Give a payment's whole reference, TX-…-….")
    });
    let statuses = &money_out::STATUSES;
    let status = filters.choice("status", "State", statuses, DisbursementStatus::from_code);
    let (from, to) = filters.days();
    ListRefundsRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<DisbursementId>(),
        reference: reference.map_or_else(String::new, |reference| reference.to_string()),
        from,
        to,
        status: status.unwrap_or_default().into(),
        session_id: None,
    }
}

impl Dashboard {
    pub async fn list_refunds(
        &self,
        request: ListRefundsRequest,
    ) -> Result<ListRefundsResponse, Error> {
        let listed = self.disbursements.read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.list_refunds(request).await },
        );
        listed.await
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = wanted(&mut filters, &login);
    let mut page = TablePage::new(login.shell(Section::Payments, "Refunds"), &COLUMNS);
    page.empty = "No refund yet. A settled payment's page has the form for one.";
    let listing = async {
        let listed = dashboard.list_refunds(request).await?;
        let rows = listed.refunds.iter().map(row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

pub fn row(refund: &Refund) -> Result<Vec<Cell>, Error> {
    let id = &refund.refund_id;
    Ok(vec![
        Cell::time(&refund.created_at),
        Cell::text(id)
            .link(format!("{PATH}/{id}"))
            .detail(&refund.reference),
        money_out::destination(refund.destination.as_ref()),
        money_out::state(refund.status(), refund.reversed_at.as_deref()),
        payments::amount(refund.amount.as_ref())?,
    ])
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    refund_id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(refund_id) = refund_id.map_err(|_| Error::NotFound)?;
    let refund_id: RefundId = refund_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetRefundRequest {
        merchant_id: login.merchant_id(),
        refund_id: refund_id.to_string(),
    };
    let refund = dashboard.disbursements.read(
        backend::DEADLINE,
        request.clone(),
        |mut disbursements, request| async move { disbursements.get_refund(request).await },
    );
    let timeline = dashboard.disbursements.read(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move {
            disbursements.get_refund_timeline(request).await
        },
    );
    let (refund, timeline) = tokio::join!(refund, timeline);
    let refund = refund?;
    let (status, reversed_at) = (refund.status(), refund.reversed_at.as_deref());
    let mut page = DetailPage::new(login.shell(Section::Payments, "Refund"));
    page.lead = vec![money_out::meaning(status, reversed_at).into()];
    let why = refund.failure_message.clone();
    page.lead.extend(why.map(Phrase::of_a_service));
    let payment = format!("{}/{}", payments::PATH, refund.reference);
    let amount = payments::money(refund.amount.as_ref())?;
    let state = money_out::state(status, reversed_at);
    page.follow(&state);
    page.facts = vec![
        ("Amount", Cell::text(&shown(amount))),
        ("State", state),
        ("To", money_out::destination(refund.destination.as_ref())),
        ("Refund", Cell::id(&refund.refund_id)),
        ("Payment", Cell::text(&refund.reference).link(payment)),
    ];
    page.facts
        .extend(reversed_at.map(|at| ("Taken back by the network", Cell::time(at))));
    let about = About::Refund;
    dashboard
        .show_timeline(&mut page, &login, about, timeline)
        .await;
    page.links = vec![("All refunds", PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListRefundsRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListRefundsRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_refunds(request).await?;
            let rows = listed.refunds.into_iter().map(exported);
            Ok(Listed {
                rows: rows.collect::<Result<_, _>>()?,
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("refunds", filters);
    export::csv(&dashboard, login.merchant.id, list, &EXPORT_COLUMNS, read).await
}

fn exported(refund: Refund) -> Result<Vec<String>, Error> {
    let status = refund.status().code().unwrap_or_default();
    let [amount, currency] = export::amount(refund.amount.as_ref())?;
    let destination = refund.destination.unwrap_or_default();
    Ok(vec![
        refund.refund_id,
        refund.reference,
        refund.session_id,
        status.to_owned(),
        destination.provider,
        destination.account_masked,
        amount,
        currency,
        refund.failure_reason.unwrap_or_default(),
        refund.created_at,
        refund.completed_at.unwrap_or_default(),
        refund.reversed_at.unwrap_or_default(),
    ])
}
