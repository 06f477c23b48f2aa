//! When an outcome is final: by the networks' own clocks and words, never by ours.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use charges_svc::{
    case::CaseKind,
    charge::{Charge, Event, State},
    store,
};
use chassis::{
    failure::FailureReason,
    provider::Provider,
    testing::{
        check_refusal,
        fake_server::{FakeServer, Reaction, json},
        until,
    },
};
use db::Update;
use proto::charges::{
    ChargeStatus, GetChargeRequest, ResolveChargeRequest, SubmitOtpRequest,
    resolve_charge_request::Outcome,
};
use rails::{RailName, testing::with_tokens};
use tokio::sync::watch;
use tonic::Code;

use crate::world::{Neighbour, World, charge_of, request};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A network that answers with whatever was last set here, except to requests for a token.
#[derive(Clone)]
struct Says(Arc<Mutex<Reaction>>);

impl Says {
    fn new(reaction: Reaction) -> Self {
        Self(Arc::new(Mutex::new(reaction)))
    }

    fn now(&self, reaction: Reaction) {
        *self.0.lock().unwrap() = reaction;
    }

    async fn network(&self) -> FakeServer {
        let says = self.clone();
        with_tokens(move |_| says.0.lock().unwrap().clone()).await
    }
}

fn paystack(data: &str) -> Reaction {
    json(200, format!(r#"{{"status":true,"data":{data}}}"#))
}

fn paid(charge: &Charge) -> Reaction {
    let reference = charge.facts.rail_reference;
    paystack(&format!(
        r#"{{"status":"success","reference":"{reference}","amount":2550,"currency":"GHS"}}"#
    ))
}

fn abandoned() -> Reaction {
    paystack(r#"{"status":"abandoned"}"#)
}

fn not_found() -> Reaction {
    json(
        400,
        r#"{"status":false,"code":"transaction_not_found","message":"x"}"#,
    )
}

fn failed_with(charge: &Charge) -> (State, Option<FailureReason>) {
    let reason = charge.progress.failure_reason.as_deref();
    (
        charge.progress.state,
        reason.map(|code| code.parse().unwrap()),
    )
}

/// Paystack's 180 s start when it takes the request, at most 18 s after our record, and by its own
/// clock it may be a little late.
#[tokio::test]
async fn what_the_network_has_not_ended_is_final_only_after_its_own_time() {
    for (said, events, reason) in [
        (abandoned(), vec![], FailureReason::PayerTimeout),
        (not_found(), vec![], FailureReason::RailUnavailable),
        (
            abandoned(),
            vec![Event::CodeWanted, Event::CodeSent],
            FailureReason::PayerTimeout,
        ),
    ] {
        let network = Says::new(said).network().await;
        let world = World::start_over(&network.address(), Neighbour::Open).await;
        world.stop().await;
        let age = Duration::from_secs(190);
        let charge = world.given_old_charge(&events, age).await;
        let world = world.restart().await;
        world.clock.advance(Duration::from_secs(5)).await.unwrap();
        let asked = world.charge(&charge.facts.reference).await;
        assert!(!asked.progress.state.is_terminal(), "{reason} at {age:?}");
        assert!(!network.calls().is_empty());
        world.clock.advance(MINUTE).await.unwrap();
        let ended = world.charge(&charge.facts.reference).await;
        assert_eq!(failed_with(&ended), (State::Failed, Some(reason)));
        world.end().await;
    }
}

/// The money came at 30 h, and its callback was lost. At 72 h the network is away, or a part of it
/// answers that has not heard of the payment.
#[tokio::test]
async fn a_look_after_a_failure_counts_only_once_it_is_answered() {
    for silence in [json(503, "{}"), not_found()] {
        look_until_answered(silence).await;
    }
}

async fn look_until_answered(silence: Reaction) {
    let says = Says::new(paystack(r#"{"status":"failed","message":"Declined"}"#));
    let network = says.network().await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    world.stop().await;
    let declined = Event::Failed(FailureReason::PayerDeclined);
    let charge = world
        .given_old_charge(&[Event::Accepted, declined], 71 * HOUR)
        .await;
    let world = world.restart().await;
    world.clock.advance(MINUTE).await.unwrap();
    says.now(silence);
    world.clock.advance(5 * HOUR).await.unwrap();
    says.now(paid(&charge));
    world.clock.advance(HOUR).await.unwrap();
    let mut conn = world.db.read().await.unwrap();
    let cases = store::cases::list_open(&mut conn).await.unwrap();
    let kinds: Vec<_> = cases.iter().map(|case| case.kind).collect();
    assert_eq!(kinds, [CaseKind::LateMoney]);
    drop(conn);
    // The rail answered after 72 h, so this was the last query.
    let after = world.charge(&charge.facts.reference).await;
    assert_eq!(after.timer.next_query_at, None);
    world.end().await;
}

/// The answer comes after an operator has ended the charge, so it decides nothing. But it shows
/// that the rail has the payment, whatever some part of the rail says an hour later.
#[tokio::test]
async fn an_answer_that_came_too_late_still_shows_the_payment() {
    let (open, gate) = watch::channel(false);
    let says = Says::new(Reaction::Held(
        gate,
        Box::new(paystack(r#"{"status":"pending"}"#)),
    ));
    let network = says.network().await;
    let mut world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = world
        .given_old_charge(&[Event::Unanswered], MINUTE / 2)
        .await;
    let is_asked = async || !network.calls().is_empty();
    until("the rail is being asked", is_asked).await;
    let resolve = ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
    };
    world.operations.resolve_charge(resolve).await.unwrap();
    open.send(true).unwrap();
    let is_shown = async || {
        world
            .charge(&charge.facts.reference)
            .await
            .progress
            .seen_at_rail
    };
    until("the answer is noted", is_shown).await;
    says.now(not_found());
    let calls = network.calls().len();
    world.clock.advance(HOUR + MINUTE).await.unwrap();
    assert!(network.calls().len() > calls, "the rail was asked");
    says.now(paid(&charge));
    world.clock.advance(HOUR + MINUTE).await.unwrap();
    let mut conn = world.db.read().await.unwrap();
    let cases = store::cases::list_open(&mut conn).await.unwrap();
    let kinds: Vec<_> = cases.iter().map(|case| case.kind).collect();
    assert_eq!(kinds, [CaseKind::LateMoney]);
    drop(conn);
    world.end().await;
}

/// A callback after the last query, while the network gives no answer.
#[tokio::test]
async fn a_callback_after_a_failure_is_followed_up_until_the_network_answers() {
    for silence in [json(503, "{}"), not_found()] {
        follow_up_until_answered(silence).await;
    }
}

async fn follow_up_until_answered(silence: Reaction) {
    let says = Says::new(silence);
    let network = says.network().await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    world.stop().await;
    let declined = Event::Failed(FailureReason::PayerDeclined);
    let charge = world
        .given_old_charge(&[Event::Accepted, declined], 80 * HOUR)
        .await;
    let mut tx = world.db.begin().await.unwrap();
    let now = world.clock.now();
    let hinted = store::hints::put(&mut tx, charge.facts.transaction_id, now).await;
    assert_eq!(hinted.unwrap(), Update::Updated);
    tx.commit().await.unwrap();
    let world = world.restart().await;
    world.clock.advance(MINUTE).await.unwrap();
    says.now(paid(&charge));
    // Before the next scheduled query, an hour after the unanswered one.
    world.clock.advance(10 * MINUTE).await.unwrap();
    let mut conn = world.db.read().await.unwrap();
    let cases = store::cases::list_open(&mut conn).await.unwrap();
    assert_eq!(cases.len(), 1, "the money is found");
    drop(conn);
    world.end().await;
}

/// "I have that reference already" means that the rail knows it.
#[tokio::test]
async fn a_rail_that_calls_a_reference_used_knows_it_whatever_it_says_later() {
    let used_at_mtn = json(409, r#"{"code":"RESOURCE_ALREADY_EXIST","message":"x"}"#);
    let used_at_paystack = json(
        400,
        r#"{"status":false,"message":"Duplicate Transaction Reference"}"#,
    );
    let not_found_at_mtn = json(404, r#"{"code":"RESOURCE_NOT_FOUND","message":"x"}"#);
    for (provider, used, not_found) in [
        (proto::charges::Provider::Mtn, used_at_mtn, not_found_at_mtn),
        (proto::charges::Provider::At, used_at_paystack, not_found()),
    ] {
        let says = Says::new(used);
        let network = says.network().await;
        let mut world = World::start_over(&network.address(), Neighbour::Open).await;
        let mut request = request();
        request.provider = provider.into();
        let merchant_id = request.merchant_id.clone();
        let told = world.charges.create_charge(request).await.unwrap();
        says.now(not_found);
        let reference = told.into_inner().charge.unwrap().reference;
        world.clock.advance(20 * MINUTE).await.unwrap();
        let get = GetChargeRequest {
            merchant_id,
            reference,
        };
        let charge = world.charges.get_charge(get).await.unwrap().into_inner();
        assert_eq!(charge.status(), ChargeStatus::Initiated, "{provider:?}");
        assert!(network.calls().len() > 4, "it was asked");
        world.end().await;
    }
}

async fn submit(world: &mut World, charge: &Charge) -> Result<ChargeStatus, tonic::Status> {
    let request = SubmitOtpRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        otp: "123456".to_owned(),
    };
    let told = world.charges.submit_otp(request).await?;
    Ok(told.into_inner().charge.unwrap().status())
}

const TWO_WRONG_CODES: [Event; 5] = [
    Event::CodeWanted,
    Event::CodeSent,
    Event::CodeWrong,
    Event::CodeSent,
    Event::CodeWrong,
];

/// The reply to the third code is lost. A rail that still wants a code may not have checked it
/// yet.
#[tokio::test]
async fn only_the_rails_own_word_ends_a_charge_after_the_third_code() {
    let says = Says::new(Reaction::Cut);
    let network = says.network().await;
    let mut world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = world.given_charge(&TWO_WRONG_CODES).await;
    let told = submit(&mut world, &charge).await.unwrap();
    assert_eq!(told, ChargeStatus::Initiated);
    let before = network.calls().len();
    says.now(paystack(r#"{"status":"send_otp"}"#));
    world.clock.advance(5 * MINUTE).await.unwrap();
    assert!(network.calls().len() > before, "it was asked");
    let asked = world.charge(&charge.facts.reference).await;
    assert!(
        !asked.progress.state.is_terminal(),
        "{:?}",
        failed_with(&asked)
    );
    assert_eq!(
        asked.progress.state.shown(),
        Some(chassis::charge_status::ChargeStatus::Initiated)
    );
    // A fourth code is refused.
    let fourth = submit(&mut world, &charge).await;
    check_refusal(fourth, Code::FailedPrecondition, "CHARGE_NOT_AWAITING_OTP");
    says.now(paid(&charge));
    world.clock.advance(10 * MINUTE).await.unwrap();
    let settled = world.charge(&charge.facts.reference).await;
    assert_eq!(settled.progress.state, State::Settled);
    world.end().await;
}

#[tokio::test]
async fn a_third_code_that_the_rail_calls_wrong_ends_the_charge() {
    let says = Says::new(paystack(r#"{"status":"send_otp"}"#));
    let network = says.network().await;
    let mut world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    for told in [
        ChargeStatus::OtpRequired,
        ChargeStatus::OtpRequired,
        ChargeStatus::Failed,
    ] {
        assert_eq!(submit(&mut world, &charge).await.unwrap(), told);
    }
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some(FailureReason::OtpAttemptsExceeded);
    assert_eq!(failed_with(&ended), (State::Failed, reason));
    world.end().await;
}

/// The rail calls two codes wrong, but may still accept the one whose reply was lost.
#[tokio::test]
async fn a_third_wrong_code_does_not_end_a_charge_whose_first_may_be_accepted() {
    let says = Says::new(Reaction::Cut);
    let network = says.network().await;
    let mut world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    submit(&mut world, &charge).await.unwrap();
    says.now(paystack(r#"{"status":"send_otp"}"#));
    world.clock.advance(MINUTE).await.unwrap();
    for told in [ChargeStatus::OtpRequired, ChargeStatus::Initiated] {
        assert_eq!(submit(&mut world, &charge).await.unwrap(), told);
    }
    let open = world.charge(&charge.facts.reference).await;
    assert_eq!(
        (open.progress.state.is_terminal(), open.progress.otp_tries),
        (false, 3)
    );
    says.now(paid(&charge));
    world.clock.advance(10 * MINUTE).await.unwrap();
    let settled = world.charge(&charge.facts.reference).await;
    assert_eq!(settled.progress.state, State::Settled);
    world.end().await;
}

/// The network gives up on the payer, though it would still take a code.
#[tokio::test]
async fn a_third_code_without_a_reply_ends_with_the_networks_own_time() {
    let says = Says::new(Reaction::Cut);
    let network = {
        let says = says.clone();
        FakeServer::start(move |seen| {
            if seen.call.starts_with("GET /charge/") {
                return paystack(r#"{"status":"send_otp"}"#);
            }
            says.0.lock().unwrap().clone()
        })
        .await
    };
    let mut world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = world.given_charge(&TWO_WRONG_CODES).await;
    submit(&mut world, &charge).await.unwrap();
    says.now(abandoned());
    world.clock.advance(3 * MINUTE).await.unwrap();
    let asked = world.charge(&charge.facts.reference).await;
    assert!(
        !asked.progress.state.is_terminal(),
        "{:?}",
        failed_with(&asked)
    );
    world.clock.advance(2 * MINUTE).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some(FailureReason::PayerTimeout);
    assert_eq!(failed_with(&ended), (State::Failed, reason));
    world.end().await;
}

/// Once a request may no longer be sent again, an unknown reference at MTN is final as late as
/// anywhere else.
#[tokio::test]
async fn mtns_longer_time_counts_too() {
    let not_found = json(404, r#"{"code":"RESOURCE_NOT_FOUND","message":"x"}"#);
    let network = Says::new(not_found).network().await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    world.stop().await;
    let then = world.clock.now() - Duration::from_secs(310);
    let charge = charge_of(Provider::Mtn, RailName::Momo, then);
    let charge = world.given(charge, &[]).await;
    let world = world.restart().await;
    world.clock.advance(Duration::from_secs(5)).await.unwrap();
    let asked = world.charge(&charge.facts.reference).await;
    assert!(
        !asked.progress.state.is_terminal(),
        "{:?}",
        failed_with(&asked)
    );
    world.clock.advance(MINUTE).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some(FailureReason::RailUnavailable);
    assert_eq!(failed_with(&ended), (State::Failed, reason));
    world.end().await;
}
