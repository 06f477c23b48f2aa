//! The headers with which every answer of the deprecated address announces its end (spec §9, RFC
//! 9745, RFC 8594).

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use chassis::clock::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, header::LINK};
use time::{format_description::BorrowedFormatItem, macros::format_description};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// The format of an HTTP date.
const HTTP_DATE: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// The deprecation headers, built once.
#[derive(Clone, Debug)]
pub struct Alias(HeaderMap);

impl Alias {
    /// Takes the time of deprecation, and that of removal if it is announced.
    pub fn new(deprecated_at: Timestamp, sunset: Option<Timestamp>) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        let since = format!("@{}", deprecated_at.unix_seconds());
        headers.insert(DEPRECATION, since.try_into()?);
        let successor = "</api/v1/payments/initiate>; rel=\"successor-version\"";
        headers.insert(LINK, HeaderValue::from_static(successor));
        if let Some(sunset) = sunset {
            let date = sunset.datetime().format(HTTP_DATE)?;
            headers.insert(SUNSET, date.try_into()?);
        }
        Ok(Self(headers))
    }
}

/// Adds the headers to every response.
pub async fn deprecate(State(alias): State<Alias>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().extend(alias.0);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_the_forms_of_their_headers() {
        let at = |text: &str| text.parse().expect("a timestamp");
        let alias = Alias::new(
            at("2026-11-01T00:00:00.000Z"),
            Some(at("2027-06-01T12:30:05.000Z")),
        );
        let headers = alias.expect("headers").0;
        assert_eq!(headers[DEPRECATION], "@1793491200");
        assert_eq!(headers[SUNSET], "Tue, 01 Jun 2027 12:30:05 GMT");
        let unannounced = Alias::new(at("2026-11-01T00:00:00.000Z"), None).expect("headers");
        assert!(!unannounced.0.contains_key(SUNSET));
    }
}
