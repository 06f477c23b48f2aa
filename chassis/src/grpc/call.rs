//! What happens around every call that is served.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::FutureExt as _;
use http::{Request, Response};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::deadline;
use crate::{clock::Clock, telemetry};

/// Longest that a call may take, even if its caller allows more.
const CALL_MAX: Duration = Duration::from_secs(15);

/// Gives every call a span, a count, a deadline and a clock activity, and catches its panics.
pub fn layer(clock: Clock) -> CallLayer {
    CallLayer { clock }
}

#[derive(Clone)]
pub struct CallLayer {
    clock: Clock,
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService {
            inner,
            clock: self.clock.clone(),
        }
    }
}

#[derive(Clone)]
pub struct CallService<S> {
    inner: S,
    clock: Clock,
}

impl<S, E> Service<Request<Body>> for CallService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = E> + Clone + Send + 'static,
    S::Future: Send,
    E: Send,
{
    type Response = Response<Body>;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        // Health and reflection say nothing about our work, and their streams may stay open for
        // ever.
        if method.starts_with("grpc.") {
            return Box::pin(self.inner.call(request));
        }
        let activity = self.clock.activity();
        let span = tracing::info_span!(
            "grpc",
            otel.name = method,
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.method = method,
            rpc.code = tracing::field::Empty,
        );
        let traceparent = request.headers().get("traceparent");
        telemetry::set_parent(&span, traceparent.and_then(|value| value.to_str().ok()));
        let started = UncountedCall::new(method);
        let longest = deadline::read(request.headers()).unwrap_or(CALL_MAX);
        let ends_at = started.at + longest.min(CALL_MAX);
        let call = AssertUnwindSafe(self.inner.call(request)).catch_unwind();
        let answer = async move {
            let answer = match timeout_at(ends_at, call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_panic)) => {
                    tracing::error!("the handler panicked");
                    Ok(Status::internal("internal error").into_http())
                }
                Err(_) => Ok(Status::deadline_exceeded("no answer in time").into_http()),
            };
            if let Ok(answer) = &answer {
                let status = Status::from_header_map(answer.headers());
                started.end(status.as_ref().map_or(Code::Ok, Status::code));
            }
            drop(activity);
            answer
        };
        Box::pin(answer.instrument(span))
    }
}

/// A call that is not counted yet. If it is dropped without an end, its caller is gone.
struct UncountedCall {
    method: String,
    at: Instant,
    code: Code,
}

impl UncountedCall {
    fn new(method: String) -> Self {
        Self {
            method,
            at: Instant::now(),
            code: Code::Cancelled,
        }
    }

    /// Records the call's code, and logs the call if it failed through our fault.
    fn end(mut self, code: Code) {
        self.code = code;
        tracing::Span::current().record("rpc.code", tracing::field::debug(code));
        if matches!(code, Code::Internal | Code::Unknown | Code::DataLoss) {
            tracing::error!(?code, "the call failed");
        }
    }
}

/// Counts the call, however it ended.
impl Drop for UncountedCall {
    fn drop(&mut self) {
        let mut method = std::mem::take(&mut self.method);
        if self.code == Code::Unimplemented {
            // A name that the caller made up must not become a metric label.
            "unknown".clone_into(&mut method);
        }
        metrics::counter!("grpc_calls_total", "method" => method.clone(), "code" => format!("{:?}", self.code))
            .increment(1);
        metrics::histogram!("grpc_call_seconds", "method" => method).record(self.at.elapsed());
    }
}
