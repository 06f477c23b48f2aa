//! The hosted checkout: the pages at `{checkout_url}/pay/<session_id>` where payers pay.
//!
//! Every page is built from what the services say at that moment, works without scripts, and uses
//! no cookie. An accepted form is answered by 303 to the page itself, never to the merchant.
//! However often a form is sent, it makes one charge, and nothing is ever shown as paid unless it
//! certainly is.

pub mod abuse;
pub mod quote;
pub mod rescue;

mod assets;
mod code;
mod encoding;
mod page;
mod pay;
mod return_link;
mod same_site;
mod situation;
mod text;
mod view;
mod visitor;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::{clock::Clock, error_chain::chain, ids::SessionId};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
        REFERRER_POLICY, RETRY_AFTER,
    },
};
use ipnet::IpNet;
use serde::Serialize;
use url::form_urlencoded;

use self::{
    abuse::Abuse, quote::ExchangeRates, rescue::Rescue, situation::Situation, visitor::Visitor,
};
use crate::{
    api::body,
    backend::{Charges, Merchants, Sessions},
    error::Error,
    front::{self, Front},
    guesses::Guesses,
};

/// Only our own style sheet, script and forms; nobody may frame us.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
    base-uri 'none'";

/// For answers that are not pages.
const BARE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// What the pages share.
#[derive(Debug)]
pub struct Checkout {
    pub merchants: Merchants,
    pub sessions: Sessions,
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

/// Whether the browser has the content with this tag. A proxy that compresses it marks the tag as
/// weak.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    known.any(|known| known.trim().trim_start_matches("W/") == tag)
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
    let location = HeaderValue::try_from(visitor.page());
    let location = location.unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
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

fn report(error: &Error) {
    if let Error::Internal(source) = error {
        tracing::error!(error = %chain(&**source), "a page failed");
    }
}

/// The fields of a form.
struct FormFields(Vec<(String, String)>);

impl FormFields {
    async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Error> {
        let content_type = headers.get(CONTENT_TYPE);
        let is_form = content_type.is_some_and(|value| {
            value
                .as_bytes()
                .starts_with(b"application/x-www-form-urlencoded")
        });
        if !is_form {
            return Err(Error::UnsupportedMediaType);
        }
        let body = body::read(headers, body).await?;
        Ok(Self(form_urlencoded::parse(&body).into_owned().collect()))
    }

    /// The trimmed value, or an empty one if it is absent.
    fn get(&self, name: &str) -> &str {
        let mut fields = self.0.iter();
        let found = fields.find(|(field, _)| field == name);
        found.map(|(_, value)| value.trim()).unwrap_or_default()
    }
}

/// Adds the headers that browsers need to every answer, and turns the front's JSON server errors
/// into pages.
async fn dress(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_asset = path.starts_with("/assets/");
    let is_lasting = assets::is_lasting(path);
    let is_state = path.ends_with("/state");
    let language = text::preferred(request.headers());
    let mut response = next.run(request).await;
    let is_json = |response: &Response| {
        let content_type = response.headers().get(CONTENT_TYPE);
        content_type.is_some_and(|value| value == "application/json")
    };
    if response.status().is_server_error() && is_json(&response) && !is_state {
        let made = page::refusal(language, &Error::NothingStarted, None);
        let (parts, body) = made.into_parts();
        *response.body_mut() = body;
        response.headers_mut().extend(parts.headers);
    }
    let status = response.status();
    let is_kept = is_lasting && (status.is_success() || status == StatusCode::NOT_MODIFIED);
    let is_page = !is_asset && !is_state;
    let headers = response.headers_mut();
    let policy = if is_page { POLICY } else { BARE_POLICY };
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(ROBOTS, HeaderValue::from_static("noindex, nofollow"));
    if is_kept {
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(CACHE_CONTROL, kept);
    }
    response
}
