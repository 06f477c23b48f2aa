//! What happens around every call that is served, alone or with others of its method.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, Stream, stream::FuturesUnordered};
use http::{Request, Response};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span};

use super::{deadline, door::Refused, origin::Origin};
use crate::{
    clock::{Activity, Clock},
    telemetry,
};

/// Longest that a call may take, even if its caller allows more.
const CALL_MAX: Duration = Duration::from_secs(15);

/// The same for a call that waits for something to happen ([`CallInHand::wait`]).
const WAITING_CALL_MAX: Duration = Duration::from_secs(45);

/// A call that is served, among the request's extensions. Time travel waits for it, except while it
/// waits itself.
#[derive(Clone, Debug)]
pub struct CallInHand {
    clock: Clock,
    ends_at: Instant,
    state: Arc<Mutex<InHand>>,
}

#[derive(Debug)]
struct InHand {
    /// None while the call waits, and once it has ended.
    activity: Option<Activity>,
    has_waited: bool,
}

impl CallInHand {
    fn new(clock: &Clock, ends_at: Instant) -> Self {
        Self {
            clock: clock.clone(),
            ends_at,
            state: Arc::new(Mutex::new(InHand {
                activity: Some(clock.activity()),
                has_waited: false,
            })),
        }
    }

    /// Waits for something that may not happen for long. Such a call may take longer than others.
    pub async fn wait<T>(&self, happening: impl Future<Output = T>) -> T {
        self.change(|state| {
            state.has_waited = true;
            state.activity = None;
        });
        let happened = happening.await;
        let activity = self.clock.activity();
        self.change(|state| state.activity = Some(activity));
        happened
    }

    fn has_waited(&self) -> bool {
        self.change(|state| state.has_waited)
    }

    fn end(&self) {
        self.change(|state| state.activity = None);
    }

    fn change<T>(&self, change: impl FnOnce(&mut InHand) -> T) -> T {
        // No code panics while it holds the lock.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        // Health and reflection say nothing about our work, and their streams may stay open for
        // ever.
        if method.starts_with("grpc.") {
            return Box::pin(self.inner.call(request));
        }
        let span = span_of(&method, &Origin::read(request.headers()));
        let mut started = UncountedCall::new(method);
        let longest = deadline::read(request.headers()).unwrap_or(CALL_MAX);
        let ends_at = started.at + longest.min(CALL_MAX);
        let waiting_ends_at = started.at + longest.min(WAITING_CALL_MAX);
        let in_hand = CallInHand::new(&self.clock, ends_at);
        request.extensions_mut().insert(in_hand.clone());
        let mut call = Box::pin(AssertUnwindSafe(self.inner.call(request)).catch_unwind());
        let answer = async move {
            let in_time = match timeout_at(ends_at, &mut call).await {
                Err(_) if in_hand.has_waited() => timeout_at(waiting_ends_at, call).await,
                in_time => in_time,
            };
            let answer = match in_time {
                Ok(Ok(answer)) => answer,
                Ok(Err(_panic)) => Ok(panicked().into_http()),
                Err(_) => Ok(late().into_http()),
            };
            if let Ok(answer) = &answer {
                let status = Status::from_header_map(answer.headers());
                started.is_refused = answer.extensions().get::<Refused>().is_some();
                started.end(status.as_ref().map_or(Code::Ok, Status::code));
            }
            in_hand.end();
            answer
        };
        Box::pin(answer.instrument(span))
    }
}

