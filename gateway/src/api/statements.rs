//! `/api/v1/statements`: what a UTC day did to a merchant's balance, signed. Additive.
//!
//! A statement is passed on byte for byte: its signature covers them.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use chassis::{clock::Day, error_chain::chain};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, header};
use proto::charges::{
    ListStatementKeysRequest, ReadStatementRequest, StatementFormat, StatementPiece,
};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tonic::{Status, Streaming};

use super::list::Parameters;
use crate::{
    backend,
    edge::Edge,
    error::Error,
    field_error::{Fault, FieldCode},
    merchant::Merchant,
    room::RequestPlace,
};

/// Longest time in which one is passed on, however slowly it is read.
const PASSED_ON_WITHIN: Duration = Duration::from_secs(10 * 60);

/// `StatementKeys` of the contract.
#[derive(Debug, Serialize)]
pub struct StatementKeys {
    keys: Vec<StatementKey>,
}

#[derive(Debug, Serialize)]
struct StatementKey {
    key_id: String,
    public_key: String,
}

pub async fn read(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    day: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let Path(day) = day.map_err(|_| Error::NotFound)?;
    let mut parameters = Parameters::new(query.as_deref());
    let day = parameters.read("day", &day, |text| {
        let fault = Fault::new(FieldCode::InvalidFormat, "must be a day such as 2026-11-24");
        text.parse::<Day>().map_err(|_| fault)
    });
    let format = parameters.optional("format", |text| match text {
        "json" => Ok(StatementFormat::Json),
        "csv" => Ok(StatementFormat::Csv),
        _ => Err(Fault::new(FieldCode::InvalidFormat, "must be json or csv")),
    });
    parameters.finish()?;
    let mut request = ReadStatementRequest {
        merchant_id: merchant.id.to_string(),
        day: day.map(|day| day.to_string()).unwrap_or_default(),
        ..Default::default()
    };
    request.set_format(format.unwrap_or_else(|| accepted(&headers)));
    let format = request.format();
    let Some(place) = edge.statements_room.enter(merchant.id) else {
        metrics::counter!("gateway_requests_shed_total").increment(1);
        return Err(Error::NothingStarted);
    };
    let pieces = edge
        .statements
        .read(
            backend::DEADLINE,
            request,
            |mut statements, request| async move { statements.read_statement(request).await },
        )
        .await?;
    let mut response = passed_on(pieces, place).await?.into_response();
    let content_type = match format {
        StatementFormat::Csv => HeaderValue::from_static("text/csv; charset=utf-8"),
        _ => HeaderValue::from_static("application/json"),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub async fn keys(State(edge): State<Arc<Edge>>) -> Result<Json<StatementKeys>, Error> {
    let listed = edge
        .statements
        .read(
            backend::DEADLINE,
            ListStatementKeysRequest {},
            |mut statements, request| async move { statements.list_statement_keys(request).await },
        )
        .await?;
    let keys = listed.keys.into_iter().map(|key| StatementKey {
        key_id: key.key_id,
        public_key: key.public_key,
    });
    Ok(Json(StatementKeys {
        keys: keys.collect(),
    }))
}

/// CSV for whoever names it and not JSON.
fn accepted(headers: &HeaderMap) -> StatementFormat {
    let names = |wanted: &str| {
        let values = headers.get_all(header::ACCEPT).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let mut types = values.flat_map(|value| value.split(','));
        types.any(|given| {
            let name = given.split(';').next().unwrap_or_default().trim();
            name.eq_ignore_ascii_case(wanted)
        })
    };
    match names("text/csv") && !names("application/json") {
        true => StatementFormat::Csv,
        false => StatementFormat::Json,
    }
}

/// The statement as a body. A failure before its first piece is an answer of its own; after that,
/// the connection ends before the body does.
pub async fn passed_on(
    mut pieces: Streaming<StatementPiece>,
    place: Arc<RequestPlace>,
) -> Result<Body, Error> {
    let first = pieces.message().await?;
    let first = first.ok_or_else(|| Error::internal("a statement without content"))?;
    let first = Bytes::from(first.content);
    let ends_at = Instant::now() + PASSED_ON_WITHIN;
    let rest = stream::try_unfold((pieces, place), move |(mut pieces, place)| async move {
        let late = || Status::deadline_exceeded("the statement is read too slowly");
        let piece = timeout_at(ends_at, pieces.message()).await;
        let piece = piece.map_err(|_| late()).flatten().inspect_err(|status| {
            tracing::warn!(error = %chain(status), "a statement ends before its signature");
        })?;
        Ok::<_, Status>(piece.map(|piece| (Bytes::from(piece.content), (pieces, place))))
    });
    let first = stream::once(async { Ok(first) });
    Ok(Body::from_stream(first.chain(rest)))
}
