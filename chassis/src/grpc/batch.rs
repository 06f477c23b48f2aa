//! Calls of one method that arrive while others are on their way travel together, because calls make
//! up much of what a request costs.
//!
//! Promise: each has a trace, a count and an outcome of its own, and does not wait for another's, as
//! if it had been sent by itself. If a connection breaks, calls without an outcome are lost, as if
//! each had been sent alone.

use std::{
    collections::HashMap, fmt, iter, marker::PhantomData, mem::take, sync::Arc, time::Duration,
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::uri::PathAndQuery;
use proto::{
    batch::{
        Call, CarryRequest, CarryResponse, Outcome,
        batches_client::BatchesClient,
        batches_server::{Batches, BatchesServer},
    },
    batched::BatchedMethod,
};
use tokio::{select, sync::oneshot, time::timeout};
use tonic::{Code, Request, Response, Status, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    Channel,
    call::{CallInHand, answer_each},
    door::Callers,
    invalid,
    origin::Origin,
};
use crate::{
    sets::{LARGE_SET, SetError, SetWork, Sets},
    shutdown::Tasks,
};

/// Most calls that travel together. If their connection breaks, all may be repeated, so more would
/// use up what their caller has for that. Services must take more before anybody sends more.
pub const CALLS_MAX: usize = 64;

/// Calls of one method. Clones share their queue.
pub struct BatchedCalls<M: BatchedMethod>(Sets<Carrier<M>>);

impl<M: BatchedMethod> BatchedCalls<M> {
    /// `longest`: how long a call may take, with its wait for a batch.
    pub fn new(channel: Channel, longest: Duration) -> Self {
        // Not drained at shutdown: nobody needs an answer once its caller has gone.
        let carrier = Carrier {
            channel,
            longest,
            method: PhantomData,
        };
        Self(Sets::new(carrier, Tasks::new()))
    }

    /// Calls, alone or in a batch. In a batch, only the message and its origin travel, no other
    /// metadata.
    pub async fn call(
        &self,
        request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let answer = timeout(self.0.work().longest, self.call_in_set(request));
        let late = |_| Status::deadline_exceeded("no answer in time");
        answer.await.map_err(late)?
    }

    async fn call_in_set(
        &self,
        request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let (answer, mut answered) = oneshot::channel();
        let set = self.0.run(WaitingCall {
            request,
            origin: Origin::current(),
            answer,
        });
        let ended = select! {
            biased;
            ended = &mut answered => ended.map_err(|_| SetError::Abandoned),
            // All that its set will answer is answered by then.
            set = set => match set {
                Ok(()) => answered.await.map_err(|_| SetError::Abandoned),
                Err(error) => Err(error),
            },
        };
        match ended {
            Ok(CarriedCall::Answered(answer)) => answer.map(Response::new),
            // Boxed: few calls come here, and the others keep no room for it.
            Ok(CarriedCall::NotBegun(request)) => Box::pin(self.0.work().call_alone(request)).await,
            // With a source, as everything that the service did not say.
            Err(error) => Err(Status::from_error(error.into())),
        }
    }
}

impl<M: BatchedMethod> Clone for BatchedCalls<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: BatchedMethod> fmt::Debug for BatchedCalls<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchedCalls({})", M::PATH)
    }
}

struct WaitingCall<M: BatchedMethod> {
    request: Request<M::Request>,
    origin: Origin,
    /// Dropped if nobody knows what became of the call.
    answer: oneshot::Sender<CarriedCall<M>>,
}

impl<M: BatchedMethod> WaitingCall<M> {
    fn end(self, answer: Result<M::Response, Status>) {
        // Its caller may have stopped waiting.
        self.answer.send(CarriedCall::Answered(answer)).ok();
    }

    fn hand_back(self) {
        let Self {
            request, answer, ..
        } = self;
        answer.send(CarriedCall::NotBegun(request)).ok();
    }
}

enum CarriedCall<M: BatchedMethod> {
    Answered(Result<M::Response, Status>),
    /// To be sent by itself.
    NotBegun(Request<M::Request>),
}

/// Sends calls together.
struct Carrier<M> {
    channel: Channel,
    longest: Duration,
    method: PhantomData<fn(M)>,
}

impl<M: BatchedMethod> Carrier<M> {
    async fn call_alone(
        &self,
        request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let path = PathAndQuery::from_static(M::PATH);
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await?;
        grpc.unary(request, path, ProstCodec::default()).await
    }

