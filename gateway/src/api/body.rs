//! A request's JSON body: taken only as JSON, only up to 64 KiB, only within a deadline, and only
//! where it is one object without doubt about what it says.

use std::{collections::BTreeMap, error::Error as StdError, fmt};

use axum::{
    body::Body,
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use chassis::http::BodyTooSlow;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{error::Error, room::NoRoom};

/// The largest body that is read (design "Error body", 413).
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// A JSON object with each value as the text that was sent.
///
/// Values that nobody asks for are checked to be JSON and nothing more, without recursion, so that
/// no depth of nesting does harm.
#[derive(Debug)]
pub struct Object(BTreeMap<String, Box<RawValue>>);

impl Object {
    /// The value of a field; `None` where it is absent or null.
    pub fn get(&self, field: &str) -> Option<&RawValue> {
        self.0
            .get(field)
            .map(Box::as_ref)
            .filter(|value| value.get() != "null")
    }

    fn parse(body: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(body).map_err(|_| Error::MalformedJson)?;
        serde_json::from_str(text).map_err(|_| Error::MalformedJson)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = BTreeMap::new();
                while let Some((field, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if object.insert(field, value).is_some() {
                        // Readers differ in which of the two they take.
                        return Err(de::Error::custom("a field is there twice"));
                    }
                }
                Ok(Object(object))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Extracts the body of a request as a JSON object: 415, 413, 408 or 400, in this order.
impl<S: Sync> FromRequest<S> for Object {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let (parts, body) = request.into_parts();
        let is_empty = length(&parts.headers).unwrap_or_default() == 0
            && !parts.headers.contains_key(header::TRANSFER_ENCODING);
        if !is_empty && !is_json(&parts.headers) {
            return Err(Error::UnsupportedMediaType);
        }
        Self::parse(&read(&parts.headers, body).await?)
    }
}

/// Reads a whole body, but no more than [`BODY_BYTES_MAX`] of it.
pub async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Error> {
    // What its length already gives away is not read at all.
    if length(headers).is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(Error::PayloadTooLarge);
    }
    let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
    collected.map(Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            return Error::PayloadTooLarge;
        }
        let error: &(dyn StdError + 'static) = &*error;
        for cause in std::iter::successors(Some(error), |&error| error.source()) {
            if cause.is::<BodyTooSlow>() {
                return Error::RequestTimeout;
            }
            if cause.is::<NoRoom>() {
                metrics::counter!("gateway_requests_shed_total").increment(1);
                return Error::NothingStarted;
            }
        }
        Error::BodyCutOff
    })
}

/// The body's length where the caller told it.
fn length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Whether the one content type is `application/json`, whatever its parameters, and not encoded.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(content_type), None) = (types.next(), types.next()) else {
        return false;
    };
    let media_type = content_type.to_str().unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let is_encoded = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
    media_type.eq_ignore_ascii_case("application/json") && !is_encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_null_is_absent() {
        let object =
            Object::parse(b" {\"a\": 25.50, \"b\": null, \"\\u0063\": [1, {}]} \n").unwrap();
        assert_eq!(object.get("a").map(RawValue::get), Some("25.50"));
        assert_eq!(object.get("b").map(RawValue::get), None);
        assert_eq!(object.get("c").map(RawValue::get), Some("[1, {}]"));
        assert_eq!(object.get("d").map(RawValue::get), None);
    }

    #[test]
    fn what_is_not_one_object_is_malformed() {
        for body in [
            &b""[..],
            b" ",
            b"{",
            b"{}{}",
            b"{} x",
            b"[]",
            b"[{}]",
            b"null",
            b"1",
            b"\"{}\"",
            b"{'a':1}",
            b"{a:1}",
            b"{\"a\":1,}",
            b"{\"a\":01}",
            b"{\"a\":NaN}",
            b"{\"a\":Infinity}",
            b"{\"a\":1e}",
            b"{\"a\":.5}",
            b"{\"a\":+1}",
            b"{\"a\":1 /* one */}",
            b"\xef\xbb\xbf{}",
            b"{\"a\":\"\xff\"}",
            b"{\"\xc0\x80\":1}",
            b"{\"a\":\"\xed\xa0\x80\"}",
            b"{\"a\":\"b\nc\"}",
            b"{\"a\":1,\"a\":1}",
            b"{\"a\":1,\"\\u0061\":2}",
            b"{\"\\ud800\":1}",
        ] {
            let error = Object::parse(body).expect_err("malformed");
            assert!(matches!(error, Error::MalformedJson), "{body:?}");
        }
    }

    #[test]
    fn deep_nesting_does_no_harm() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let depth = BODY_BYTES_MAX / 8;
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let body = format!("{{\"unknown\":{nested}}}");
            assert!(Object::parse(body.as_bytes()).is_ok());
            assert!(Object::parse(open.repeat(depth).as_bytes()).is_err());
        }
    }
}
