//! Rails that cannot be reached: no outcome is made up, no code is lost, and callbacks are kept.

use std::time::Duration;

use charges_svc::{
    charge::{Event, State},
    store,
};
use chassis::{
    ids::RailReference,
    testing::{check_refusal, until},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proto::charges::{ChargeStatus, ReceiveCallbackRequest, ShowChargeRequest, SubmitOtpRequest};
use sha2::Sha512;
use tonic::Code;

use crate::world::{CALLBACK_TOKEN, PAYSTACK_SECRET_KEY, World};

fn submit(charge: &charges_svc::charge::Charge, otp: &str) -> SubmitOtpRequest {
    SubmitOtpRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        otp: otp.to_owned(),
    }
}

#[tokio::test]
async fn a_code_that_could_not_be_sent_costs_no_try() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    for _ in 0..4 {
        let answer = world
            .charges
            .submit_otp(submit(&charge, "123456"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.charge.unwrap().status(), ChargeStatus::OtpRequired);
        assert!(
            answer.message.contains("could not be sent"),
            "{}",
            answer.message
        );
    }
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(
        (after.progress.state, after.progress.otp_tries),
        (State::OtpRequired, 0)
    );
    assert_eq!(after.timer.otp_expires_at, charge.timer.otp_expires_at);
    world.end().await;
}

#[tokio::test]
async fn what_is_no_code_is_refused_after_the_reference() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    for otp in ["", "12 34", "1234\u{e9}", &"1".repeat(33)] {
        let mut elsewhere = submit(&charge, otp);
        elsewhere.reference = "TX-0123456789-ABCDEF".to_owned();
        let answer = world.charges.submit_otp(elsewhere).await;
        check_refusal(answer, Code::NotFound, "CHARGE_NOT_FOUND");
        let answer = world.charges.submit_otp(submit(&charge, otp)).await;
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(
        world.charge(&charge.facts.reference).await.progress.version,
        charge.progress.version
    );
    world.end().await;
}

#[tokio::test]
async fn no_outcome_is_made_up_and_an_operator_has_a_case_after_a_day() {
    let world = World::start().await;
    world.stop().await;
    let almost_a_day = Duration::from_secs((24 * 60 - 10) * 60);
    let charge = world
        .given_old_charge(&[Event::Unanswered], almost_a_day)
        .await;
    // The reconciler learns of it before time moves.
    let world = world.restart().await;
    world
        .clock
        .advance(Duration::from_secs(2 * 60 * 60))
        .await
        .unwrap();
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(
        (after.progress.state, after.progress.version),
        (State::Initiated, charge.progress.version)
    );
    assert!(
        after
            .timer
            .next_query_at
            .is_some_and(|next| next > world.clock.now())
    );
    let mut conn = world.db.read().await.unwrap();
    let cases = store::cases::list_open(&mut conn).await.unwrap();
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].kind, charges_svc::case::CaseKind::UnknownOutcome);
    let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid())
        .await
        .unwrap();
    assert_eq!(evidence.len(), 1, "the same answer again is counted");
    // At the start, every 5 minutes (23:53, 23:58), after a day, and an hour later.
    assert_eq!(evidence[0].times, 5);
    drop(conn);
    world.end().await;
}

#[tokio::test]
async fn a_code_does_not_expire_while_the_rail_cannot_be_asked() {
    let world = World::start().await;
    world.stop().await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    let world = world.restart().await;
    world
        .clock
        .advance(Duration::from_secs(20 * 60))
        .await
        .unwrap();
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(after.progress.state, State::OtpRequired);
    world.end().await;
}

#[tokio::test]
async fn work_of_a_process_that_died_is_taken_up_after_a_restart() {
    let world = World::start().await;
    world.stop().await;
    let charge = world
        .given_charge(&[Event::CodeWanted, Event::CodeSent])
        .await;
    let mut tx = world.db.begin().await.unwrap();
    let long = charges_svc::charge::Lease::new(&world.clock, Duration::from_secs(1));
    store::charges::claim(&mut tx, charge.facts.transaction_id, long)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let world = world.restart().await;
    world.clock.advance(Duration::from_secs(20)).await.unwrap();
    until("the rail was asked", async || {
        let mut conn = world.db.read().await.unwrap();
        let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid()).await;
        evidence.unwrap().iter().any(|said| said.action == "query")
    })
    .await;
    assert_eq!(
        world.charge(&charge.facts.reference).await.progress.state,
        State::OtpSubmitting
    );
    world.end().await;
}

