//! Callbacks of the rails, passed on as they come.
//!
//! Nothing here believes or even reads them, or decides by a rail: charges-svc says which headers
//! each needs. Until it has, callbacks are answered 503, so that rails repeat them. 200 means that
//! charges-svc has made sure that the rail will be queried. Callers who try out addresses are told
//! to wait, and cost little.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Path, State, rejection::PathRejection},
    routing::post,
};
use chassis::ids::is_segment;
use http::{HeaderMap, StatusCode};
use proto::charges::ReceiveCallbackRequest;

use crate::{
    api::body, backend, callback_headers, client_address::client_address, edge::Edge, error::Error,
};

pub fn routes() -> Router<Arc<Edge>> {
    Router::new().route("/rails/{rail}/{token}", post(receive).put(receive))
}

async fn receive(
    State(edge): State<Arc<Edge>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    address: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Error> {
    let client = client_address(peer, &headers, &edge.trusted_proxies);
    let received = match address {
        Ok(Path((rail, token))) if is_segment(&rail) && is_segment(&token) => {
            let request = ReceiveCallbackRequest {
                rail,
                token,
                body: body::read(&headers, body).await?.into(),
                // For a charges-svc of the version before, which reads no other header.
                signature: headers
                    .get("x-paystack-signature")
                    .map(callback_headers::text),
                ..Default::default()
            };
            let guess = (request.rail.clone(), request.token.clone());
            // Boxed, because what is handed on and then awaited takes its place twice.
            let passed_on = Box::pin(pass_on(&edge, request, &headers));
            edge.callback_guesses
                .look_up(client, guess, passed_on)
                .await
        }
        _ => Err(Error::NotFound),
    };
    received.map_err(|error| match error {
        Error::NotFound | Error::CallbackSignatureInvalid => {
            edge.callback_guesses.refuse(client, error)
        }
        error => error,
    })
}

async fn pass_on(
    edge: &Edge,
    mut request: ReceiveCallbackRequest,
    headers: &HeaderMap,
) -> Result<StatusCode, Error> {
    request.headers = edge
        .callback_headers
        .pick(&edge.charges, &request.rail, headers)
        .await?;
    let received = edge.charges.read(
        backend::DEADLINE,
        request,
        |mut charges, request| async move { charges.receive_callback(request).await },
    );
    received.await.map(|_| StatusCode::OK)
}
