//! Converts between proto and domain, and nothing else.

use chassis::{fixed_window::Admission, grpc, rate_bucket::RateBucket};
use futures::future::join_all;
use proto::ratelimit::{
    CheckAllRequest, CheckAllResponse, CheckRequest, CheckResponse, rate_limits_server::RateLimits,
};
use tonic::{Request, Response, Status};

use crate::{service::Service, window::WINDOW};

/// Most checks in a call (`ratelimit.proto`).
const CHECKS_MAX: usize = 1_000;

/// The service, as it is called.
pub struct Grpc(pub Service);

#[tonic::async_trait]
impl RateLimits for Grpc {
    async fn check_all(
        &self,
        request: Request<CheckAllRequest>,
    ) -> Result<Response<CheckAllResponse>, Status> {
        let checks = request.into_inner().checks;
        if checks.len() > CHECKS_MAX {
            return Err(grpc::invalid(&[("checks", "must be at most 1000")]));
        }
        let checks: Vec<_> = checks.into_iter().map(parsed).collect::<Result<_, _>>()?;
        let decisions = checks
            .iter()
            .map(|(subject, bucket)| self.decide(subject, *bucket));
        let decisions = join_all(decisions).await;
        Ok(Response::new(CheckAllResponse { decisions }))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let (subject, bucket) = parsed(request.into_inner())?;
        Ok(Response::new(self.decide(&subject, bucket).await))
    }
}

impl Grpc {
    async fn decide(&self, subject: &str, bucket: RateBucket) -> CheckResponse {
        let Admission {
            allowed,
            remaining,
            reset_seconds,
        } = self.0.check(subject, bucket).await;
        CheckResponse {
            allowed,
            limit: self.0.limit(bucket),
            remaining,
            reset_seconds,
            window_seconds: u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

/// Whom to count in which bucket.
fn parsed(check: CheckRequest) -> Result<(String, RateBucket), Status> {
    let bucket = RateBucket::try_from(check.bucket())
        .map_err(|_| grpc::invalid(&[("bucket", "must be one of the buckets")]))?;
    if check.subject.is_empty() {
        return Err(grpc::invalid(&[("subject", "must not be empty")]));
    }
    Ok((check.subject, bucket))
}
