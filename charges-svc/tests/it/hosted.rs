//! What the checkout page learns about a session's charge.

use charges_svc::{
    charge::{Charge, Event},
    store::{
        self,
        steps::{Step, Written},
    },
};
use chassis::{failure::FailureReason, ids::SessionId, testing::check_refusal};
use db::Insert;
use proto::charges::{
    ChargeStatus, GetChargeTimelineRequest, GetHostedChargeRequest, HostedCharge,
};
use tonic::{Code, Status};

use crate::world::{World, change, new_charge, timing};

async fn read(world: &mut World, session_id: &str) -> Result<HostedCharge, Status> {
    let request = GetHostedChargeRequest {
        session_id: session_id.to_owned(),
    };
    let read = world.charges.get_hosted_charge(request).await?;
    Ok(read.into_inner())
}

async fn check_not_found(world: &mut World, session_id: &str) {
    let answer = read(world, session_id).await;
    check_refusal(answer, Code::NotFound, "CHARGE_NOT_FOUND");
}

/// A charge at the checkout, the `number`th of its session, that has gone through these events.
async fn given(world: &World, session_id: SessionId, number: i64, events: &[Event]) -> Charge {
    let now = world.clock.now();
    let mut charge = new_charge(now);
    let facts = charge.facts_mut();
    (facts.session_id, facts.charge_number, facts.hosted) = (session_id, number, true);
    let mut tx = world.db.begin().await.unwrap();
    assert_eq!(
        store::charges::insert(&mut tx, &charge).await.unwrap(),
        Insert::Inserted
    );
    tx.commit().await.unwrap();
    go_on(world, charge, events).await
}

async fn go_on(world: &World, charge: Charge, events: &[Event]) -> Charge {
    let now = world.clock.now();
    let mut charge = charge;
    let mut tx = world.db.begin().await.unwrap();
    for event in events {
        let after = charge.after(*event, now, timing()).unwrap();
        let changed = change(&mut tx, &charge, &after).await;
        assert_eq!(changed.unwrap(), Written::All);
        charge = after;
    }
    tx.commit().await.unwrap();
    charge
}

#[tokio::test]
async fn only_a_session_that_was_charged_at_the_checkout_is_found() {
    let mut world = World::start().await;
    check_not_found(&mut world, &SessionId::new().to_string()).await;
    for malformed in ["", "x", "00000000-0000-4000-8000-00000000000", "' or 1=1"] {
        check_not_found(&mut world, malformed).await;
    }
    let direct = world.given_charge(&[Event::Accepted]).await;
    check_not_found(&mut world, &direct.facts.session_id.to_string()).await;
    let session_id = SessionId::new();
    given(&world, session_id, 1, &[Event::Accepted]).await;
    check_not_found(&mut world, &SessionId::new().to_string()).await;
    let void = SessionId::new();
    given(&world, void, 1, &[Event::Withdrawn]).await;
    check_not_found(&mut world, &void.to_string()).await;
}

#[tokio::test]
async fn a_charge_in_flight_is_told_until_it_is_settled() {
    let mut world = World::start().await;
    let session_id = SessionId::new();
    let id = session_id.to_string();
    let charge = given(&world, session_id, 1, &[]).await;
    let status = |hosted: &HostedCharge| hosted.charge.as_ref().unwrap().status();
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!(status(&told), ChargeStatus::Initiated);
    let charge = go_on(&world, charge, &[Event::Accepted]).await;
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!(status(&told), ChargeStatus::Initiated);
    assert_eq!(told.payer_masked, "020 ••• 4002");
    let whole = format!("{told:?}");
    assert!(!whole.contains("201234002"), "the number is told: {whole}");
    let facts = &charge.facts;
    let timeline = GetChargeTimelineRequest {
        merchant_id: facts.merchant_id.to_string(),
        reference: facts.reference.to_string(),
    };
    let timeline = world.charges.get_charge_timeline(timeline).await.unwrap();
    let asked = timeline.into_inner().entries.remove(0);
    assert!(asked.at_checkout, "the payer asked for it");
    assert_eq!(asked.asked_by, None);
    let codes = (told.otp_tries, &told.otp_expires_at, &told.instruction);
    assert_eq!(codes, (0, &None, &None));
    let charge = go_on(&world, charge, &[Event::Settled]).await;
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!(status(&told), ChargeStatus::Settled);
    let shown = told.charge.unwrap();
    assert_eq!(shown.reference, charge.facts.reference.to_string());
    assert_eq!(shown.session_id, id);
    assert_eq!(shown.amount, Some(charge.facts.amount().into()));
    assert_eq!(shown.failure_reason, None);
}

#[tokio::test]
async fn a_code_is_asked_for_in_the_networks_words_with_the_tries_that_are_left() {
    let mut world = World::start().await;
    let session_id = SessionId::new();
    let id = session_id.to_string();
    let charge = given(&world, session_id, 1, &[Event::CodeWanted]).await;
    let words = "Dial *110# to generate a voucher.";
    keep_instruction(&world, &charge, Some(words)).await;
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!(
        told.charge.as_ref().unwrap().status(),
        ChargeStatus::OtpRequired
    );
    assert_eq!(told.instruction.as_deref(), Some(words));
    assert_eq!((told.otp_tries, told.otp_tries_left), (0, 3));
    let until = charge.timer.otp_expires_at.map(|until| until.to_string());
    assert!(until.is_some() && told.otp_expires_at == until, "{told:?}");
    let charge = go_on(&world, charge, &[Event::CodeSent, Event::CodeWrong]).await;
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!((told.otp_tries, told.otp_tries_left), (1, 2));
    assert_eq!(told.instruction.as_deref(), Some(words));
    keep_instruction(&world, &charge, None).await;
    let told = read(&mut world, &id).await.unwrap();
    assert_eq!(told.instruction, None);
}

async fn keep_instruction(world: &World, charge: &Charge, words: Option<&str>) {
    let mut tx = world.db.begin().await.unwrap();
    let mut step = Step::new(charge, charge.clone(), world.clock.now());
    step.instruction = Some(words.map(str::to_owned));
    let written = store::steps::write(&mut tx, &[&step]).await;
    assert_eq!(written.unwrap(), Written::All);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn after_a_failure_the_newest_charge_is_told_and_void_ones_never() {
    let mut world = World::start().await;
    let session_id = SessionId::new();
    let id = session_id.to_string();
    let declined = [Event::Accepted, Event::Failed(FailureReason::PayerDeclined)];
    let first = given(&world, session_id, 1, &declined).await;
    let failed = read(&mut world, &id).await.unwrap().charge.unwrap();
    assert_eq!(failed.status(), ChargeStatus::Failed);
    assert_eq!(failed.failure_reason.as_deref(), Some("PAYER_DECLINED"));
    assert!(failed.failure_message.is_some());
    given(&world, session_id, 2, &[Event::Withdrawn]).await;
    let told = read(&mut world, &id).await.unwrap().charge.unwrap();
    assert_eq!(told.reference, first.facts.reference.to_string());
    let third = given(&world, session_id, 3, &[Event::Accepted]).await;
    let told = read(&mut world, &id).await.unwrap().charge.unwrap();
    assert_eq!(told.reference, third.facts.reference.to_string());
    assert_eq!(told.status(), ChargeStatus::Initiated);
    // Another session's charges change nothing.
    given(&world, SessionId::new(), 9, &[Event::Accepted]).await;
    let told = read(&mut world, &id).await.unwrap().charge.unwrap();
    assert_eq!(told.reference, third.facts.reference.to_string());
}
