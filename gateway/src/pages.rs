//! What the pages of the hosted checkout and of the dashboard have in common: the frame of headers,
//! assets, encodings, forms and amounts.
//!
//! Pages are made on the server and work without scripts. Templates escape whatever comes from
//! outside, and the policy lets nothing in but our own style sheet, script and forms.

pub mod amount;
pub mod assets;
pub mod encoding;
pub mod form;
pub mod same_site;

use askama::{Template, Values};
use axum::{
    extract::Request,
    response::{Html, IntoResponse as _, Response},
};
use chassis::error_chain::chain;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, IF_NONE_MATCH, LOCATION,
        REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    },
};

use crate::error::Error;

/// Only our own style sheet, script and forms; nobody may frame us.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
    base-uri 'none'";

/// For answers that are not pages.
const BARE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// What an answer is, as far as its headers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Page,
    /// Of this path, which names the content's hash.
    Asset {
        is_lasting: bool,
    },
    /// For a script.
    Data,
}

impl Kind {
    /// By the request. `is_data` tells which paths scripts ask for.
    pub fn of(request: &Request, is_data: impl FnOnce(&str) -> bool) -> Self {
        let path = request.uri().path();
        match path.starts_with(assets::FOLDER) {
            true => Self::Asset {
                is_lasting: assets::is_lasting(path),
            },
            false if is_data(path) => Self::Data,
            false => Self::Page,
        }
    }
}

/// Whom a browser tells which page it comes from.
#[derive(Clone, Copy, Debug)]
pub enum Referrer {
    /// Nobody: who knows a page's address may see it.
    Nobody,
    /// Only ourselves. The forms of a page that nobody is told of have no origin.
    Ourselves,
}

/// Adds the headers that browsers need.
pub fn dress(response: &mut Response, kind: Kind, referrer: Referrer) {
    let status = response.status();
    let is_kept = kind == (Kind::Asset { is_lasting: true })
        && (status.is_success() || status == StatusCode::NOT_MODIFIED);
    let policy = match kind {
        Kind::Page => POLICY,
        Kind::Asset { .. } | Kind::Data => BARE_POLICY,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    let referrer = match referrer {
        Referrer::Nobody => "no-referrer",
        Referrer::Ourselves => "same-origin",
    };
    headers.insert(REFERRER_POLICY, HeaderValue::from_static(referrer));
    // Browsers heed it over HTTPS only.
    headers.insert(
        STRICT_TRANSPORT_SECURITY,
        HeaderValue::from_static("max-age=31536000"),
    );
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    headers.insert(ROBOTS, HeaderValue::from_static("noindex, nofollow"));
    if is_kept {
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(CACHE_CONTROL, kept);
    }
}

/// Whether the front answered with a server error of its own, which is JSON. A page takes its place.
pub fn is_front_failure(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    response.status().is_server_error()
        && content_type.is_some_and(|value| value == "application/json")
}

/// Puts this page in the place of the front's answer, which keeps its status and headers.
pub fn replace_body(response: &mut Response, page: Response) {
    let (parts, body) = page.into_parts();
    *response.body_mut() = body;
    response.headers_mut().extend(parts.headers);
}

/// The rendered page, or an empty 500 if it cannot be rendered.
pub fn respond(status: StatusCode, page: &impl Template) -> Response {
    respond_with(status, page, askama::NO_VALUES)
}

/// The same, with what the page's filters need.
pub fn respond_with(status: StatusCode, page: &impl Template, values: &dyn Values) -> Response {
    match page.render_with_values(values) {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(error = %chain(&error), "a page cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Sends the browser to one of our own pages (303), as every accepted form is answered.
pub fn see(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Logs a fault on our side. Refusals are the visitor's to see.
pub fn report(error: &Error) {
    if let Error::Internal(source) = error {
        tracing::error!(error = %chain(&**source), "a page failed");
    }
}

/// Whether the browser has the content with this tag. A proxy that compresses it marks the tag as
/// weak.
pub fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    known.any(|known| known.trim().trim_start_matches("W/") == tag)
}
