//! Rate limits: asks ratelimit-svc whether a request may pass, and tells callers where they stand
//! (spec §8).
//!
//! A limit protects us and promises nothing to anyone. So if ratelimit-svc does not answer at once,
//! the request passes and a metric counts it.

use chassis::{error_chain::chain, grpc::Channel, ids::MerchantId};
use http::{HeaderMap, HeaderName, HeaderValue};
use proto::ratelimit::{
    self as contract, CheckRequest, CheckResponse, rate_limits_client::RateLimitsClient,
};

use crate::error::Error;

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

chassis::closed_list! {
    /// What is counted together (spec §8).
    pub enum RateBucket: "a bucket" {
        Payments = "v1/payments",
        Charge = "v1/payments/charge",
        ChargeStatus = "v1/payments/charge:status",
    }
}

chassis::proto_list! {
    RateBucket = contract::Bucket { Payments, Charge, ChargeStatus }
}

impl RateBucket {
    /// Requests per minute that the specification promises; reported if nobody counts.
    fn specified_limit(self) -> u32 {
        match self {
            Self::Payments | Self::Charge => 60,
            Self::ChargeStatus => 300,
        }
    }
}

/// Where a merchant stands with a bucket after one request.
#[derive(Debug)]
pub struct Quota {
    bucket: RateBucket,
    /// `None` if nobody counted.
    counted: Option<CheckResponse>,
}

/// Counts one request.
pub async fn check(
    mut rate_limits: RateLimitsClient<Channel>,
    merchant: MerchantId,
    bucket: RateBucket,
) -> Quota {
    let request = CheckRequest {
        merchant_id: merchant.to_string(),
        bucket: contract::Bucket::from(bucket).into(),
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
    pub fn admit(&self) -> Result<(), Error> {
        match &self.counted {
            Some(counted) if !counted.allowed => Err(Error::RateLimited {
                retry_after_seconds: counted.reset_seconds.max(1),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the headers of draft-ietf-httpapi-ratelimit-headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let name = self.bucket.code();
        let (limit, window) = match &self.counted {
            Some(counted) => (counted.limit, counted.window_seconds),
            None => (self.bucket.specified_limit(), 60),
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

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("bucket names and numbers are visible ASCII")
}
