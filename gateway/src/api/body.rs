//! A request's JSON body: accepted only as JSON, only up to 64 KiB, only within a deadline, and
//! only if it is a single, unambiguous object.

use std::{collections::BTreeMap, error::Error as StdError, fmt};

use axum::{
    body::Body,
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use chassis::http::BodyTooSlow;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{error::Error, room::NoRoom};

/// The largest body that is read, in bytes; beyond it 413.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A JSON object that keeps each value as the text that was sent.
///
/// Unused values are only checked to be JSON. That is done without recursion, so deep nesting does
/// no harm.
#[derive(Debug)]
pub struct Object(BTreeMap<String, Box<RawValue>>);

impl Object {
    /// The value of a field, or `None` if it is absent or null.
    pub fn get(&self, field: &str) -> Option<&RawValue> {
        self.0
            .get(field)
            .map(Box::as_ref)
            .filter(|value| value.get() != "null")
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn parse(body: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(body).map_err(|_| Error::MalformedJson)?;
        serde_json::from_str(text).map_err(|_| Error::MalformedJson)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = BTreeMap::new();
                while let Some((field, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if object.insert(field, value).is_some() {
                        // JSON readers differ in which of the two they take.
                        return Err(de::Error::custom("a field is there twice"));
                    }
                }
                Ok(Object(object))
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// Extracts a request's body as a JSON object. Errors, in this order: 415, 413, 408, 400.
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

/// Reads a whole body, and refuses one of more than [`BODY_BYTES_MAX`].
pub async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Error> {
    // A body whose declared length is too large is not read at all.
    if length(headers).is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(Error::PayloadTooLarge);
    }
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut whole = Vec::new();
    // A frame keeps its whole read buffer alive, even for a single byte. So each frame is copied,
    // and dropped before the next is read.
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| cut_off(&*error))?;
        if let Some(data) = frame.data_ref() {
            if whole.capacity() - whole.len() < data.len() {
                // Doubles the capacity, but never beyond what a body may have.
                let more = data
                    .len()
                    .max(whole.len())
                    .min(BODY_BYTES_MAX - whole.len());
                whole.reserve_exact(more);
            }
            whole.extend_from_slice(data);
        }
    }
    Ok(whole.into())
}

/// Why a body could not be read to its end.
fn cut_off(error: &(dyn StdError + 'static)) -> Error {
    for cause in std::iter::successors(Some(error), |&error| error.source()) {
        if cause.is::<LengthLimitError>() {
            return Error::PayloadTooLarge;
        }
        if cause.is::<BodyTooSlow>() {
            return Error::RequestTimeout;
        }
        if cause.is::<NoRoom>() {
            metrics::counter!("gateway_requests_shed_total").increment(1);
            return Error::NothingStarted;
        }
    }
    Error::BodyCutOff
}

/// The body's length as the caller declared it.
fn length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Whether the only content type is `application/json`, with any parameters, and the body is not
/// encoded.
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::{StreamExt as _, stream};

    use super::*;

    /// A connection's read buffer, of which a frame is one byte.
    struct ReadBuffer {
        bytes: [u8; 4096],
        kept: Arc<AtomicUsize>,
    }

    impl AsRef<[u8]> for ReadBuffer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for ReadBuffer {
        fn drop(&mut self) {
            self.kept.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_body_in_single_bytes_keeps_no_buffer_that_they_were_read_into() {
        let kept = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let frames = stream::iter(0..BODY_BYTES_MAX).map({
            let (kept, most) = (kept.clone(), most.clone());
            move |_| {
                most.fetch_max(kept.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let buffer = ReadBuffer {
                    bytes: [b'x'; 4096],
                    kept: kept.clone(),
                };
                Ok::<_, std::io::Error>(Bytes::from_owner(buffer).slice(..1))
            }
        });
        let body = Body::from_stream(frames);
        let body = read(&HeaderMap::new(), body).await.unwrap();
        assert_eq!(body, vec![b'x'; BODY_BYTES_MAX]);
        assert_eq!(kept.load(Ordering::SeqCst), 0);
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

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
