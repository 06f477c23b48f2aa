//! What every request passes through, whatever its address: an id, a span, a metric, a place to run
//! in, and an answer in the standard form even if the code behind it panics.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use chassis::{error_chain::chain, limits::REQUEST_ID_CHARACTERS_MAX};
use futures::FutureExt as _;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS},
};
use ipnet::IpNet;
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    client_address::client_address,
    error::Error,
    in_hand::{RequestInHand, WaitingRoom},
    room::Room,
};

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a request is called, by its caller or by us. The handler finds it in the request's extensions.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// The front of one public address.
#[derive(Clone, Debug)]
pub struct Front {
    room: Arc<Room>,
    waiting: WaitingRoom,
    trusted_proxies: Arc<[IpNet]>,
}

impl Front {
    pub fn new(requests_max: usize, waiting: WaitingRoom, trusted_proxies: &[IpNet]) -> Self {
        Self {
            room: Arc::new(Room::of_requests(requests_max)),
            waiting,
            trusted_proxies: trusted_proxies.into(),
        }
    }
}

/// Runs one request through the front.
pub async fn pass(State(front): State<Front>, mut request: Request, next: Next) -> Response {
    let in_hand = front.take_in_hand(&request);
    let started = Instant::now();
    let request_id = request_id(request.headers());
    let method = method_label(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unknown", MatchedPath::as_str)
        .to_owned();
    // A parent named by the caller is not trustworthy, so each request begins a trace.
    let span = tracing::info_span!(
        parent: None,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
        request.id = request_id,
        merchant.id = tracing::field::Empty,
    );
    async {
        request
            .extensions_mut()
            .insert(RequestId(request_id.clone()));
        let mut response = run(in_hand.as_ref(), request, next).await;
        finish(&mut response, &request_id);
        let status = response.status().as_u16();
        let waited = in_hand.as_ref().map(RequestInHand::waited);
        let duration = started.elapsed().saturating_sub(waited.unwrap_or_default());
        tracing::Span::current().record("http.response.status_code", status);
        tracing::info!(status, duration_ms = duration.as_millis(), "answered");
        let labels = [
            ("method", method.to_owned()),
            ("route", route.clone()),
            ("status", status.to_string()),
        ];
        metrics::counter!("http_requests_total", &labels).increment(1);
        metrics::histogram!("http_request_duration_seconds", &labels).record(duration);
        response
    }
    .instrument(span.clone())
    .await
}

impl Front {
    /// `None` if there is no room for the request.
    fn take_in_hand(&self, request: &Request) -> Option<RequestInHand> {
        RequestInHand::enter(&self.room, self.client(request), &self.waiting)
    }

    fn client(&self, request: &Request) -> IpAddr {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |peer| peer.0);
        client_address(peer, request.headers(), &self.trusted_proxies)
    }
}

/// Refuses a request for which there is no room, and turns a panic into an answer.
async fn run(in_hand: Option<&RequestInHand>, request: Request, next: Next) -> Response {
    let Some(in_hand) = in_hand else {
        metrics::counter!("gateway_requests_shed_total").increment(1);
        return Error::NothingStarted.into_response();
    };
    let mut request = request.map(|body| in_hand.place().without(body));
    request.extensions_mut().insert(in_hand.clone());
    AssertUnwindSafe(next.run(request))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Error::Panicked.into_response())
}

/// Completes the answer: an error's body, and the headers that every answer carries.
fn finish(response: &mut Response, request_id: &str) {
    if let Some(error) = response.extensions_mut().remove::<Error>() {
        match &error {
            Error::Internal(source) => {
                tracing::error!(request_id, error = %chain(source.as_ref()), "request failed");
            }
            Error::Panicked => tracing::error!(request_id, "request panicked"),
            _ => {}
        }
        error.render(response, request_id);
    }
    let headers = response.headers_mut();
    let request_id = HeaderValue::try_from(request_id).expect("a request id is visible ASCII");
    headers.insert(X_REQUEST_ID, request_id);
    // A handler sets another value only if the answer is the same for everyone.
    let cache = headers.entry(CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The caller's own id if it is harmless, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let mut given = headers.get_all(X_REQUEST_ID).iter();
    if let (Some(id), None) = (given.next(), given.next())
        && let Ok(id) = id.to_str()
        && (1..=REQUEST_ID_CHARACTERS_MAX).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return id.to_owned();
    }
    Uuid::now_v7().to_string()
}

/// The method, or one label for all unusual ones: callers must not choose metric labels.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, middleware, routing::get};
    use chassis::{clock::Clock, shutdown::Shutdown};
    use http::StatusCode;
    use tower::ServiceExt as _;

    use super::*;

    fn given(ids: &[&str]) -> String {
        let headers = ids.iter().map(|id| {
            (
                X_REQUEST_ID,
                HeaderValue::from_bytes(id.as_bytes()).unwrap(),
            )
        });
        request_id(&headers.collect())
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_frees_its_room() {
        let waiting = WaitingRoom::new(1, &Clock::system(), &Shutdown::new());
        let front = Front::new(1, waiting, &[]);
        let router = Router::new()
            .route("/", get(async || -> () { panic!("for the test") }))
            .layer(middleware::from_fn_with_state(front, pass));
        for _ in 0..2 {
            let answer = router
                .clone()
                .oneshot(Request::new(axum::body::Body::empty()))
                .await
                .expect("an answer");
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let id = answer.headers()[X_REQUEST_ID]
                .to_str()
                .expect("an id")
                .to_owned();
            let body = axum::body::to_bytes(answer.into_body(), 1024)
                .await
                .expect("a body");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body["code"], "INTERNAL_ERROR");
            assert_eq!(body["request_id"], id.as_str());
            assert!(!body["error"].to_string().contains("for the test"));
        }
    }

    #[test]
    fn a_harmless_request_id_is_kept() {
        let longest = "a".repeat(64);
        for id in [
            "1",
            "Order-17",
            "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e",
            &longest,
        ] {
            assert_eq!(given(&[id]), id);
        }
    }

    #[test]
    fn any_other_request_id_is_replaced() {
        let longer = "a".repeat(65);
        for id in ["", "a b", "a_b", "a\"b", "é", "a;b", "${jndi}", &longer] {
            let made = given(&[id]);
            assert_ne!(made, id);
            assert_eq!(made.len(), 36);
        }
        assert_eq!(given(&["one", "two"]).len(), 36, "two are none");
        assert_eq!(given(&[]).len(), 36);
    }
}
