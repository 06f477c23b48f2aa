//! The payers' side: a page with every handset's prompts, the same as JSON, and the book.
//!
//! It shows phone numbers unmasked, because none is real here. Promise: a person's answer changes
//! a payment through the same events as the stories do.

use std::sync::Arc;

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query, State},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use chassis::{money::Currency, phone::Phone};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    book::Pages,
    journal::JournalLost,
    networks::{Networks, PromptAnswer},
    payment::{self, Payment},
    rail::Rail,
    request::Network,
    story::{self, Failure},
    wire,
};

/// How many ended payments the page shows.
const HISTORY_ENTRIES_MAX: usize = 20;

/// How many live prompts the page shows, and how many payments that wait for a code.
const LIVE_ENTRIES_MAX: usize = 50;

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub fn routes() -> Router<Arc<Networks>> {
    let asset = |kind: &'static str, content: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], content) })
    };
    Router::new()
        .route("/", get(page))
        .route(
            "/handset.css",
            asset(
                "text/css; charset=utf-8",
                include_str!("../assets/handset.css"),
            ),
        )
        .route(
            "/handset.js",
            asset(
                "text/javascript; charset=utf-8",
                include_str!("../assets/handset.js"),
            ),
        )
        .route("/prompts", get(prompts))
        .route("/prompts/{id}/approve", post(approve))
        .route("/prompts/{id}/decline", post(decline))
        .route("/book", get(book))
}

/// A live prompt, as JSON.
#[derive(Serialize)]
struct Prompt {
    id: String,
    rail: Rail,
    network: Network,
    reference: String,
    phone: String,
    amount_minor: i64,
    currency: &'static str,
    text: String,
    created_at: String,
}

impl Prompt {
    fn of(payment: &Payment) -> Self {
        let request = &payment.request;
        Self {
            id: payment.prompt.to_string(),
            rail: request.rail,
            network: request.network,
            reference: request.reference.clone(),
            phone: request.phone.clone(),
            amount_minor: request.amount_minor,
            currency: request.currency.code(),
            text: request.text.clone(),
            created_at: payment.created_at.to_string(),
        }
    }
}

/// A line of the book, as JSON.
#[derive(Serialize)]
struct BookLine {
    rail: Rail,
    /// Chosen by the client.
    reference: String,
    phone: String,
    /// The amount that the client asked for.
    amount_minor: i64,
    currency: &'static str,
    status: &'static str,
    /// How many times the wallet was debited.
    debits: u32,
    /// The sum of those debits.
    debited_minor: i64,
    /// How many requests to pay had this reference.
    requests: u32,
}

impl BookLine {
    fn of(payment: &Payment) -> Self {
        let request = &payment.request;
        Self {
            rail: request.rail,
            reference: request.reference.clone(),
            phone: request.phone.clone(),
            amount_minor: request.amount_minor,
            currency: request.currency.code(),
            status: match payment.state {
                payment::State::AwaitingCode => "otp",
                payment::State::Prompted { .. } => "pending",
                payment::State::Succeeded { .. } => "succeeded",
                payment::State::Failed { .. } | payment::State::Refused => "failed",
            },
            debits: payment.debits,
            debited_minor: payment.debited_minor,
            requests: payment.requests,
        }
    }
}

/// Which handset to show: all of them if `phone` is missing or empty.
#[derive(Deserialize)]
struct Filter {
    #[serde(default)]
    phone: String,
}

impl Filter {
    /// The number in E.164 form if it is one, otherwise as typed.
    fn wanted(&self) -> Option<String> {
        let typed = self.phone.trim();
        if typed.is_empty() {
            return None;
        }
        let parsed = Phone::parse_any(typed).map(|phone| phone.as_e164().to_owned());
        Some(parsed.unwrap_or_else(|_| typed.to_owned()))
    }
}

fn is_live(payment: &Payment) -> bool {
    matches!(payment.state, payment::State::Prompted { .. })
}

async fn book(State(networks): State<Arc<Networks>>) -> Result<Response, JournalLost> {
    let all = |pages: &mut Pages| -> Vec<BookLine> {
        let payments = pages.payments().iter();
        payments.map(BookLine::of).collect()
    };
    let lines = networks.book.update(all).await?;
    Ok(axum::Json(lines).into_response())
}

async fn prompts(
    State(networks): State<Arc<Networks>>,
    Query(filter): Query<Filter>,
) -> Result<Response, JournalLost> {
    let wanted = filter.wanted();
    let live = |pages: &mut Pages| -> Vec<Prompt> {
        let live = pages.payments().iter().filter(|payment| is_live(payment));
        live.filter(|payment| is_of(payment, wanted.as_deref()))
            .map(Prompt::of)
            .collect()
    };
    let prompts = networks.book.update(live).await?;
    Ok(axum::Json(prompts).into_response())
}

fn is_of(payment: &Payment, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| payment.request.phone == wanted)
}

