//! `GET /api/v1/payments/charge/{reference}?wait=`, which answers once the charge has changed.

use std::time::Duration;

use chassis::testing::until;
use proto::charges::{Charge, ChargeStatus};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    gateway::{CHARGE, Gateway},
    http::Answer,
    services::{REFERENCE, charge, merchant, money},
};

fn charge_in(status: ChargeStatus) -> Charge {
    charge(status, money(2550, "GHS"))
}

/// A gateway whose merchant has a charge that is INITIATED.
async fn start_with(flags: &[&str]) -> Gateway {
    let gateway = Gateway::start_with(flags).await;
    let answer = |_| Ok(charge_in(ChargeStatus::Initiated));
    gateway.services.get_charge.answers(answer);
    gateway
}

async fn get(gateway: &Gateway, query: &str) -> Answer {
    let path = format!("{CHARGE}/{REFERENCE}{query}");
    gateway.get(&path).send().await
}

/// A request that waits for half a minute. Returns once the charge is watched for it.
async fn begin_wait(gateway: &Gateway) -> JoinSet<Answer> {
    let mut waiting = JoinSet::new();
    let path = format!("{CHARGE}/{REFERENCE}?wait=30");
    waiting.spawn(gateway.get(&path).send());
    until_watched(gateway, 1).await;
    waiting
}

async fn until_watched(gateway: &Gateway, times: usize) {
    let watches = &gateway.services.watches;
    until("it is watched", async || watches.begun().len() >= times).await;
}

fn status(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["status"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_wait_is_answered_when_the_charge_changes() {
    let gateway = start_with(&[]).await;
    let begun = Instant::now();
    let mut waiting = begin_wait(&gateway).await;
    let watch = &gateway.services.watches.begun()[0];
    assert_eq!(watch.merchant_id, merchant().merchant_id);
    assert_eq!((&*watch.reference, watch.version), (REFERENCE, 1));
    assert_eq!(watch.status(), ChargeStatus::Initiated);
    gateway
        .services
        .watches
        .tell(&charge_in(ChargeStatus::Failed));
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(status(&answer), "FAILED");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(gateway.services.get_charge.asked().len(), 1);
    assert_eq!(gateway.services.check.asked().len(), 1, "it costs one");
}

#[tokio::test]
async fn without_a_change_it_is_answered_as_it_is_when_the_time_is_up() {
    let gateway = start_with(&[]).await;
    let begun = Instant::now();
    let answer = get(&gateway, "?wait=1").await;
    assert_eq!(status(&answer), "INITIATED");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let watches = &gateway.services.watches;
    let watch_id = watches.begun()[0].watch_id;
    until("it is no longer watched", async || {
        watches.ended() == [watch_id]
    })
    .await;
    assert_eq!(gateway.services.get_charge.asked().len(), 2, "read again");
}

#[tokio::test]
async fn a_charge_that_has_ended_is_not_waited_for() {
    let gateway = start_with(&[]).await;
    for ended in [ChargeStatus::Settled, ChargeStatus::Failed] {
        let answer = move |_| Ok(charge_in(ended));
        gateway.services.get_charge.answers(answer);
        let answer = get(&gateway, "?wait=30").await;
        assert_eq!(Some(&*status(&answer)), ended.code());
    }
    assert!(gateway.services.watches.begun().is_empty());
}

#[tokio::test]
async fn a_stream_that_breaks_is_opened_again_with_what_is_watched() {
    let gateway = start_with(&[]).await;
    let mut waiting = begin_wait(&gateway).await;
    let watches = &gateway.services.watches;
    for breaks in 1..=2 {
        watches.cut();
        until_watched(&gateway, breaks + 1).await;
    }
    let begun = watches.begun();
    assert!(begun.iter().all(|watch| *watch == begun[0]), "{begun:?}");
    watches.tell(&charge_in(ChargeStatus::Settled));
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(status(&answer), "SETTLED");
}

#[tokio::test]
async fn a_gateway_that_stops_answers_every_wait() {
    let gateway = start_with(&[]).await;
    let mut waiting = begin_wait(&gateway).await;
    let answer = |_| Ok(charge_in(ChargeStatus::OtpRequired));
    gateway.services.get_charge.answers(answer);
    gateway.stop();
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(status(&answer), "OTP_REQUIRED", "as it is now");
}

#[tokio::test]
async fn waits_leave_the_places_of_requests_and_have_their_own() {
    let gateway = start_with(&["--requests-max", "1", "--waits-max", "1"]).await;
    let mut waiting = begin_wait(&gateway).await;
    assert_eq!(status(&get(&gateway, "").await), "INITIATED");
    let begun = Instant::now();
    assert_eq!(status(&get(&gateway, "?wait=30").await), "INITIATED");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "no place is left"
    );
    assert_eq!(gateway.services.watches.begun().len(), 1);
    let settled = charge_in(ChargeStatus::Settled);
    gateway.services.watches.tell(&settled);
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(status(&answer), "SETTLED");
}

#[tokio::test]
async fn who_hangs_up_waits_no_longer() {
    let gateway = start_with(&["--waits-max", "1"]).await;
    let waiting = begin_wait(&gateway).await;
    drop(waiting);
    let watches = &gateway.services.watches;
    let watch_id = watches.begun()[0].watch_id;
    until("it is no longer watched", async || {
        watches.ended() == [watch_id]
    })
    .await;
    assert_eq!(status(&get(&gateway, "?wait=1").await), "INITIATED");
    assert_eq!(watches.begun().len(), 2, "its place is free again");
}

#[tokio::test]
async fn a_wait_is_from_1_to_30_whole_seconds() {
    let gateway = start_with(&[]).await;
    for wait in [
        "0",
        "31",
        "-1",
        "+1",
        "1.5",
        "01",
        "",
        "x",
        "99999999999",
        "2&wait=2",
    ] {
        let answer = get(&gateway, &format!("?wait={wait}")).await;
        let fields: Vec<_> = answer.refused_fields();
        assert_eq!(fields.len(), 1, "{wait}");
        assert_eq!(fields[0].0, "wait");
    }
    assert!(gateway.services.get_charge.asked().is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_not_waited_for() {
    let gateway = Gateway::start().await;
    let unknown = get(&gateway, "?wait=30").await;
    unknown.assert_error(404, "NOT_FOUND");
    assert!(gateway.services.watches.begun().is_empty());
}
