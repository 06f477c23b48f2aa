//! Tests ratelimit-svc over gRPC, counting by itself or, with `TEST_REDIS_URL`, in that Redis.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod gate;

use std::{collections::HashMap, slice, time::Duration};

use chassis::{
    clock::Clock,
    grpc::Channel,
    testing::{PATIENCE, ServedService, fake_server::closed_port, until},
};
use clap::Parser as _;
use futures::future::join_all;
use proptest::{collection, prelude::*};
use proto::ratelimit::{
    Bucket, CheckAllRequest, CheckRequest, CheckResponse, rate_limits_client::RateLimitsClient,
};
use ratelimit_svc::config::Config;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};
use uuid::Uuid;

use gate::Gate;

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
        // Long, because a machine that is busy with other tests is not an outage.
        Self::start_with(redis_url, &["--redis-timeout=5s"]).await
    }

    async fn start_with(redis_url: Option<String>, flags: &[&str]) -> Self {
        let url_flag = redis_url.map(|url| format!("--redis-url={url}"));
        let words = ["ratelimit-svc"].iter().chain(flags);
        let words = words.map(|word| (*word).to_owned()).chain(url_flag);
        let config = Config::parse_from(words);
        let service = ServedService::start(|sockets, shutdown| {
            ratelimit_svc::serve(config, sockets, Clock::system(), shutdown)
        })
        .await;
        Self {
            client: RateLimitsClient::new(service.channel()),
            _service: service,
        }
    }

    async fn check(&self, subject: &str, bucket: Bucket) -> CheckResponse {
        let answer = self.check_all(&[(subject, bucket)]).await.unwrap();
        answer.into_iter().next().unwrap()
    }

    async fn check_all(&self, checks: &[(&str, Bucket)]) -> Result<Vec<CheckResponse>, Status> {
        let checks = checks.iter().map(|(subject, bucket)| CheckRequest {
            subject: (*subject).to_owned(),
            bucket: (*bucket).into(),
        });
        let request = CheckAllRequest {
            checks: checks.collect(),
        };
        let answer = self.client.clone().check_all(request).await?;
        Ok(answer.into_inner().decisions)
    }
}