    /// Sends them and gives each its outcome as it comes. Those that have none are dropped.
    async fn call_together(&self, set: Vec<WaitingCall<M>>) {
        let calls = set.iter().map(|call| {
            let Origin {
                traceparent,
                request_id,
            } = call.origin.clone();
            Call {
                traceparent: traceparent.unwrap_or_default(),
                request_id: request_id.unwrap_or_default(),
                ..Call::new(call.request.get_ref())
            }
        });
        let mut request = Request::new(CarryRequest {
            method: method::<M>().to_owned(),
            calls: calls.collect(),
        });
        request.set_timeout(self.longest);
        let mut batches = BatchesClient::new(self.channel.clone());
        let mut answers = match batches.carry(request).await {
            Ok(answer) => answer.into_inner(),
            // By a replica of the version before, which does not carry this method, or not for this
            // caller. Goes with the next release.
            Err(status)
                if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) =>
            {
                return set.into_iter().for_each(WaitingCall::hand_back);
            }
            Err(status) => {
                let failed = iter::repeat(status);
                return iter::zip(set, failed).for_each(|(call, status)| call.end(Err(status)));
            }
        };
        let mut waiting: Vec<_> = set.into_iter().map(Some).collect();
        while let Ok(Some(CarryResponse { outcomes })) = answers.message().await {
            for outcome in outcomes {
                let place = usize::try_from(outcome.call).unwrap_or(usize::MAX);
                let Some(call) = waiting.get_mut(place).and_then(Option::take) else {
                    continue;
                };
                match outcome.read() {
                    Some(answer) => call.end(answer),
                    None => tracing::warn!(method = M::PATH, "an outcome is not understood"),
                }
            }
        }
        let unanswered = waiting.iter().flatten().count();
        if unanswered > 0 {
            tracing::warn!(method = M::PATH, unanswered, "a batch broke off");
        }
    }
}

impl<M: BatchedMethod> SetWork for Carrier<M> {
    type Item = WaitingCall<M>;
    /// Each has been told its own by then.
    type Outcome = ();

    const SET_MAX: usize = CALLS_MAX;

    /// While replicas hang, each set that they got stays until `longest`: one for every 10 ms of the
    /// 5 s that callers usually have.
    const IN_HAND_MAX: usize = 512;

    /// While one is answered, its service would have nothing to do.
    const BESIDE_MIN: usize = LARGE_SET;

    /// A call takes a few milliseconds.
    const STALLED: Duration = Duration::from_millis(10);

    /// Whoever calls must bound how many do: none is turned away from this queue.
    const WAITING_MAX: usize = usize::MAX;

    async fn run(&self, set: Vec<Self::Item>) -> Vec<()> {
        let told = vec![(); set.len()];
        let calling = async {
            match <[_; 1]>::try_from(set) {
                Ok([one]) => {
                    let WaitingCall {
                        request, answer, ..
                    } = one;
                    let answered = self.call_alone(request).await.map(Response::into_inner);
                    answer.send(CarriedCall::Answered(answered)).ok();
                }
                Err(set) => self.call_together(set).await,
            }
        };
        // All callers have gone by then.
        timeout(self.longest, calling).await.ok();
        told
    }
}

/// `package.Service/Method`
fn method<M: BatchedMethod>() -> &'static str {
    M::PATH.trim_start_matches('/')
}

/// Takes it from the call.
fn origin_of(call: &mut Call) -> Origin {
    let given = |text: &mut String| Some(take(text)).filter(|text| !text.is_empty());
    Origin {
        traceparent: given(&mut call.traceparent),
        request_id: given(&mut call.request_id),
    }
}

type Answer = dyn Fn(Option<CallInHand>, Vec<Call>) -> BoxStream<'static, Outcome> + Send + Sync;