async fn approve(
    State(networks): State<Arc<Networks>>,
    Path(id): Path<String>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> Result<Response, JournalLost> {
    answer(&networks, &id, &headers, &filter, PromptAnswer::Approve).await
}

async fn decline(
    State(networks): State<Arc<Networks>>,
    Path(id): Path<String>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> Result<Response, JournalLost> {
    answer(&networks, &id, &headers, &filter, PromptAnswer::Decline).await
}

/// Answers a prompt. Programs get the payment's line of the book; browsers are sent back to the
/// page, even if the prompt has ended meanwhile.
async fn answer(
    networks: &Networks,
    id: &str,
    headers: &HeaderMap,
    filter: &Filter,
    answer: PromptAnswer,
) -> Result<Response, JournalLost> {
    let answered = match id.parse() {
        Ok(prompt) => networks.answer_prompt(prompt, answer).await?,
        Err(_) => None,
    };
    if wire::header(headers, "Accept").is_some_and(|accept| accept.contains("text/html")) {
        return Ok(Redirect::to(&back_to(filter)).into_response());
    }
    Ok(match answered {
        Some(payment) => axum::Json(BookLine::of(&payment)).into_response(),
        None => {
            let body = serde_json::json!({"error": "there is no such live prompt"});
            (StatusCode::NOT_FOUND, axum::Json(body)).into_response()
        }
    })
}

fn back_to(filter: &Filter) -> String {
    let digits: String = filter.phone.chars().filter(char::is_ascii_digit).collect();
    if digits.is_empty() {
        return "/".to_owned();
    }
    let plus = if filter.phone.trim_start().starts_with('+') {
        "%2B"
    } else {
        ""
    };
    format!("/?phone={plus}{digits}")
}

#[derive(Template)]
#[template(path = "handset.html")]
struct Page {
    phone: String,
    prompts: Vec<Item>,
    codes: Vec<Item>,
    history: Vec<Item>,
    voucher: &'static str,
}

/// One payment as shown on the page.
struct Item {
    id: Uuid,
    network: &'static str,
    phone: String,
    amount: String,
    text: String,
    outcome: &'static str,
    at: String,
}

impl Item {
    fn of(payment: &Payment) -> Self {
        let request = &payment.request;
        Self {
            id: payment.prompt,
            network: request.network.name(),
            phone: request.phone.clone(),
            amount: shown_amount(payment),
            text: request.text.clone(),
            outcome: outcome(payment),
            at: payment.updated_at.to_string(),
        }
    }
}

fn shown_amount(payment: &Payment) -> String {
    let money = if payment.debits > 0 {
        payment.reported()
    } else {
        payment.asked()
    };
    let currency: Currency = money.currency();
    format!("{} {}", currency.code(), money.to_major())
}

fn outcome(payment: &Payment) -> &'static str {
    match payment.state {
        payment::State::AwaitingCode => "Waiting for the code",
        payment::State::Prompted { .. } => "Waiting for approval",
        payment::State::Succeeded { .. } => "Paid",
        payment::State::Refused => "Refused by the network",
        payment::State::Failed { failure, .. } => match failure {
            Failure::InsufficientFunds => "Failed: not enough money",
            Failure::Declined => "Declined",
            Failure::TimedOut => "Not answered in time",
            Failure::PayerNotFound => "Failed: no wallet on this number",
            Failure::LimitReached => "Failed: wallet limit reached",
            Failure::CodeExpired => "Failed: code expired",
            Failure::InMarkup => "Failed, in words with markup",
        },
    }
}

async fn page(
    State(networks): State<Arc<Networks>>,
    Query(filter): Query<Filter>,
) -> Result<Response, JournalLost> {
    let wanted = filter.wanted();
    let page = networks
        .book
        .update(|pages| read_page(pages, wanted))
        .await?;
    Ok(html(&page))
}

/// Answers with a page in which only its own assets and forms work.
pub fn html(page: &impl Template) -> Response {
    let html = page.render().expect("a page renders into memory");
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("referrer-policy"), "same-origin"),
    ];
    (headers, Html(html)).into_response()
}

/// Builds the page, newest payments first.
fn read_page(pages: &Pages, wanted: Option<String>) -> Page {
    let of_handset = || {
        let newest_first = pages.payments().iter().rev();
        newest_first.filter(|payment| is_of(payment, wanted.as_deref()))
    };
    let awaits_code = |payment: &&Payment| matches!(payment.state, payment::State::AwaitingCode);
    let has_ended = |payment: &&Payment| !is_live(payment) && !awaits_code(payment);
    let live = of_handset().filter(|payment| is_live(payment));
    let codes = of_handset().filter(awaits_code);
    let history = of_handset().filter(has_ended);
    Page {
        prompts: live.take(LIVE_ENTRIES_MAX).map(Item::of).collect(),
        codes: codes.take(LIVE_ENTRIES_MAX).map(Item::of).collect(),
        history: history.take(HISTORY_ENTRIES_MAX).map(Item::of).collect(),
        voucher: story::VOUCHER,
        phone: wanted.unwrap_or_default(),
    }
}
