//! Smaller bodies for browsers that take them: files are encoded once, pages as they are answered.
//!
//! What is encoded tells by its length what repeats itself in it (the attack called BREACH). Nothing
//! secret is there to be told: the pages know no cookie, so that nobody's browser can be made to
//! load what its visitor alone may see, and whoever has a page's address may read all of it.

use std::io::Write as _;

use axum::{
    body::{self, Body},
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use brotli::enc::BrotliEncoderParams;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY},
};

/// How a body is written smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Brotli,
    Gzip,
}

/// How much time an encoding may take for fewer bytes.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// Somebody waits.
    Quick,
    /// It is done once.
    Best,
}

impl Encoding {
    /// The best of those that the browser takes.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut ours = [Self::Brotli, Self::Gzip].into_iter();
        ours.find(|encoding| takes(headers, encoding.name()))
    }

    /// As headers say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    pub fn encode(self, content: &[u8], effort: Effort) -> Vec<u8> {
        let mut encoded = Vec::new();
        let written = match self {
            Self::Brotli => {
                let quality = match effort {
                    Effort::Quick => 5,
                    Effort::Best => 11,
                };
                let parameters = BrotliEncoderParams {
                    quality,
                    // More than any page has.
                    lgwin: 16,
                    ..BrotliEncoderParams::default()
                };
                let mut content = content;
                brotli::BrotliCompress(&mut content, &mut encoded, &parameters).map(drop)
            }
            Self::Gzip => {
                let level = match effort {
                    Effort::Quick => Compression::default(),
                    Effort::Best => Compression::best(),
                };
                let mut encoder = GzEncoder::new(&mut encoded, level);
                let written = encoder.write_all(content);
                written.and_then(|()| encoder.finish().map(drop))
            }
        };
        written.expect("memory takes every byte");
        encoded
    }
}

/// Whether a browser takes this encoding; what it gives the weight 0 it does not.
fn takes(headers: &HeaderMap, name: &str) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut takes_any = false;
    for entry in lines.flat_map(|line| line.split(',')) {
        let mut parts = entry.split(';').map(str::trim);
        let encoding = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_zero = |weight: &str| weight.bytes().all(|digit| matches!(digit, b'0' | b'.'));
        let is_taken = !weight.is_some_and(is_zero);
        if encoding.eq_ignore_ascii_case(name) {
            return is_taken;
        }
        if encoding == "*" {
            takes_any = is_taken;
        }
    }
    takes_any
}

/// Encodes pages. The small answers about a page's state would only grow.
pub async fn pages(request: Request, next: Next) -> Response {
    let accepted = Encoding::accepted(request.headers());
    // The answer to HEAD has lost its body already, and tells the length that it had.
    let encoding = accepted.filter(|_| request.method() != Method::HEAD);
    let response = next.run(request).await;
    let content_type = response.headers().get(CONTENT_TYPE);
    if !content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    vary(&mut parts.headers);
    let Some(encoding) = encoding else {
        return Response::from_parts(parts, body);
    };
    let Ok(page) = body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let page = encoding.encode(&page, Effort::Quick);
    let name = HeaderValue::from_static(encoding.name());
    parts.headers.insert(CONTENT_ENCODING, name);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

/// For caches: another browser may get another encoding.
pub fn vary(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(lines: &[&'static str]) -> Option<&'static str> {
        let lines = lines.iter();
        let headers = lines.map(|line| (ACCEPT_ENCODING, HeaderValue::from_static(line)));
        Encoding::accepted(&headers.collect()).map(Encoding::name)
    }

    #[test]
    fn the_best_that_the_browser_takes_is_chosen() {
        assert_eq!(accepted(&["gzip, deflate, br, zstd"]), Some("br"));
        assert_eq!(accepted(&["br;q=0.1, gzip"]), Some("br"));
        assert_eq!(accepted(&["deflate", "GZIP"]), Some("gzip"));
        assert_eq!(accepted(&["*"]), Some("br"));
        assert_eq!(accepted(&["br;q=0, *;q=0.5"]), Some("gzip"));
    }

    #[test]
    fn what_the_browser_does_not_take_is_not_sent() {
        for line in [
            "",
            "identity",
            "br;q=0",
            "br ; q=0.000, gzip;Q=0",
            "*;q=0",
            "brotli",
            "x;br",
            ",;,q=1",
        ] {
            assert_eq!(accepted(&[line]), None, "{line}");
        }
        assert_eq!(accepted(&[]), None);
    }
}