/// The methods of a service that may be called by batches.
#[derive(Clone, Default)]
pub struct BatchedMethods(HashMap<&'static str, Arc<Answer>>);

impl BatchedMethods {
    /// Answers calls of this method, too.
    #[must_use]
    pub fn method<M, F>(
        mut self,
        answer: impl Fn(M::Request) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        M: BatchedMethod,
        F: Future<Output = Result<M::Response, Status>> + Send + 'static,
    {
        let answer = move |batch, calls: Vec<Call>| {
            let calls = calls.into_iter();
            let calls = calls.map(|mut call| (origin_of(&mut call), call));
            let answer = answer.clone();
            let answered = answer_each(method::<M>(), batch, calls.collect(), move |call: Call| {
                let answering = call.read().map(&answer);
                async move {
                    let unreadable = |_| invalid(&[("calls.request", "must be the method's")]);
                    answering.map_err(unreadable)?.await
                }
            });
            let outcomes = answered.map(|(place, answer)| {
                // There are at most 64.
                Outcome::new(u32::try_from(place).unwrap_or(u32::MAX), answer)
            });
            outcomes.boxed()
        };
        self.0.insert(method::<M>(), Arc::new(answer));
        self
    }

    pub fn into_server(self) -> BatchesServer<Self> {
        BatchesServer::new(self)
    }
}

impl fmt::Debug for BatchedMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[tonic::async_trait]
impl Batches for BatchedMethods {
    type CarryStream = BoxStream<'static, Result<CarryResponse, Status>>;

    async fn carry(
        &self,
        request: Request<CarryRequest>,
    ) -> Result<Response<Self::CarryStream>, Status> {
        let (_, extensions, CarryRequest { method, calls }) = request.into_parts();
        if calls.len() > CALLS_MAX {
            return Err(invalid(&[(
                "calls",
                &format!("must be at most {CALLS_MAX}"),
            )]));
        }
        if method.is_empty() {
            return Err(invalid(&[("method", "is missing")]));
        }
        if let Some(callers) = extensions.get::<Callers>() {
            callers.check_batched(&method, &extensions)?;
        }
        let Some(answer) = self.0.get(method.as_str()) else {
            return Err(Status::unimplemented("not a method of batches here"));
        };
        let batch = extensions.get::<CallInHand>().cloned();
        let outcomes = answer(batch, calls).ready_chunks(CALLS_MAX);
        let mut answers = outcomes.map(|outcomes| Ok(CarryResponse { outcomes }));
        // The answer's head goes with the first of them, in one write.
        let first = answers.next().await;
        Ok(Response::new(stream::iter(first).chain(answers).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::TryStreamExt as _;
    use proto::{
        batch::outcome,
        batched::GetSession,
        sessions::{GetSessionRequest, Session},
    };

    use super::*;

    /// Finds every session but the one without an id.
    async fn carried(method: &str, calls: Vec<Call>) -> Result<Vec<Outcome>, Status> {
        let methods = BatchedMethods::default().method::<GetSession, _>(
            async |request: GetSessionRequest| match request.session_id {
                id if id.is_empty() => Err(invalid(&[("session_id", "is missing")])),
                session_id => Ok(Session {
                    session_id,
                    ..Session::default()
                }),
            },
        );
        let method = method.to_owned();
        let request = Request::new(CarryRequest { method, calls });
        let answers = methods.carry(request).await?.into_inner();
        let answers: Vec<CarryResponse> = answers.try_collect().await?;
        let outcomes = answers.into_iter().flat_map(|answer| answer.outcomes);
        Ok(outcomes.collect())
    }

    fn call(session_id: &str) -> Call {
        let request = GetSessionRequest {
            session_id: session_id.to_owned(),
            ..GetSessionRequest::default()
        };
        Call::new(&request)
    }

    #[tokio::test]
    async fn each_call_of_a_batch_has_its_own_outcome() {
        let unreadable = Call {
            request: vec![0xff].into(),
            ..Call::default()
        };
        let calls = vec![call("a"), call(""), unreadable, call("b")];
        let outcomes = carried(method::<GetSession>(), calls).await.unwrap();
        let outcomes = outcomes.into_iter().map(|outcome| {
            let call = outcome.call;
            let outcome = outcome.read::<Session>().unwrap();
            let outcome = outcome
                .map(|session| session.session_id)
                .map_err(|status| crate::grpc::violations(&status)[0].0.clone());
            (call, outcome)
        });
        assert_eq!(
            outcomes.collect::<BTreeMap<_, _>>(),
            BTreeMap::from([
                (0, Ok("a".to_owned())),
                (1, Err("session_id".to_owned())),
                (2, Err("calls.request".to_owned())),
                (3, Ok("b".to_owned())),
            ])
        );
    }

    #[tokio::test]
    async fn a_batch_that_is_too_large_or_of_another_method_is_refused_as_a_whole() {
        let calls = |count| vec![call("a"); count];
        let most = carried(method::<GetSession>(), calls(CALLS_MAX)).await;
        assert_eq!(most.unwrap().len(), CALLS_MAX);
        let refused = carried(method::<GetSession>(), calls(CALLS_MAX + 1)).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        let refused = carried("", calls(1)).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        for other in [
            "payments.sessions.v1.Sessions/ListSessions",
            GetSession::PATH,
        ] {
            let refused = carried(other, calls(1)).await;
            assert_eq!(refused.unwrap_err().code(), Code::Unimplemented, "{other}");
        }
    }

    #[test]
    fn an_outcome_that_is_not_understood_is_none() {
        let unreadable = outcome::Outcome::Response(vec![0xff].into());
        let outcomes = [
            Outcome::default(),
            Outcome {
                outcome: Some(unreadable),
                ..Outcome::default()
            },
        ];
        for outcome in outcomes {
            assert!(outcome.read::<Session>().is_none());
        }
    }
}
