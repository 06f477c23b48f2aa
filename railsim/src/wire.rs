//! HTTP helpers for both APIs.

use std::io;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, header};

use crate::journal::JournalLost;

/// Cuts the connection without any answer.
///
/// The body fails before its first byte, and hyper then drops the connection with the unsent head
/// still in its buffer (a test checks this).
pub fn cut() -> Response {
    let broken = futures::stream::once(async { Err::<Bytes, _>(io::Error::other("cut off")) });
    Response::new(Body::from_stream(broken))
}

/// A network that cannot record what it did does not answer.
impl IntoResponse for JournalLost {
    fn into_response(self) -> Response {
        cut()
    }
}

/// A header's value as text, or `None` if it is missing or not text.
pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The content type without its parameters, in lower case.
pub fn media_type(headers: &HeaderMap) -> String {
    let value = header(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// What follows `scheme` in the Authorization header, or `None` for another scheme.
pub fn credentials<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h str> {
    let (given, rest) = header(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    Some(rest.trim()).filter(|_| given.eq_ignore_ascii_case(scheme))
}
