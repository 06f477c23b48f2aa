//! The hosted checkout: the pages at `{checkout_url}/pay/<session_id>` where payers pay.
//!
//! Every page is built from what the services say at that moment, works without scripts, and uses
//! no cookie. An accepted form is answered by 303 to the page itself, never to the merchant.
//! However often a form is sent, it makes one charge, and nothing is ever shown as paid unless it
//! certainly is.

pub mod abuse;
pub mod quote;
pub mod rescue;

mod code;
mod page;
mod pay;
mod return_link;
mod situation;
mod text;
mod view;
mod visitor;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::{clock::Clock, grpc::Channel, ids::SessionId};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ETAG, RETRY_AFTER},
};
use ipnet::IpNet;
use proto::sessions::sessions_client::SessionsClient;
use serde::Serialize;

use self::{
    abuse::Abuse, quote::ExchangeRates, rescue::Rescue, situation::Situation, visitor::Visitor,
};
use crate::{
    backend::{Charges, CheckoutSessions, Merchants},
    error::Error,
    front::{self, Front},
    guesses::Guesses,
    pages::{self, Kind, Referrer, assets, encoding, is_known, report},
};

/// What the pages share.
#[derive(Debug)]
pub struct Checkout {
    pub merchants: Merchants,
    pub sessions: CheckoutSessions,
    /// For the previous version of sessions-svc.
    pub previous_sessions: SessionsClient<Channel>,
    pub charges: Charges,
    pub rates: ExchangeRates,
    pub rescue: Rescue,
    pub abuse: Abuse,
    pub guesses: Guesses,
    pub clock: Clock,
    pub trusted_proxies: Vec<IpNet>,
}

/// All routes of the checkout.
pub fn router(checkout: Arc<Checkout>, front: Front) -> Router {
    Router::new()
        .route("/pay/{session_id}", get(show).post(pay::pay))
        .route("/pay/{session_id}/code", post(code::submit).get(to_page))
        .route("/pay/{session_id}/state", get(state))
        .route("/assets/{name}", get(asset))
        .fallback(async |visitor: Visitor| page::refusal(visitor.text, &Error::NotFound, None))
        .method_not_allowed_fallback(async |visitor: Visitor| {
            page::refusal(visitor.text, &Error::MethodNotAllowed, None)
        })
        .layer(middleware::from_fn_with_state(front, front::pass))
        .layer(middleware::from_fn(dress))
        .layer(middleware::from_fn(encoding::pages))
        .with_state(checkout)
}

async fn show(State(checkout): State<Arc<Checkout>>, visitor: Visitor) -> Response {
    let shown = async {
        let situation = checkout.look_up(&visitor, visitor.session()?).await?;
        view::show(&checkout, &visitor, &situation).await
    };
    or_refusal(&visitor, shown.await)
}

async fn asset(Path(name): Path<String>, request: Request) -> Response {
    let served = assets::serve(&name, request).await;
    served.unwrap_or_else(|error| {
        report(&error);
        page::refusal(&text::ENGLISH, &error, None)
    })
}

/// Sends a visitor who opened the code form's address by hand to the page.
async fn to_page(visitor: Visitor) -> Response {
    see(&visitor)
}

#[derive(Serialize)]
struct StateBody {
    state: &'static str,
}

/// The page polls this in the background to learn whether it is out of date.
async fn state(
    State(checkout): State<Arc<Checkout>>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Response {
    let looked_up = async { checkout.look_up(&visitor, visitor.session()?).await };
    let situation = match looked_up.await {
        Ok(situation) => situation,
        Err(error) => {
            report(&error);
            return wait_header(error.status(), &error);
        }
    };
    let state = situation.state.name();
    let tag = format!("\"{state}\"");
    let is_known = is_known(&headers, &tag);
    let tag = HeaderValue::try_from(tag).expect("a state's name is visible ASCII");
    if is_known {
        return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
    }
    ([(ETAG, tag)], Json(StateBody { state })).into_response()
}

fn wait_header(status: StatusCode, error: &Error) -> Response {
    let mut response = status.into_response();
    if let Error::TooManyGuesses {
        retry_after_seconds,
    } = error
    {
        let seconds = HeaderValue::from(*retry_after_seconds);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

impl Checkout {
    /// Loads the session. One that does not exist counts as a wrong guess.
    async fn look_up(&self, visitor: &Visitor, id: SessionId) -> Result<Situation, Error> {
        let loading = Situation::load(self, id);
        let found = self.guesses.look_up(visitor.address, id, loading).await;
        found.map_err(|error| match error {
            Error::NotFound => self.guesses.refuse(visitor.address, error),
            error => error,
        })
    }
}

/// Redirects to the page itself (303).
fn see(visitor: &Visitor) -> Response {
    pages::see(&visitor.page())
}

fn or_refusal(visitor: &Visitor, answered: Result<Response, Error>) -> Response {
    answered.unwrap_or_else(|error| {
        report(&error);
        let again = error.status().is_server_error().then(|| visitor.page());
        let mut response = page::refusal(visitor.text, &error, again);
        let wait = wait_header(error.status(), &error);
        response.headers_mut().extend(wait.headers().clone());
        response
    })
}

/// Adds the headers that browsers need to every answer, and turns the front's JSON server errors
/// into pages.
async fn dress(request: Request, next: Next) -> Response {
    let kind = Kind::of(&request, |path| path.ends_with("/state"));
    let language = text::preferred(request.headers());
    let mut response = next.run(request).await;
    if kind != Kind::Data && pages::is_front_failure(&response) {
        let page = page::refusal(language, &Error::NothingStarted, None);
        pages::replace_body(&mut response, page);
    }
    pages::dress(&mut response, kind, Referrer::Nobody);
    response
}
