//! Rate limits: asks ratelimit-svc whether a request may pass, and tells callers where they stand
//! (spec §8).
//!
//! A limit protects us and promises nothing to anyone. So if ratelimit-svc does not answer at once,
//! the request passes and a metric counts it.

use chassis::{
    error_chain::chain, grpc::Channel, ids::MerchantId, phone::Phone, rate_bucket::RateBucket,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proto::ratelimit::{Bucket, CheckRequest, CheckResponse, rate_limits_client::RateLimitsClient};
use sha2::{Digest as _, Sha256};

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

/// Counts one request of a merchant.
pub async fn check(
    rate_limits: RateLimitsClient<Channel>,
    merchant: MerchantId,
    bucket: RateBucket,
) -> Quota {
    count(rate_limits, merchant.to_string(), bucket).await
}

/// Counts one look-up of a number by a merchant and, unless that is one too many, by anybody: so a
/// merchant uses up little of what the others may look up, and the number's owner is not looked up
/// without end by many.
///
/// # Errors
/// The number was looked up too often: the quota that refuses.
pub async fn check_number(
    rate_limits: RateLimitsClient<Channel>,
    merchant: MerchantId,
    number: &Phone,
) -> Result<(), Quota> {
    // No number stands in Redis or in what goes to it. So few bits belong to several numbers: who
    // tries all of them learns that it was one of these, not which, and these share a limit. The
    // merchant's own count names the merchant.
    let hash = Sha256::digest(format!("number:{}", number.as_e164()));
    let number: Vec<u8> = hash.into_iter().take(SUBJECT_BYTES).collect();
    let number = hex::encode(number);
    let by_merchant = format!("{merchant}:{number}");
    count(rate_limits.clone(), by_merchant, RateBucket::Number)
        .await
        .admit()?;
    count(rate_limits, number, RateBucket::NumberOverall)
        .await
        .admit()
}

async fn count(
    mut rate_limits: RateLimitsClient<Channel>,
    subject: String,
    bucket: RateBucket,
) -> Quota {
    let request = CheckRequest {
        subject,
        bucket: Bucket::from(bucket).into(),
    };
    let answer = rate_limits.check(request).await;
    let counted = answer.inspect_err(|error| {
        metrics::counter!("gateway_rate_limit_unchecked_total").increment(1);
        tracing::debug!(error = %chain(error), "rate limit not checked");
    });
    Quota {
        bucket,
        counted: counted.ok().map(tonic::Response::into_inner),
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
