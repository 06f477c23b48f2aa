//! The payees' side: the book of credits, and the rails' floats, as JSON.
//!
//! It shows phone numbers unmasked, because none is real here.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    book::Pages,
    credit::{self, Credit},
    journal::JournalLost,
    networks::Networks,
    rail::Rail,
};

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/credits", get(credits))
        .route("/float", get(floats).post(add))
}

/// A line of the book of credits, as JSON.
#[derive(Serialize)]
struct CreditLine {
    rail: Rail,
    /// Chosen by the client.
    reference: String,
    /// A wallet's number in E.164 form, or a bank account's.
    account: String,
    /// The amount that the client asked for.
    amount_minor: i64,
    currency: &'static str,
    status: &'static str,
    /// How many times the account was credited.
    credits: u32,
    /// The sum of those credits, without what was taken back.
    credited_minor: i64,
    /// How many requests had this reference.
    requests: u32,
    /// Whether something becomes of it yet: it is paid, paid late, or taken back.
    may_change: bool,
}

impl CreditLine {
    fn of(credit: &Credit) -> Self {
        let request = &credit.request;
        Self {
            rail: request.rail,
            reference: request.reference.clone(),
            account: request.payee.account().to_owned(),
            amount_minor: request.amount_minor,
            currency: request.currency.code(),
            status: match credit.state {
                credit::State::Untaken => "refused",
                credit::State::Pending => "pending",
                credit::State::Credited => "succeeded",
                credit::State::Failed(_) => "failed",
                credit::State::Reversed => "reversed",
            },
            credits: credit.credits,
            credited_minor: credit.credited_minor,
            requests: credit.requests,
            may_change: credit.may_change(),
        }
    }
}

/// What a rail's float holds, as JSON.
#[derive(Serialize)]
struct FloatLine {
    rail: Rail,
    held_minor: i64,
}

/// What somebody adds to a rail's float, or, if it is negative, takes from it.
#[derive(Deserialize)]
struct Added {
    rail: Rail,
    amount_minor: i64,
}

async fn credits(State(networks): State<Arc<Networks>>) -> Result<Response, JournalLost> {
    let all = |pages: &mut Pages| -> Vec<CreditLine> {
        let credits = pages.credits().all().iter();
        credits.map(CreditLine::of).collect()
    };
    let lines = networks.book.update(all).await?;
    Ok(Json(lines).into_response())
}

async fn floats(State(networks): State<Arc<Networks>>) -> Result<Response, JournalLost> {
    let lines = networks.book.update(|pages| lines(pages)).await?;
    Ok(Json(lines).into_response())
}

async fn add(
    State(networks): State<Arc<Networks>>,
    Json(added): Json<Added>,
) -> Result<Response, JournalLost> {
    if added.amount_minor == 0 {
        let body = json!({"error": "amount_minor must not be 0"});
        return Ok((StatusCode::BAD_REQUEST, Json(body)).into_response());
    }
    let change = |pages: &mut Pages| {
        pages.add_float(added.rail, added.amount_minor);
        lines(pages)
    };
    let lines = networks.book.update(change).await?;
    Ok(Json(lines).into_response())
}

fn lines(pages: &Pages) -> [FloatLine; 3] {
    [Rail::Momo, Rail::Paystack, Rail::Hubtel].map(|rail| FloatLine {
        rail,
        held_minor: pages.credits().float_minor(rail),
    })
}