/// Answers the calls of one batch as they end, each with its place in the batch. Each has its own
/// span, count and clock activity, and a panic ends only its own call. All share the batch's
/// deadline, if it is known.
///
/// `method` is what each would have called by itself, `package.Service/Method`.
pub(super) fn answer_each<Q, A, F>(
    method: &'static str,
    batch: Option<CallInHand>,
    calls: Vec<(Origin, Q)>,
    answer: impl Fn(Q) -> F + Clone,
) -> impl Stream<Item = (usize, Result<A, Status>)>
where
    F: Future<Output = Result<A, Status>>,
{
    let ends_at = batch.as_ref().map(|call| call.ends_at);
    let ends_at = ends_at.unwrap_or_else(|| Instant::now() + CALL_MAX);
    let calls = calls.into_iter().enumerate();
    let answering: FuturesUnordered<_> = calls
        .map(|(place, (origin, request))| {
            let span = span_of(method, &origin);
            let started = UncountedCall::new(method.to_owned());
            let activity = batch.as_ref().map(|call| call.clock.activity());
            let answer = answer.clone();
            let answer = AssertUnwindSafe(async move { answer(request).await }).catch_unwind();
            let answer = timeout_at(ends_at, answer);
            let counted = async move {
                let answer = match answer.await {
                    Ok(answer) => answer.unwrap_or_else(|_panic| Err(panicked())),
                    Err(_) => Err(late()),
                };
                started.end(answer.as_ref().err().map_or(Code::Ok, Status::code));
                drop(activity);
                (place, answer)
            };
            counted.instrument(span)
        })
        .collect();
    answering
}

fn span_of(method: &str, origin: &Origin) -> Span {
    let span = tracing::info_span!(
        "grpc",
        otel.name = method,
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.method = method,
        rpc.code = tracing::field::Empty,
        request.id = origin.request_id.as_deref(),
    );
    telemetry::set_parent(&span, origin.traceparent.as_deref());
    span
}

fn late() -> Status {
    Status::deadline_exceeded("no answer in time")
}

fn panicked() -> Status {
    tracing::error!("the handler panicked");
    Status::internal("internal error")
}

/// A call that is not counted yet. If it is dropped without an end, its caller is gone.
struct UncountedCall {
    method: String,
    at: Instant,
    code: Code,
    is_refused: bool,
}

impl UncountedCall {
    fn new(method: String) -> Self {
        Self {
            method,
            at: Instant::now(),
            code: Code::Cancelled,
            is_refused: false,
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
        if self.is_refused || self.code == Code::Unimplemented {
            // A name that the caller made up must not become a metric label.
            "unknown".clone_into(&mut method);
        }
        metrics::counter!("grpc_calls_total", "method" => method.clone(), "code" => format!("{:?}", self.code))
            .increment(1);
        metrics::histogram!("grpc_call_seconds", "method" => method).record(self.at.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::StreamExt as _;
    use tokio::time::sleep;

    use super::*;

    /// The milliseconds after which calls that take so many ended, with their places and what became
    /// of them, if they may take 2 s: 0 panics, and 1 never ends.
    async fn answered(calls: &[u64]) -> Vec<(u128, usize, Result<u64, Code>)> {
        let begun = Instant::now();
        let clock = Clock::system();
        let batch = CallInHand::new(&clock, begun + Duration::from_secs(2));
        let calls = calls.iter().map(|millis| (Origin::default(), *millis));
        let answers = answer_each(
            "test.Test/Wait",
            Some(batch),
            calls.collect(),
            async |millis| {
                match millis {
                    0 => panic!("a handler panics"),
                    1 => pending().await,
                    _ => sleep(Duration::from_millis(millis)).await,
                }
                Ok(millis)
            },
        );
        let answers = answers.map(|(place, answer)| {
            let answer = answer.map_err(|status| status.code());
            (begun.elapsed().as_millis(), place, answer)
        });
        let answers = answers.collect().await;
        assert!(!clock.is_busy());
        answers
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_batch_are_answered_as_they_end_by_its_deadline() {
        assert_eq!(
            answered(&[40, 1, 0, 20]).await,
            [
                (0, 2, Err(Code::Internal)),
                (20, 3, Ok(20)),
                (40, 0, Ok(40)),
                (2_000, 1, Err(Code::DeadlineExceeded)),
            ]
        );
        assert_eq!(answered(&[]).await, []);
    }
}
