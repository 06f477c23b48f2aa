//! The clock's address: `POST` with `{"advance_seconds": 86400}` moves time forward, from due time
//! to due time, and answers with `{"now"}` once everything that became due is done.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use chassis::{clock::Clock, error_chain::chain};
use serde::Deserialize;
use serde_json::json;

/// Longest single step, which is longer than any schedule.
const STEP_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

#[derive(Debug, Deserialize)]
struct Advance {
    advance_seconds: u64,
}

pub fn router(clock: Clock) -> Router {
    Router::new().route("/", post(advance)).with_state(clock)
}

async fn advance(State(clock): State<Clock>, Json(step): Json<Advance>) -> Response {
    let by = Duration::from_secs(step.advance_seconds);
    if by > STEP_MAX {
        let error = json!({ "error": "advance_seconds must be at most one year" });
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    match clock.advance(by).await {
        Ok(now) => Json(json!({ "now": now.to_string() })).into_response(),
        Err(error) => {
            tracing::error!(
                error = %chain(&error),
                "the clock did not move"
            );
            let error = json!({ "error": error.to_string() });
            (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response()
        }
    }
}
