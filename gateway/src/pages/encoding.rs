//! Compresses bodies for browsers that accept it.
//!
//! The length of a compressed body reveals what repeats in it (the BREACH attack). There is no
//! secret to reveal here: the pages use no cookie, so nobody can make a visitor's browser load what
//! only that visitor may see, and whoever has a page's address may read all of it.

use std::convert::Infallible;

use axum::{
    body::{self, Body},
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use chassis::error_chain::chain;
use http::{
    Extensions, HeaderMap, HeaderValue, Method, StatusCode, Version,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, VARY},
};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_http::{CompressionLevel, compression::CompressionLayer};

/// Added to what the browser accepts. It keeps the layer from answering 406 to a request that has
/// already been carried out.
const PLAIN_AT_LAST: HeaderValue = HeaderValue::from_static("identity;q=0.001");

/// Compresses pages.
pub async fn pages(request: Request, next: Next) -> Response {
    // HEAD states the length of the plain page.
    if request.method() == Method::HEAD {
        let mut page = next.run(request).await;
        if is_text(page.headers()) {
            let header = page.headers_mut().entry(VARY);
            header.or_insert(HeaderValue::from_static("accept-encoding"));
        }
        return page;
    }
    let encoded = negotiate(request, next, CompressionLevel::Default).await;
    let (parts, body) = encoded.into_parts();
    match body::to_bytes(body, usize::MAX).await {
        Ok(body) => Response::from_parts(parts, Body::from(body)),
        Err(error) => {
            tracing::error!(error = %chain(&error), "a page cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The service's answer, in the encoding that the browser prefers. Its body is compressed only as
/// it is read.
pub async fn negotiate<S>(mut request: Request, plain: S, level: CompressionLevel) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let headers = request.headers_mut();
    let wanted: Vec<_> = headers.get_all(ACCEPT_ENCODING).iter().cloned().collect();
    headers.insert(ACCEPT_ENCODING, PLAIN_AT_LAST);
    for line in wanted {
        headers.append(ACCEPT_ENCODING, line);
    }
    let encoded = CompressionLayer::new()
        .quality(level)
        .compress_when(is_worth_it)
        .layer(plain);
    let Ok(response) = encoded.oneshot(request).await;
    response.map(Body::new)
}

/// Whether to compress: only pages and files. The small answers about a page's state would only
/// grow.
fn is_worth_it(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    is_text(headers)
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/"))
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use axum::response::Html;
    use http::header::CONTENT_ENCODING;
    use tower::service_fn;

    use super::*;

    /// The encoding of a page for a browser that sends these `Accept-Encoding` lines.
    async fn chosen(lines: &[&'static str]) -> Option<String> {
        let mut request = Request::default();
        for line in lines {
            let line = HeaderValue::from_static(line);
            request.headers_mut().append(ACCEPT_ENCODING, line);
        }
        let page = service_fn(|_| ready(Ok(Html("a page").into_response())));
        let answer = negotiate(request, page, CompressionLevel::Default).await;
        assert_eq!(answer.status(), StatusCode::OK, "{lines:?}");
        let encoding = answer.headers().get(CONTENT_ENCODING);
        encoding.map(|encoding| encoding.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn what_the_browser_likes_best_is_chosen() {
        for (lines, best) in [
            (&["gzip, deflate, br, zstd"][..], "br"),
            (&["br;q=0.1, gzip"], "gzip"),
            (&["deflate", "GZIP"], "gzip"),
            (&["*"], "br"),
            (&["br;q=0, *;q=0.5"], "gzip"),
        ] {
            assert_eq!(chosen(lines).await.as_deref(), Some(best), "{lines:?}");
        }
    }

    #[tokio::test]
    async fn what_the_browser_does_not_take_is_not_sent() {
        for line in [
            "",
            "identity",
            "br;q=0",
            "br ; q=0.000, gzip;Q=0",
            "*;q=0",
            "identity;q=0",
            "identity;q=0, *;q=0",
            "brotli",
            "x;br",
            ",;,,q=1",
        ] {
            assert_eq!(chosen(&[line]).await, None, "{line}");
        }
        assert_eq!(chosen(&[]).await, None);
    }
}
