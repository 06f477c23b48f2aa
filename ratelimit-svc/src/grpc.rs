//! Converts between proto and domain, and nothing else.

use chassis::{grpc, rate_bucket::RateBucket};
use proto::ratelimit::{CheckRequest, CheckResponse, rate_limits_server::RateLimits};
use tonic::{Request, Response, Status};

use crate::{service::Service, window::WINDOW};

/// The service, as it is called.
pub struct Grpc(pub Service);

#[tonic::async_trait]
impl RateLimits for Grpc {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let request = request.into_inner();
        let bucket = RateBucket::try_from(request.bucket())
            .map_err(|_| grpc::invalid(&[("bucket", "must be one of the buckets")]))?;
        if request.subject.is_empty() {
            return Err(grpc::invalid(&[("subject", "must not be empty")]));
        }
        let decision = self.0.check(&request.subject, bucket).await;
        Ok(Response::new(CheckResponse {
            allowed: decision.allowed,
            limit: self.0.limit(bucket),
            remaining: decision.remaining,
            reset_seconds: decision.reset_seconds,
            window_seconds: u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX),
        }))
    }
}
