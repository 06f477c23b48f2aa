//! Runs against receivers that do what they must, and against some that do not.

use std::process::Command;

use chassis::{
    clock::Clock,
    ids::MerchantId,
    testing::{check_invalid, check_refusal, until},
};
use proto::webhooks::{
    ConformanceCase as Case, ConformanceRun, ConformanceState, CreateConformanceRunRequest,
    FailureCause, GetConformanceRunRequest, StartConformanceRunRequest,
};
use tonic::{Code, Status};

use crate::{
    receiver::{Answer, Arrival, Receiver},
    signature::{hmac_sha256, parts},
    world::World,
};

const SHORT: &[&str] = &["--webhook-timeout=1s", "--lease=6s"];

async fn create(world: &mut World, merchant_id: &str) -> Result<ConformanceRun, Status> {
    let request = CreateConformanceRunRequest {
        merchant_id: merchant_id.to_owned(),
    };
    let made = world.people.create_conformance_run(request).await?;
    Ok(made.into_inner())
}

async fn start(
    world: &mut World,
    merchant_id: &str,
    run_id: &str,
    url: &str,
) -> Result<ConformanceRun, Status> {
    let request = StartConformanceRunRequest {
        merchant_id: merchant_id.to_owned(),
        run_id: run_id.to_owned(),
        url: url.to_owned(),
    };
    let started = world.people.start_conformance_run(request).await?;
    Ok(started.into_inner())
}

async fn get(world: &World, merchant_id: &str, run_id: &str) -> Result<ConformanceRun, Status> {
    let request = GetConformanceRunRequest {
        merchant_id: merchant_id.to_owned(),
        run_id: run_id.to_owned(),
    };
    let got = world.people.clone().get_conformance_run(request).await?;
    Ok(got.into_inner())
}

/// What a receiver checks of a request.
#[derive(Clone, Copy)]
struct Checks {
    signature: bool,
    age: bool,
    /// Every `v1`, and not only the last.
    all_signatures: bool,
    types: bool,
}

const ALL: Checks = Checks {
    signature: true,
    age: true,
    all_signatures: true,
    types: false,
};

impl Checks {
    fn answer(self, secret: &str, arrival: &Arrival) -> u16 {
        let (t, mut signatures) = parts(arrival.header("x-service-signature"));
        if !self.all_signatures {
            signatures = signatures.split_off(signatures.len() - 1);
        }
        let message = [format!("{t}.").as_bytes(), &arrival.body].concat();
        let right = hmac_sha256(secret.as_bytes(), &message);
        let age = Clock::system().host_now().unix_seconds() - t;
        if self.signature && !signatures.contains(&right) || self.age && age.abs() > 300 {
            return 400;
        }
        match self.types && !arrival.text().contains(r#""payment.success""#) {
            true => 500,
            false => 204,
        }
    }
}

/// A done run against a receiver that answers like this.
async fn run_against(
    answer: impl Fn(&str, &Arrival) -> Answer + Send + Sync + 'static,
) -> (ConformanceRun, Receiver) {
    let mut world = World::start_with(SHORT).await;
    let merchant_id = MerchantId::new().to_string();
    let made = create(&mut world, &merchant_id).await.unwrap();
    assert_eq!(made.state(), ConformanceState::Waiting);
    let secret = made.secret.clone();
    let receiver = Receiver::start(move |_, arrival| answer(&secret, arrival)).await;
    start(&mut world, &merchant_id, &made.run_id, &receiver.url())
        .await
        .unwrap();
    until("the run is done", async || {
        let run = get(&world, &merchant_id, &made.run_id).await.unwrap();
        run.state() == ConformanceState::Done
    })
    .await;
    let run = get(&world, &merchant_id, &made.run_id).await.unwrap();
    assert_eq!(run.results.len(), 8);
    assert_eq!(run.url, Some(receiver.url()));
    (run, receiver)
}

fn failed(run: &ConformanceRun) -> Vec<Case> {
    let failed = run.results.iter().filter(|result| !result.passed);
    failed.map(|result| result.case()).collect()
}

#[tokio::test]
async fn a_good_receiver_passes_all() {
    let (run, receiver) =
        run_against(|secret, arrival| Answer::Status(ALL.answer(secret, arrival))).await;
    assert_eq!(failed(&run), []);
    assert_eq!(run.passed, 8);
    let cases: Vec<Case> = run.results.iter().map(|result| result.case()).collect();
    assert_eq!(cases, Case::all().collect::<Vec<_>>());
    let received = receiver.received();
    assert_eq!(received.len(), 11);
    assert_eq!(received[1].event_id(), received[2].event_id());
    assert_eq!(received[1].body, received[2].body);
    let wanted: Vec<bool> = run.results.iter().map(|one| one.wants_success).collect();
    assert_eq!(wanted, [true, true, true, true, true, false, false, false]);
}