pub fn callback(
    rail: &str,
    token: &str,
    body: &str,
    signature: Option<String>,
) -> ReceiveCallbackRequest {
    ReceiveCallbackRequest {
        rail: rail.to_owned(),
        token: token.to_owned(),
        body: body.as_bytes().to_vec(),
        headers: signature.map(signature_header).into_iter().collect(),
        ..Default::default()
    }
}

fn signature_header(signature: String) -> (String, String) {
    ("x-paystack-signature".to_owned(), signature)
}

pub fn signed(body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha512>::new_from_slice(PAYSTACK_SECRET_KEY.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    Some(hex::encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_callback_is_acknowledged_once_the_rail_is_certain_to_be_asked() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let body = format!(
        r#"{{"event":"charge.success","data":{{"reference":"{}"}}}}"#,
        charge.facts.rail_reference
    );
    let request = callback("paystack", CALLBACK_TOKEN, &body, signed(&body));
    for _ in 0..3 {
        world
            .charges
            .receive_callback(request.clone())
            .await
            .unwrap();
    }
    let show = ShowChargeRequest {
        reference: charge.facts.reference.to_string(),
    };
    until("the rail was asked", async || {
        let mut operations = world.operations.clone();
        let shown = operations
            .show_charge(show.clone())
            .await
            .unwrap()
            .into_inner();
        shown.evidence.iter().any(|said| said.action == "query")
    })
    .await;
    // The rail said nothing, so only the count changed.
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(
        (after.progress.state, after.timer.hints),
        (State::Initiated, 3)
    );
    assert!(after.timer.next_query_at.is_some());
    world.end().await;
}

#[tokio::test]
async fn callbacks_that_are_not_the_rails_are_refused() {
    let mut world = World::start().await;
    let unknown = format!(r#"{{"data":{{"reference":"{}"}}}}"#, RailReference::new());
    for (request, code, reason) in [
        (
            callback("hubtel", "t", "{}", None),
            Code::NotFound,
            "CALLBACK_NOT_FOUND",
        ),
        (
            callback("momo", "t", "{}", None),
            Code::NotFound,
            "CALLBACK_NOT_FOUND",
        ),
        (
            callback("paystack", "t", "{}", signed("{}")),
            Code::NotFound,
            "CALLBACK_NOT_FOUND",
        ),
        (
            callback("paystack", CALLBACK_TOKEN, "{ }", signed("{}")),
            Code::Unauthenticated,
            "CALLBACK_SIGNATURE_INVALID",
        ),
    ] {
        check_refusal(world.charges.receive_callback(request).await, code, reason);
    }
    // The rail's own callback about a payment that is not ours is accepted, so that it is not sent
    // again.
    let request = callback("paystack", CALLBACK_TOKEN, &unknown, signed(&unknown));
    world.charges.receive_callback(request).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_a_callbacks_token_is_unknown() {
    let mut world = World::start().await;
    let long = "a".repeat(1_000);
    for token in ["", "\0", "t\0oken", "t\u{f6}ken", "to ken", "a/b", &long] {
        for rail in ["momo", "paystack"] {
            let request = callback(rail, token, "{}", signed("{}"));
            let answer = world.charges.receive_callback(request).await;
            check_refusal(answer, Code::NotFound, "CALLBACK_NOT_FOUND");
        }
    }
}

#[tokio::test]
async fn a_callback_about_no_charge_of_ours_waits_for_no_writer_and_is_none() {
    let mut world = World::start().await;
    let void = world.given_charge(&[Event::Withdrawn]).await;
    // Nobody else can write meanwhile.
    let mut writer = world.db.begin().await.unwrap();
    if world.db.is_postgres() {
        let locked = writer.sql("lock table charges in share mode").run();
        locked.await.unwrap();
    }
    let token = RailReference::new().to_string().replace('-', "");
    let request = callback("momo", &token, "{}", None);
    let answer = world.charges.receive_callback(request).await;
    check_refusal(answer, Code::NotFound, "CALLBACK_NOT_FOUND");
    for reference in [RailReference::new(), void.facts.rail_reference] {
        let body = format!(r#"{{"data":{{"reference":"{reference}"}}}}"#);
        let request = callback("paystack", CALLBACK_TOKEN, &body, signed(&body));
        world.charges.receive_callback(request).await.unwrap();
    }
    drop(writer);
}
