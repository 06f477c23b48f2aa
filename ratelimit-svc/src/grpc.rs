//! Converts between proto and domain, and nothing else.

use chassis::{grpc, rate_bucket::RateBucket};
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
        let decisions = self.decide(&checks).await;
        Ok(Response::new(CheckAllResponse { decisions }))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let check = parsed(request.into_inner())?;
        let decision = self.decide(&[check]).await.pop();
        let decision = decision.ok_or_else(|| Status::internal("a check without decision"))?;
        Ok(Response::new(decision))
    }
}

impl Grpc {
    async fn decide(&self, checks: &[(String, RateBucket)]) -> Vec<CheckResponse> {
        let decisions = self.0.check(checks).await;
        let decisions = checks.iter().zip(decisions);
        let decisions = decisions.map(|((_, bucket), decision)| CheckResponse {
            allowed: decision.allowed,
            limit: self.0.limit(*bucket),
            remaining: decision.remaining,
            reset_seconds: decision.reset_seconds,
            window_seconds: u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX),
        });
        decisions.collect()
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