#[tokio::test]
async fn what_a_bad_receiver_does_wrong_is_told() {
    let refuses = [Case::WrongSignature, Case::OldTimestamp, Case::ChangedBody];
    let takes = [
        Case::Valid,
        Case::Duplicate,
        Case::OlderAfterNewer,
        Case::TwoSignatures,
        Case::UnknownType,
    ];
    let (run, _) = run_against(|_, _| Answer::Status(200)).await;
    assert_eq!(failed(&run), refuses, "accepts everything");
    let (run, _) = run_against(|_, _| Answer::Status(401)).await;
    assert_eq!(failed(&run), takes, "refuses all");
    for (checks, expected) in [
        (Checks { age: false, ..ALL }, vec![Case::OldTimestamp]),
        (
            Checks {
                all_signatures: false,
                ..ALL
            },
            vec![Case::TwoSignatures],
        ),
        (Checks { types: true, ..ALL }, vec![Case::UnknownType]),
        (
            Checks {
                signature: false,
                ..ALL
            },
            vec![Case::WrongSignature, Case::ChangedBody],
        ),
    ] {
        let (run, _) =
            run_against(move |secret, arrival| Answer::Status(checks.answer(secret, arrival)))
                .await;
        assert_eq!(failed(&run), expected);
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_passes_nothing() {
    let (run, _) = run_against(|_, _| Answer::Held).await;
    assert_eq!(run.passed, 0, "one that does not answer refuses nothing");
    for result in run.results {
        let result = result.result.unwrap();
        assert_eq!(result.cause(), FailureCause::Timeout);
        assert!(result.duration_ms >= 1_000);
    }
}

#[tokio::test]
async fn a_curl_repeats_what_was_sent() {
    let (run, receiver) =
        run_against(|secret, arrival| Answer::Status(ALL.answer(secret, arrival))).await;
    let sent = receiver.received();
    for (result, index) in run.results.iter().zip([0, 2, 4, 6, 7, 8, 9, 10]) {
        // The shell parses it; what curl would be given is printed line by line.
        let print = result.curl.replacen("curl", "printf '%s\\n'", 1);
        let printed = Command::new("sh").arg("-c").arg(print).output().unwrap();
        let words = String::from_utf8(printed.stdout).unwrap();
        let words: Vec<&str> = words.lines().collect();
        assert!(words.contains(&receiver.url().as_str()));
        assert!(words.contains(&sent[index].text()));
        let signature = sent[index].header("x-service-signature");
        assert!(words.contains(&format!("X-Service-Signature: {signature}").as_str()));
    }
}

#[tokio::test]
async fn one_run_at_a_time_and_each_starts_once() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let receiver = Receiver::start(|_, _| Answer::Held).await;
    let first = create(&mut world, &merchant_id).await.unwrap();
    let second = create(&mut world, &merchant_id).await.unwrap();
    assert_ne!(first.secret, second.secret);
    let replaced = get(&world, &merchant_id, &first.run_id).await;
    check_refusal(replaced, Code::NotFound, "CONFORMANCE_NOT_FOUND");
    let started = start(&mut world, &merchant_id, &second.run_id, &receiver.url()).await;
    assert_eq!(started.unwrap().state(), ConformanceState::Running);
    let third = create(&mut world, &merchant_id).await;
    check_refusal(third, Code::FailedPrecondition, "CONFORMANCE_RUNNING");
    let again = start(&mut world, &merchant_id, &second.run_id, &receiver.url()).await;
    assert_eq!(again.unwrap().state(), ConformanceState::Running);
    until("it is called", async || receiver.open() == 1).await;
    let world = world.crash().await;
    if world.database.url.starts_with("sqlite") {
        let cut = get(&world, &merchant_id, &second.run_id).await.unwrap();
        assert_eq!(cut.state(), ConformanceState::Interrupted);
    }
}

#[tokio::test]
async fn a_run_meets_the_guard() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let run = create(&mut world, &merchant_id).await.unwrap();
    for url in [
        "http://10.0.0.1/",
        "ftp://merchant.example/",
        "",
        "http://u:p@127.0.0.1/",
    ] {
        let refused = start(&mut world, &merchant_id, &run.run_id, url).await;
        check_invalid(refused, "url");
    }
    let waiting = get(&world, &merchant_id, &run.run_id).await.unwrap();
    assert_eq!(waiting.state(), ConformanceState::Waiting);
}
