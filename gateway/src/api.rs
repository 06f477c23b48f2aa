//! The merchants' JSON API, version 1, and its deprecated alias (spec §4, §9).
//!
//! Checks run in this order: address and method, key (401), the merchant's rate (429) and
//! verification (403). Only then is the body read (415, 413, 400) and a service called (404, 409,
//! 422).

pub mod alias;
pub mod amount;
pub mod balance;
pub mod body;
pub mod charge;
pub mod charges;
pub mod customers;
pub mod events;
pub mod fields;
pub mod idempotency;
pub mod initiate;
pub mod list;
pub mod openapi;
pub mod payments;
pub mod payouts;
pub mod preflight;
pub mod read_charge;
pub mod refunds;
pub mod session_status;
pub mod statements;
pub mod submit_otp;
pub mod timeline;
pub mod webhook_endpoint;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use chassis::rate_bucket::RateBucket;
use http::HeaderMap;

use crate::{
    client_address::client_address, edge::Edge, error::Error, in_hand::RequestInHand,
    merchant::Purpose,
};

/// All routes of the API.
pub fn routes(edge: &Arc<Edge>) -> Router<Arc<Edge>> {
    specified(edge).merge(additive(edge))
}

/// The routes of the specification, and its description.
fn specified(edge: &Arc<Edge>) -> Router<Arc<Edge>> {
    use {Purpose::*, RateBucket::*};
    let gated = |route, bucket, purpose| gated(edge, route, bucket, purpose);
    let initiate = || gated(post(initiate::initiate), Payments, TakePayment);
    let deprecated = middleware::from_fn_with_state(edge.alias.clone(), alias::deprecate);
    Router::new()
        .route("/api/openapi.json", get(openapi::serve))
        .route("/api/v1/payments/initiate", initiate())
        .route("/api/payments/initiate", initiate().route_layer(deprecated))
        .route(
            "/api/v1/payments/{session_id}/status",
            gated(get(session_status::session_status), Payments, Other),
        )
        .route(
            "/api/v1/payments/charge",
            gated(post(charge::charge), Charge, TakePayment),
        )
        .route(
            "/api/v1/payments/charge/submit-otp",
            gated(post(submit_otp::submit_otp), Charge, Other),
        )
        .route(
            "/api/v1/payments/charge/{reference}",
            gated(get(read_charge::read_charge), ChargeStatus, Other),
        )
}

/// The routes that the specification does not name.
fn additive(edge: &Arc<Edge>) -> Router<Arc<Edge>> {
    use {Purpose::*, RateBucket::*};
    let gated = |route, bucket, purpose| gated(edge, route, bucket, purpose);
    Router::new()
        .route(
            "/api/v1/payments/charge/preflight",
            gated(post(preflight::preflight), Write, Other),
        )
        .route(
            "/api/v1/payments/charge/{reference}/refunds",
            gated(post(refunds::create), Write, Other),
        )
        .route(
            "/api/v1/payments/charge/{reference}/timeline",
            gated(get(timeline::timeline), Read, Other),
        )
        .route("/api/v1/refunds", gated(get(refunds::list), Read, Other))
        .route(
            "/api/v1/refunds/{refund_id}",
            gated(get(refunds::read), Read, Other),
        )
        .route("/api/v1/payments", gated(get(payments::list), Read, Other))
        .route("/api/v1/charges", gated(get(charges::list), Read, Other))
        .route(
            "/api/v1/customers",
            gated(get(customers::list), Read, Other),
        )
        .route(
            "/api/v1/customers/{customer_id}",
            gated(get(customers::read), Read, Other),
        )
        .route("/api/v1/balance", gated(get(balance::balance), Read, Other))
        .route(
            "/api/v1/payouts",
            gated(get(payouts::list), Read, Other).merge(gated(
                post(payouts::create),
                Write,
                Other,
            )),
        )
        .route(
            "/api/v1/payouts/{payout_id}",
            gated(get(payouts::read), Read, Other),
        )
        .route("/api/v1/events", gated(get(events::list), Read, Other))
        .route(
            "/api/v1/events/{event_id}/redeliver",
            gated(post(events::redeliver), Write, Other),
        )
        .route(
            "/api/v1/webhook-endpoint",
            gated(get(webhook_endpoint::read), Read, Other),
        )
        .route(
            "/api/v1/webhook-endpoint/test",
            gated(post(webhook_endpoint::test), Write, Other),
        )
        .route(
            "/api/v1/statements/keys",
            gated(get(statements::keys), Read, Other),
        )
        .route(
            "/api/v1/statements/{day}",
            gated(get(statements::read), Read, Other),
        )
}

/// A route with what is checked before it.
fn gated(
    edge: &Arc<Edge>,
    route: MethodRouter<Arc<Edge>>,
    bucket: RateBucket,
    purpose: Purpose,
) -> MethodRouter<Arc<Edge>> {
    let gate = EndpointGate {
        edge: edge.clone(),
        bucket,
        purpose,
    };
    route.route_layer(middleware::from_fn_with_state(gate, enter))
}

/// What an endpoint checks before it runs.
#[derive(Clone)]
struct EndpointGate {
    edge: Arc<Edge>,
    bucket: RateBucket,
    purpose: Purpose,
}

/// Admits a merchant after checking key, rate and verification. The handler finds the merchant in
/// the request's extensions.
async fn enter(
    State(gate): State<EndpointGate>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let edge = &gate.edge;
    let address = client_address(peer, request.headers(), &edge.trusted_proxies);
    let merchant = match edge.keys.authenticate(request.headers(), address).await {
        Ok(merchant) => merchant,
        Err(error) => return error.into_response(),
    };
    tracing::Span::current().record("merchant.id", tracing::field::display(merchant.id));
    let quota = edge.rate_limits.check(merchant.id, gate.bucket).await;
    let admitted = quota
        .admit()
        .map_err(Error::RateLimited)
        .and_then(|()| merchant.may(gate.purpose));
    let mut response = match admitted {
        Ok(()) => {
            request.extensions_mut().insert(merchant);
            let waiter = Waiter::of(&request);
            let response = next.run(request).await;
            match waiter {
                Some(waiter) => waiter.answered(&gate, address, response).await,
                None => response,
            }
        }
        Err(error) => Error::into_response(error),
    };
    quota.write(response.headers_mut());
    response
}

/// Who may have waited for an answer, and meanwhile lost the right to it.
struct Waiter {
    in_hand: RequestInHand,
    headers: HeaderMap,
}

impl Waiter {
    /// Only an address with parameters can wait.
    fn of(request: &Request) -> Option<Self> {
        request.uri().query()?;
        let in_hand = request.extensions().get::<RequestInHand>()?;
        Some(Self {
            in_hand: in_hand.clone(),
            headers: request.headers().clone(),
        })
    }

    /// The answer, unless the key was revoked or the merchant's verification withdrawn in the time
    /// that it took.
    async fn answered(self, gate: &EndpointGate, address: IpAddr, answer: Response) -> Response {
        if self.in_hand.waited().is_zero() {
            return answer;
        }
        let keys = &gate.edge.keys;
        let merchant = keys.authenticate(&self.headers, address).await;
        match merchant.and_then(|merchant| merchant.may(gate.purpose)) {
            Ok(()) => answer,
            Err(error) => error.into_response(),
        }
    }
}
