//! Callbacks of the rails, passed on as they came (design "Rail callbacks").
//!
//! Nothing here believes or even reads them. 200 is answered once charges-svc has made sure that
//! the rail will be asked.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    routing::post,
};
use http::{HeaderMap, StatusCode};
use proto::charges::ReceiveCallbackRequest;

use crate::{Edge, api::body, backend, error::Error};

/// Carries Paystack's signature over the body.
const SIGNATURE: &str = "x-paystack-signature";

pub fn routes() -> Router<Arc<Edge>> {
    Router::new().route("/rails/{rail}/{token}", post(receive).put(receive))
}

async fn receive(
    State(edge): State<Arc<Edge>>,
    address: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Error> {
    let Path((rail, token)) = address.map_err(|_| Error::NotFound)?;
    let signature = headers
        .get(SIGNATURE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let request = ReceiveCallbackRequest {
        rail,
        token,
        body: body::read(&headers, body).await?.into(),
        signature,
    };
    edge.charges
        .read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.receive_callback(request).await },
        )
        .await?;
    Ok(StatusCode::OK)
}