/// Has each replica connect, and waits for the next window if this one is about to end: a count that
/// spans two proves nothing.
async fn in_one_window(replicas: &[Replica]) {
    for replica in replicas {
        let probe = Uuid::new_v4().to_string();
        let reset = async || replica.check(&probe, Bucket::ChargeStatus).await;
        while reset().await.reset_seconds < 15 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
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
    for (bucket, limit) in [
        (Bucket::Payments, 60),
        (Bucket::Charge, 60),
        (Bucket::ChargeStatus, 300),
        (Bucket::Read, 300),
        (Bucket::Write, 60),
        (Bucket::Number, 5),
        (Bucket::NumberOverall, 100),
    ] {
        in_one_window(&replicas).await;
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
    in_one_window(slice::from_ref(&replica)).await;
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
    let (_closed, nowhere) = closed_port();
    let nowhere = nowhere.replace("http:", "redis:");
    let replica = Replica::start(Some(nowhere)).await;
    in_one_window(slice::from_ref(&replica)).await;
    let merchant = Uuid::new_v4().to_string();
    let calls = (0..200).map(|_| replica.check(&merchant, Bucket::Payments));
    let answers = join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 60);
}

const BUCKETS: [Bucket; 3] = [Bucket::Payments, Bucket::Charge, Bucket::ChargeStatus];

/// Has replicas with these limits count all that is asked at once: by which replica, for which
/// merchant, in which bucket.
async fn every_admission_takes_a_place_of_its_own(limits: [u32; 3], asked: Vec<[usize; 3]>) {
    let flags = [
        "--redis-timeout=5s".to_owned(),
        format!("--limit-payments={}", limits[0]),
        format!("--limit-charge={}", limits[1]),
        format!("--limit-charge-status={}", limits[2]),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let shared = redis_url();
    // Without Redis there may be only one replica.
    let replicas = if shared.is_some() { 3 } else { 1 };
    let starting = (0..replicas).map(|_| Replica::start_with(shared.clone(), &flags));
    let replicas = join_all(starting).await;
    let merchants: [String; 4] = std::array::from_fn(|_| Uuid::new_v4().to_string());
    in_one_window(&replicas).await;
    let checks = asked.iter().map(|[replica, merchant, bucket]| {
        replicas[replica % replicas.len()].check(&merchants[*merchant], BUCKETS[*bucket])
    });
    let answers = join_all(checks).await;
    let mut by_bucket = HashMap::<_, Vec<_>>::new();
    for ([_, merchant, bucket], answer) in asked.iter().zip(answers) {
        let answers = by_bucket.entry((merchant, bucket)).or_default();
        answers.push((answer.allowed, answer.remaining));
    }
    for ((_, bucket), mut answers) in by_bucket {
        let limit = limits[*bucket];
        answers.sort_unstable();
        answers.reverse();
        let expected = (1..).map(|place| (place <= limit, limit.saturating_sub(place)));
        let expected: Vec<_> = expected.take(answers.len()).collect();
        assert_eq!(answers, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn checks_that_go_together_are_counted_one_by_one(
        limits in [1..40_u32, 1..40_u32, 1..40_u32],
        asked in collection::vec([0..3_usize, 0..4, 0..3], 1..900),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(every_admission_takes_a_place_of_its_own(limits, asked));
    }
}

#[tokio::test]
async fn what_is_no_count_disturbs_no_other_bucket() {
    let Some(url) = redis_url() else { return };
    let replicas = [
        Replica::start(Some(url.clone())).await,
        Replica::start(Some(url.clone())).await,
    ];
    let merchants: [String; 4] = std::array::from_fn(|_| Uuid::new_v4().to_string());
    in_one_window(&replicas).await;
    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let (now, _): (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.unwrap();
    for (command, merchant) in [("SET", &merchants[0]), ("RPUSH", &merchants[1])] {
        let key = format!("rate:{{{merchant}}}:payments:{}", now / 60);
        let mut wrong = redis::cmd(command);
        let written = wrong.arg(&key).arg("no count").exec_async(&mut redis);
        written.await.unwrap();
    }
    let asked = (0..400).map(|n| (&replicas[n % 2], &merchants[n / 2 % 4]));
    let answers = asked.map(async |(replica, merchant)| {
        let answer = replica.check(merchant, Bucket::Payments).await;
        (merchant, answer.allowed)
    });
    let answers = join_all(answers).await;
    for merchant in &merchants {
        let allowed = answers.iter().filter(|answer| **answer == (merchant, true));
        assert_eq!(allowed.count(), 60);
    }
}

#[tokio::test]
async fn a_redis_that_hangs_holds_nobody_up() {
    let shared = redis_url();
    let gate = Gate::before(shared.as_deref()).await;
    let replica = Replica::start_with(Some(gate.url()), &["--redis-timeout=500ms"]).await;
    in_one_window(slice::from_ref(&replica)).await;
    gate.close();
    let merchant = Uuid::new_v4().to_string();
    // More than may wait for a call to Redis.
    let calls = (0..3_000).map(|_| replica.check(&merchant, Bucket::Payments));
    let answers = timeout(PATIENCE, join_all(calls)).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 60);
    gate.open();
    if shared.is_none() {
        return;
    }
    let other = Replica::start(shared).await;
    until("both count together again", async || {
        let merchant = Uuid::new_v4().to_string();
        replica.check(&merchant, Bucket::Payments).await;
        other.check(&merchant, Bucket::Payments).await.remaining == 58
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_hangs_is_left_alone_for_a_while() {
    const ANSWER_MAX: Duration = Duration::from_secs(1);
    let Some(url) = redis_url() else { return };
    let gate = Gate::before(Some(&url)).await;
    let replica = Replica::start_with(Some(gate.url()), &["--redis-timeout=1s"]).await;
    let merchant = Uuid::new_v4().to_string();
    let check = async || {
        let asked_at = Instant::now();
        replica.check(&merchant, Bucket::Payments).await;
        asked_at.elapsed()
    };
    until(
        "one check waits for Redis and the next does not",
        async || {
            gate.open();
            // Connects.
            check().await;
            gate.close();
            check().await >= ANSWER_MAX && check().await < ANSWER_MAX
        },
    )
    .await;
}

#[tokio::test]
async fn a_request_without_a_bucket_or_a_subject_is_refused() {
    let replica = Replica::start(None).await;
    let good = ("m", Bucket::Charge);
    for bad in [("", Bucket::Charge), ("m", Bucket::Unspecified)] {
        let refused = replica.check_all(&[good, bad]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    let refused = replica.check_all(&[good; 1_001]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let counted = replica.check(good.0, good.1).await;
    assert_eq!(counted.remaining, 59, "none of those was counted");
}

#[tokio::test]
async fn the_checks_of_a_call_are_counted_in_their_order() {
    let replica = Replica::start(redis_url()).await;
    in_one_window(slice::from_ref(&replica)).await;
    let (one, other) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    let mut checks = vec![(one.as_str(), Bucket::ChargeStatus); 999];
    checks.insert(30, (other.as_str(), Bucket::ChargeStatus));
    let mut decisions = replica.check_all(&checks).await.unwrap();
    assert_eq!(decisions.remove(30).remaining, 299, "another merchant's");
    let allowed: Vec<bool> = decisions.iter().map(|decision| decision.allowed).collect();
    let expected: Vec<bool> = (0..999).map(|n| n < 300).collect();
    assert_eq!(allowed, expected);
    let remaining = decisions.iter().map(|decision| decision.remaining);
    assert!(remaining.take(300).eq((0..300).rev()));
}

/// A gateway of the version before asks for one at a time.
#[tokio::test]
async fn one_check_counts_like_a_call_of_one() {
    let mut replica = Replica::start(None).await;
    in_one_window(slice::from_ref(&replica)).await;
    let request = CheckRequest {
        subject: "m".to_owned(),
        bucket: Bucket::Charge.into(),
    };
    let counted = replica.client.check(request).await.unwrap().into_inner();
    assert_eq!(counted.remaining, 59);
    assert_eq!(replica.check("m", Bucket::Charge).await.remaining, 58);
}
