//! What the rails' wires share: reading headers, and undocumented answers.

use std::io;

use axum::{
    body::{Body, Bytes},
    response::{Html, IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};

use super::life::Odd;

/// A JSON answer.
pub fn json(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    let head = [(http::header::CONTENT_TYPE, "application/json")];
    (status, head, body).into_response()
}

/// `internal_error` is the rail's own body for a 500.
pub fn odd(odd: Odd, internal_error: &'static str) -> Response {
    let page = |status: StatusCode, words: &str| {
        let page = format!("<html><head><title>{words}</title></head><body>{words}</body></html>");
        (status, Html(page)).into_response()
    };
    match odd {
        Odd::Cut => cut(),
        Odd::InternalError => json(500, internal_error.to_owned()),
        Odd::BadGateway => page(StatusCode::BAD_GATEWAY, "Bad Gateway"),
        Odd::Rejected => page(StatusCode::OK, "Request Rejected"),
        Odd::TooMany => page(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests"),
        Odd::Unavailable => page(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
        Odd::Missing => page(StatusCode::NOT_FOUND, "Not Found"),
        Odd::InvalidReference => json(
            400,
            r#"{"status":false,"message":"Transaction reference is invalid"}"#.to_owned(),
        ),
    }
}

/// No answer at all. A body that breaks before its first byte makes hyper drop the connection with
/// the head still unsent.
fn cut() -> Response {
    let broken = futures::stream::once(async { Err::<Bytes, _>(io::Error::other("cut")) });
    Response::new(Body::from_stream(broken))
}

pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

/// The credentials after the scheme in the Authorization header.
pub fn credentials<'h>(headers: &'h HeaderMap, scheme: &str) -> &'h str {
    let authorization = header(headers, "Authorization");
    let given = authorization.strip_prefix(scheme).unwrap_or_default();
    given.trim()
}
