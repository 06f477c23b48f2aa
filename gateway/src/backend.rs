//! Calls to the services behind the edge, each with a deadline, and repeated only where that can do
//! no harm.
//!
//! This is the only layer that repeats them: in an attempt, the channels below offer the call to
//! each replica once, until one takes it. If none does, another attempt follows at once, because
//! connections that were closed are made anew, and then a few more after pauses. An attempt that
//! may have arrived and whose answer was lost is repeated only if it is a read, or if it carries an
//! idempotency key, under which the service answers from its record of the first. Such repeats wait
//! first, and are a small share of all calls. Only if an answer under a key was lost do they go on
//! until the call's deadline.
//!
//! What a service says about one attempt ("nothing was started") does not hold for the call if an
//! earlier attempt may have arrived: that one may have started it.

use std::{
    error::Error as _,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use chassis::grpc::{BatchedCalls, Channel};
use proto::{
    batched::{CreateSession, GetCharge, GetSession},
    charges::{
        charges_client::ChargesClient, disbursements_client::DisbursementsClient,
        merchant_figures_client::MerchantFiguresClient,
        payout_accounts_client::PayoutAccountsClient, statements_client::StatementsClient,
    },
    merchants::{
        merchant_account_client::MerchantAccountClient, merchants_client::MerchantsClient,
        people_client::PeopleClient,
    },
    sessions::{checkout_sessions_client::CheckoutSessionsClient, sessions_client::SessionsClient},
    webhooks::{
        merchant_events_client::MerchantEventsClient,
        merchant_webhooks_client::MerchantWebhooksClient,
    },
};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::error::Error;

pub type Merchants = Backend<MerchantsClient<Channel>>;
pub type People = Backend<PeopleClient<Channel>>;
pub type MerchantAccount = Backend<MerchantAccountClient<Channel>>;
pub type Sessions = Backend<SessionsClient<Channel>>;
pub type NewSessions = Backend<BatchedCalls<CreateSession>>;
pub type SessionReads = Backend<BatchedCalls<GetSession>>;
pub type CheckoutSessions = Backend<CheckoutSessionsClient<Channel>>;
pub type Charges = Backend<ChargesClient<Channel>>;
pub type ChargeReads = Backend<BatchedCalls<GetCharge>>;
pub type Disbursements = Backend<DisbursementsClient<Channel>>;
pub type MerchantFigures = Backend<MerchantFiguresClient<Channel>>;
pub type PayoutAccounts = Backend<PayoutAccountsClient<Channel>>;
pub type MerchantEvents = Backend<MerchantEventsClient<Channel>>;
pub type MerchantWebhooks = Backend<MerchantWebhooksClient<Channel>>;
pub type Statements = Backend<StatementsClient<Channel>>;

/// For calls that at most touch a database.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// For calls that wait for a rail: charges-svc answers by 9 s.
pub const RAIL_DEADLINE: Duration = Duration::from_secs(12);

/// For calls that wait up to 30 s for something to happen.
pub const WAIT_DEADLINE: Duration = Duration::from_secs(35);

/// Most repeats of a call that certainly never reached a service: enough for half a second without
/// any replica.
const UNSENT_REPEATS_MAX: u32 = 4;

/// They begin within this time: replicas that do not even refuse a connection have used up more
/// after the first attempt, and the caller can soon be told that nothing was started.
const UNSENT_REPEATS_WITHIN: Duration = Duration::from_secs(1);

/// Most repeats of a call that may have arrived, unless an answer under a key was lost.
const REPEATS_MAX: u32 = 2;

/// The longest pause before the first repeat. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Calls to one service.
#[derive(Debug)]
pub struct Backend<C> {
    name: &'static str,
    client: C,
    budget: Arc<Budget>,
}

/// What an attempt may have left behind if its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing, or nothing that a repeat would change.
    None,
    /// A record under an idempotency key.
    Keyed,
    /// Something that must not be done twice.
    Once,
}

impl<C: Clone> Backend<C> {
    pub fn new(name: &'static str, client: C) -> Self {
        Self {
            name,
            client,
            budget: Arc::default(),
        }
    }

    /// Other calls to the same service, from one budget of repeats.
    pub fn with<D>(&self, client: D) -> Backend<D> {
        Backend {
            name: self.name,
            client,
            budget: Arc::clone(&self.budget),
        }
    }

