//! Rate limits: asks ratelimit-svc whether a request may pass, and tells callers where they stand
//! (spec §8).
//!
//! Requests that arrive while others are being checked are checked by one call, because calls make
//! up half of a request's cost.
//!
//! A limit protects us and promises nothing to anyone. So if ratelimit-svc does not answer at once,
//! the request passes and a metric counts it.

use std::time::Duration;

use chassis::{
    error_chain::chain,
    grpc::Channel,
    ids::MerchantId,
    phone::Phone,
    rate_bucket::RateBucket,
    sets::{SetWork, Sets},
    shutdown::Tasks,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proto::ratelimit::{
    Bucket, CheckAllRequest, CheckRequest, CheckResponse, rate_limits_client::RateLimitsClient,
};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// How much of a number's hash stands for it: about eight of Ghana's mobile numbers have it in
/// common.
const SUBJECT_BYTES: usize = 3;

/// Where a subject stands with a bucket after one request.
#[derive(Clone, Debug)]
pub struct Quota {
    pub bucket: RateBucket,
    /// `None` if nobody counted.
    pub counted: Option<CheckResponse>,
}

/// ratelimit-svc, as the gateway asks it.
#[derive(Debug)]
pub struct RateLimits {
    checks: Sets<Checks>,
    /// How long a request waits to be counted.
    answer_max: Duration,
}

impl RateLimits {
    pub fn new(channel: Channel, answer_max: Duration) -> Self {
        let checks = Checks(RateLimitsClient::new(channel));
        Self {
            // Not drained at shutdown: nobody needs a check once its request has ended.
            checks: Sets::new(checks, Tasks::new()),
            answer_max,
        }
    }

    /// Counts one request of a merchant.
    pub async fn check(&self, merchant: MerchantId, bucket: RateBucket) -> Quota {
        self.count(merchant.to_string(), bucket).await
    }

    /// Counts one look-up of a number by a merchant and, unless that is one too many, by anybody: so
    /// a merchant uses up little of what the others may look up, and the number's owner is not looked
    /// up without end by many.
    ///
    /// # Errors
    /// The number was looked up too often: the quota that refuses.
    pub async fn check_number(&self, merchant: MerchantId, number: &Phone) -> Result<(), Quota> {
        // No number stands in Redis or in what goes to it. So few bits belong to several numbers: who
        // tries all of them learns that it was one of these, not which, and these share a limit. The
        // merchant's own count names the merchant.
        let hash = Sha256::digest(format!("number:{}", number.as_e164()));
        let number: Vec<u8> = hash.into_iter().take(SUBJECT_BYTES).collect();
        let number = hex::encode(number);
        let by_merchant = format!("{merchant}:{number}");
        let own = self.count(by_merchant, RateBucket::Number).await;
        own.admit()?;
        let overall = self.count(number, RateBucket::NumberOverall).await;
        overall.admit()
    }

    async fn count(&self, subject: String, bucket: RateBucket) -> Quota {
        let check = CheckRequest {
            subject,
            bucket: Bucket::from(bucket).into(),
        };
        let decided = timeout(self.answer_max, self.checks.run(check)).await;
        let counted = decided.ok().and_then(Result::ok);
        if counted.is_none() {
            metrics::counter!("gateway_rate_limit_unchecked_total").increment(1);
        }
        Quota { bucket, counted }
    }
}

/// Asks ratelimit-svc about several requests at once.
struct Checks(RateLimitsClient<Channel>);

impl SetWork for Checks {
    type Item = CheckRequest;
    type Outcome = CheckResponse;

    /// Redis counts as many in one call.
    const SET_MAX: usize = 256;

    /// While one replica hangs, every other set goes to another: those that hang are one for each
    /// 11 ms of `RATELIMIT_TIMEOUT`, 250 ms unless configured.
    const IN_HAND_MAX: usize = 32;

    /// A call takes a millisecond or two.
    const STALLED: Duration = Duration::from_millis(10);

    /// The room for requests bounds this queue, so none is turned away from it.
    const WAITING_MAX: usize = usize::MAX;

    async fn run(&self, checks: Vec<CheckRequest>) -> Vec<CheckResponse> {
        let request = CheckAllRequest { checks };
        match self.0.clone().check_all(request).await {
            Ok(answer) => answer.into_inner().decisions,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "rate limits not checked");
                Vec::new()
            }
        }
    }
}

impl Quota {
    /// Refuses the request if it is over the limit.
    pub fn admit(&self) -> Result<(), Self> {
        match &self.counted {
            Some(counted) if !counted.allowed => Err(self.clone()),
            _ => Ok(()),
        }
    }

    /// Seconds until the window ends, if somebody counts.
    pub fn reset_seconds(&self) -> Option<u32> {
        let counted = self.counted.as_ref()?;
        Some(counted.reset_seconds.max(1))
    }

    /// Writes the headers of draft-ietf-httpapi-ratelimit-headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let (name, specified_limit) = specified(self.bucket);
        let (limit, window) = match &self.counted {
            Some(counted) => (counted.limit, counted.window_seconds),
            None => (specified_limit, 60),
        };
        let policy = format!("\"{name}\";q={limit};w={window}");
        headers.insert(RATE_LIMIT_POLICY, value(policy));
        if let Some(counted) = &self.counted {
            let (remaining, reset) = (counted.remaining, counted.reset_seconds);
            headers.insert(
                RATE_LIMIT,
                value(format!("\"{name}\";r={remaining};t={reset}")),
            );
        }
    }
}

/// A bucket's name and its requests per minute, as the specification promises them, and
/// `docs/openapi.yaml` for what is additive. The number is reported if nobody counts.
fn specified(bucket: RateBucket) -> (&'static str, u32) {
    match bucket {
        RateBucket::Payments => ("v1/payments", 60),
        RateBucket::Charge => ("v1/payments/charge", 60),
        RateBucket::ChargeStatus => ("v1/payments/charge:status", 300),
        RateBucket::Read => ("v1/read", 300),
        RateBucket::Write => ("v1/write", 60),
        RateBucket::Number => ("number", 5),
        RateBucket::NumberOverall => ("number:overall", 100),
    }
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("bucket names and numbers are visible ASCII")
}
