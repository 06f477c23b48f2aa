//! Tests ratelimit-svc over gRPC, counting by itself or, with `TEST_REDIS_URL`, in that Redis.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use chassis::{
    clock::Clock,
    grpc::Channel,
    testing::{ServedService, listen},
};
use clap::Parser as _;
use futures::future::join_all;
use proto::ratelimit::{Bucket, CheckRequest, CheckResponse, rate_limits_client::RateLimitsClient};
use ratelimit_svc::config::Config;
use tonic::Code;
use uuid::Uuid;

#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn redis_url() -> Option<String> {
    std::env::var("TEST_REDIS_URL")
        .ok()
        .filter(|url| !url.is_empty())
}

/// A replica, which runs until it is dropped.
struct Replica {
    client: RateLimitsClient<Channel>,
    _service: ServedService,
}

impl Replica {
    async fn start(redis_url: Option<String>) -> Self {
        let url_flag = redis_url.map(|url| format!("--redis-url={url}"));
        // Long, because a machine that is busy with other tests is not an outage.
        let words = ["ratelimit-svc", "--redis-timeout=5s"].map(ToOwned::to_owned);
        let config = Config::parse_from(words.into_iter().chain(url_flag));
        let service = ServedService::start(|sockets, shutdown| {
            ratelimit_svc::serve(config, sockets, Clock::system(), shutdown)
        })
        .await;
        Self {
            client: RateLimitsClient::new(service.channel()),
            _service: service,
        }
    }

    async fn check(&self, merchant_id: &str, bucket: Bucket) -> CheckResponse {
        let request = CheckRequest {
            merchant_id: merchant_id.to_owned(),
            bucket: bucket.into(),
        };
        let answer = self.client.clone().check(request).await;
        answer.unwrap().into_inner()
    }
}

/// Waits for the next window if this one is about to end: a count that spans two proves nothing.
async fn in_one_window(replica: &Replica) {
    let probe = Uuid::new_v4().to_string();
    let reset = async || replica.check(&probe, Bucket::ChargeStatus).await;
    while reset().await.reset_seconds < 15 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn exactly_the_limit_passes_whatever_the_concurrency_and_the_replica() {
    let shared = redis_url();
    // Without Redis there may be only one replica.
    let second = shared.is_some().then(|| Replica::start(shared.clone()));
    let mut replicas = vec![Replica::start(shared.clone()).await];
    if let Some(second) = second {
        replicas.push(second.await);
    }
    in_one_window(&replicas[0]).await;
    for (bucket, limit) in [
        (Bucket::Payments, 60),
        (Bucket::Charge, 60),
        (Bucket::ChargeStatus, 300),
    ] {
        let merchant = Uuid::new_v4().to_string();
        let calls = (0..1_000).map(|n| replicas[n % replicas.len()].check(&merchant, bucket));
        let answers = join_all(calls).await;
        let allowed = answers.iter().filter(|answer| answer.allowed).count();
        assert_eq!(allowed, limit, "{bucket:?}");
        let full = answers
            .iter()
            .filter(|answer| answer.allowed && answer.remaining == 0);
        assert_eq!(full.count(), 1, "one request took the last place");
        for answer in &answers {
            assert_eq!(answer.limit as usize, limit);
            assert_eq!(answer.window_seconds, 60);
            assert!((1..=60).contains(&answer.reset_seconds));
        }
    }
}

#[tokio::test]
async fn merchants_and_buckets_do_not_disturb_each_other() {
    let replica = Replica::start(redis_url()).await;
    in_one_window(&replica).await;
    let (busy, quiet) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    for _ in 0..61 {
        replica.check(&busy, Bucket::Charge).await;
    }
    assert!(!replica.check(&busy, Bucket::Charge).await.allowed);
    assert!(replica.check(&busy, Bucket::ChargeStatus).await.allowed);
    assert_eq!(replica.check(&quiet, Bucket::Charge).await.remaining, 59);
}

#[tokio::test]
async fn without_redis_a_replica_counts_by_itself() {
    // A port on which nothing listens.
    let listener = listen().await;
    let nowhere = format!("redis://{}/", listener.local_addr().unwrap());
    drop(listener);
    let replica = Replica::start(Some(nowhere)).await;
    in_one_window(&replica).await;
    let merchant = Uuid::new_v4().to_string();
    let calls = (0..200).map(|_| replica.check(&merchant, Bucket::Payments));
    let answers = join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 60);
}

#[tokio::test]
async fn a_request_without_a_bucket_or_a_merchant_is_refused() {
    let mut replica = Replica::start(None).await;
    for (merchant_id, bucket) in [("", Bucket::Charge), ("m", Bucket::Unspecified)] {
        let request = CheckRequest {
            merchant_id: merchant_id.to_owned(),
            bucket: bucket.into(),
        };
        let status = replica.client.check(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}