    /// Makes a call that may be repeated any number of times.
    pub async fn read<Q: Clone, A, F>(
        &self,
        deadline: Duration,
        request: Q,
        send: impl Fn(C, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call(Effect::None, deadline, request, send).await
    }

    /// Makes a call that carries an idempotency key.
    pub async fn keyed<Q: Clone, A, F>(
        &self,
        deadline: Duration,
        request: Q,
        send: impl Fn(C, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call(Effect::Keyed, deadline, request, send).await
    }

    /// Makes a call that is not repeated once it may have arrived.
    pub async fn once<Q: Clone, A, F>(
        &self,
        deadline: Duration,
        request: Q,
        send: impl Fn(C, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call(Effect::Once, deadline, request, send).await
    }

    async fn call<Q: Clone, A, F>(
        &self,
        effect: Effect,
        deadline: Duration,
        request: Q,
        send: impl Fn(C, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.budget.earn();
        let begun = Instant::now();
        let ends_at = begun + deadline;
        // Whether an attempt may have arrived whose answer never did.
        let mut lost = false;
        for repeats in 0_u32.. {
            let left = ends_at.saturating_duration_since(Instant::now());
            let mut attempt = Request::new(request.clone());
            attempt.set_timeout(left);
            let answer = tokio::time::timeout(left, send(self.client.clone(), attempt)).await;
            let failure = match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => AttemptFailure::of(status),
                Err(_) => AttemptFailure::Late,
            };
            lost |= matches!(failure, AttemptFailure::Lost | AttemptFailure::Late);
            let may_repeat = match failure {
                AttemptFailure::Unsent => true,
                AttemptFailure::Lost => effect != Effect::Once,
                AttemptFailure::Late => false,
                // This is about one attempt only: a lost one may be running, or may have succeeded.
                AttemptFailure::Refused(error) if lost && error.is_of_one_attempt() => true,
                AttemptFailure::Refused(Error::OutcomeUnknown) if effect == Effect::None => {
                    return Err(Error::NothingStarted);
                }
                AttemptFailure::Refused(error) => return Err(error),
            };
            // Under a key, the record of a lost attempt is worth waiting for.
            let is_patient = lost && effect == Effect::Keyed;
            let is_left = match lost {
                true => repeats < REPEATS_MAX,
                false => repeats < UNSENT_REPEATS_MAX && begun.elapsed() < UNSENT_REPEATS_WITHIN,
            };
            // What was never sent cost no service anything, and a new connection may succeed.
            let pause = match lost || repeats > 0 {
                true => pause(repeats),
                false => Duration::ZERO,
            };
            let has_time = Instant::now() + pause < ends_at;
            let may_repeat = may_repeat && has_time && (is_patient || is_left);
            if !(may_repeat && (!lost || self.budget.spend())) {
                break;
            }
            metrics::counter!("gateway_backend_repeats_total", "backend" => self.name).increment(1);
            tokio::time::sleep(pause).await;
        }
        tracing::warn!(backend = self.name, lost, "no answer");
        Err(match effect {
            Effect::Keyed | Effect::Once if lost => Error::OutcomeUnknown,
            _ => Error::NothingStarted,
        })
    }
}

/// Why an attempt gave no result.
#[derive(Debug)]
enum AttemptFailure {
    /// It never left: no replica took it.
    Unsent,
    /// It may have arrived; the connection broke before the answer.
    Lost,
    /// It may have arrived; the deadline passed before the answer.
    Late,
    /// The service answered with an error.
    Refused(Error),
}

impl AttemptFailure {
    fn of(status: Status) -> Self {
        if status.code() == Code::DeadlineExceeded {
            return Self::Late;
        }
        // A status from the service has no source; one made up on this side has.
        let mut source = status.source();
        if source.is_none() {
            return Self::Refused(status.into());
        }
        while let Some(error) = source {
            if error.is::<tonic::ConnectError>() {
                return Self::Unsent;
            }
            source = error.source();
        }
        Self::Lost
    }
}

/// A random pause of half to all of the longest, so that callers who failed together do not come
/// back together.
fn pause(repeats: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << repeats.min(10))
        .min(PAUSE_MAX);
    rand::random_range(longest / 2..=longest)
}

/// How many attempts that may have arrived can still be repeated: each call earns a fifth of a
/// repeat.
#[derive(Debug)]
struct Budget(AtomicU32);

impl Budget {
    const REPEAT_COSTS: u32 = 5;
    const MAX: u32 = 200 * Self::REPEAT_COSTS;

    fn earn(&self) {
        self.change(|funds| Some((funds + 1).min(Self::MAX)));
    }

    fn spend(&self) -> bool {
        self.change(|funds| funds.checked_sub(Self::REPEAT_COSTS))
    }

    fn change(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
            .is_ok()
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(Self::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::{Arc, atomic::AtomicUsize},
    };

    use super::*;

    /// How often a call is sent if every attempt fails this way, and the error that its caller
    /// gets.
    async fn sends(effect: Effect, failure: fn() -> Status) -> (usize, Error) {
        let backend = Backend::new("any", Arc::default());
        sends_by(&backend, effect, failure).await
    }

    async fn sends_by(
        backend: &Backend<Arc<AtomicUsize>>,
        effect: Effect,
        failure: fn() -> Status,
    ) -> (usize, Error) {
        let before = backend.client.load(Ordering::SeqCst);
        let send = |sent: Arc<AtomicUsize>, _: Request<()>| {
            sent.fetch_add(1, Ordering::SeqCst);
            ready(Err::<Response<()>, _>(failure()))
        };
        let answer = backend.call(effect, Duration::from_secs(1), (), send).await;
        let sent = backend.client.load(Ordering::SeqCst);
        (sent - before, answer.unwrap_err())
    }

    fn unsent() -> Status {
        Status::from_error(Box::new(tonic::ConnectError("no connection".into())))
    }

    fn lost() -> Status {
        Status::from_error("the connection broke".into())
    }

    fn late() -> Status {
        Status::deadline_exceeded("no answer in time")
    }

    #[tokio::test]
    async fn what_was_not_sent_is_tried_five_times_whatever_it_does() {
        for effect in [Effect::None, Effect::Keyed, Effect::Once] {
            let (sends, told) = sends(effect, unsent).await;
            assert_eq!(sends, 5, "{effect:?}");
            assert!(matches!(told, Error::NothingStarted), "{effect:?}");
        }
    }

    #[tokio::test]
    async fn what_may_have_arrived_is_repeated_only_where_it_does_no_harm() {
        let (reads, told) = sends(Effect::None, lost).await;
        assert_eq!(reads, 3);
        assert!(matches!(told, Error::NothingStarted));
        let (keyed, told) = sends(Effect::Keyed, lost).await;
        assert!(keyed > 3, "goes on while there is time: {keyed}");
        assert!(matches!(told, Error::OutcomeUnknown));
        let (once, told) = sends(Effect::Once, lost).await;
        assert_eq!(once, 1);
        assert!(matches!(told, Error::OutcomeUnknown));
    }

    #[tokio::test]
    async fn what_is_late_is_never_repeated() {
        for effect in [Effect::None, Effect::Keyed, Effect::Once] {
            assert_eq!(sends(effect, late).await.0, 1, "{effect:?}");
        }
    }

    #[tokio::test]
    async fn calls_that_were_not_sent_leave_the_budget_to_those_that_may_have_arrived() {
        let backend = Backend::new("any", Arc::default());
        let unsent = (0..300).map(|_| sends_by(&backend, Effect::Keyed, unsent));
        futures::future::join_all(unsent).await;
        let (keyed, _) = sends_by(&backend, Effect::Keyed, lost).await;
        assert!(keyed > 3, "goes on while there is time: {keyed}");
    }

    #[test]
    fn a_budget_gives_out_and_is_earned_again() {
        let budget = Budget::default();
        let spent = (0..1_000).filter(|_| budget.spend()).count();
        assert_eq!(spent, 200);
        (0..4).for_each(|_| budget.earn());
        assert!(!budget.spend());
        budget.earn();
        assert!(budget.spend());
    }

    #[test]
    fn pauses_grow_and_stay_within_their_bounds() {
        for repeats in 0..100 {
            let pause = pause(repeats);
            assert!(pause >= FIRST_PAUSE / 2 && pause <= PAUSE_MAX);
        }
        assert!(pause(3) > FIRST_PAUSE);
    }
}
