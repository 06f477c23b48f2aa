//! What a newer version has written, once this one runs again: a charge is still told, read and
//! decided about, and only what needs the meaning of the newer word is left to the newer version.

use std::time::Duration;

use charges_svc::{
    case::{Case, CaseKind},
    charge::{Charge, Event, State},
    store,
};
use chassis::{
    failure::FailureReason,
    testing::{check_refusal, until},
};
use db::{Update, outbox};
use proto::charges::{
    CaseKind as ProtoCaseKind, CloseCaseRequest, GetChargeRequest, ListCasesRequest,
    ReceiveCallbackRequest, ResolveChargeRequest, ShowChargeRequest, SubmitOtpRequest,
    close_case_request::Action, resolve_charge_request::Outcome,
};
use tonic::Code;
use uuid::Uuid;

use crate::{
    cases::given_case,
    mtn::Mtn,
    rail_away,
    shop::Shop,
    world::{Neighbour, World, ghs, request},
};

const RAIL: &str = "update charges set rail = 'newer' where reference = $1";
const AT_REST: &str = "update charges set next_query_at = null where reference = $1";
const REASON: &str = "update charges set failure_reason = 'NEWER' where reference = $1";

/// Writes to a charge as a newer version might have.
async fn write_newer(world: &World, sql: &'static str, reference: &str) {
    let mut tx = world.db.begin().await.unwrap();
    let written = tx.sql(sql).bind(reference).update().await.unwrap();
    assert_eq!(written, Update::Updated);
    tx.commit().await.unwrap();
}

async fn get(world: &mut World, charge: &Charge) -> proto::charges::Charge {
    let get = GetChargeRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
    };
    world.charges.get_charge(get).await.unwrap().into_inner()
}

fn code_for(charge: &Charge) -> SubmitOtpRequest {
    SubmitOtpRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        otp: "123456".to_owned(),
    }
}

/// Puts a charge into the outbox, and waits until sessions-svc was told of it.
async fn check_told(world: World, charge: &Charge) -> World {
    let mut tx = world.db.begin().await.unwrap();
    let (subject, now) = (charge.facts.transaction_id.to_string(), world.clock.now());
    let row = outbox::put(&mut tx, &subject, None, now).await.unwrap();
    tx.commit().await.unwrap();
    let world = world.restart().await;
    let is_told = async || {
        let mut conn = world.db.read().await.unwrap();
        !store::is_in_outbox(&mut conn, row).await.unwrap()
    };
    until("sessions-svc was told", is_told).await;
    world
}

#[tokio::test]
async fn a_charge_on_a_newer_rail_is_read_and_told() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    let reference = charge.facts.reference.as_str();
    write_newer(&world, RAIL, reference).await;
    assert_eq!(get(&mut world, &charge).await.reference, reference);
    let show = ShowChargeRequest {
        reference: reference.to_owned(),
    };
    let shown = world.operations.show_charge(show).await.unwrap();
    assert_eq!(shown.into_inner().rail, "newer");
    check_told(world, &charge).await.end().await;
}

#[tokio::test]
async fn the_answer_about_a_charge_on_a_newer_rail_is_repeated() {
    let mut world = World::start_beside(Neighbour::Open).await;
    let request = request();
    let answer = world.charges.create_charge(request.clone()).await;
    let first = answer.unwrap().into_inner().charge.unwrap();
    write_newer(&world, RAIL, &first.reference).await;
    let again = world.charges.create_charge(request).await.unwrap();
    let again = again.into_inner();
    assert!(again.replayed);
    assert_eq!(again.charge.unwrap().reference, first.reference);
    world.end().await;
}

#[tokio::test]
async fn a_code_for_a_newer_rail_is_not_tried() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::CodeWanted]).await;
    write_newer(&world, RAIL, charge.facts.reference.as_str()).await;
    let answer = world.charges.submit_otp(code_for(&charge)).await;
    check_refusal(answer, Code::Unavailable, "NOTHING_STARTED");
    let after = world.charge(&charge.facts.reference).await.progress;
    assert_eq!((after.state, after.otp_tries), (State::OtpRequired, 0));
    world.end().await;
}

#[tokio::test]
async fn a_charge_on_a_newer_rail_that_awaits_no_code_takes_none() {
    let mut world = World::start().await;
    let failed = Event::Failed(FailureReason::PayerTimeout);
    for event in [Event::Accepted, Event::Settled, failed] {
        let charge = world.given_charge(&[event]).await;
        write_newer(&world, RAIL, charge.facts.reference.as_str()).await;
        let answer = world.charges.submit_otp(code_for(&charge)).await;
        check_refusal(answer, Code::FailedPrecondition, "CHARGE_NOT_AWAITING_OTP");
    }
}

#[tokio::test]
async fn a_callback_of_a_newer_rail_is_to_be_repeated() {
    let mut world = World::start().await;
    let callback = |rail: &str, token: &str| ReceiveCallbackRequest {
        rail: rail.to_owned(),
        token: token.to_owned(),
        ..Default::default()
    };
    // It is no longer looked at for late money, so only its address leads to it.
    let failed = Event::Failed(FailureReason::PayerTimeout);
    let ended = world.given_charge(&[failed]).await;
    let (reference, token) = (&ended.facts.reference, &ended.facts.callback_token);
    write_newer(&world, RAIL, reference.as_str()).await;
    write_newer(&world, AT_REST, reference.as_str()).await;
    let answer = world.charges.receive_callback(callback("newer", token));
    check_refusal(answer.await, Code::Unavailable, "NOTHING_STARTED");
    for (rail, token) in [
        ("newer", "t"),
        ("other", token),
        ("newer", "\0"),
        ("\0", token),
    ] {
        let answer = world.charges.receive_callback(callback(rail, token));
        check_refusal(answer.await, Code::NotFound, "CALLBACK_NOT_FOUND");
    }
    // Some rails have one address for all charges.
    let open = world.given_charge(&[Event::Accepted]).await;
    write_newer(&world, RAIL, open.facts.reference.as_str()).await;
    let answer = world.charges.receive_callback(callback("newer", "t"));
    check_refusal(answer.await, Code::Unavailable, "NOTHING_STARTED");
    let answer = world.charges.receive_callback(callback("other", "t"));
    check_refusal(answer.await, Code::NotFound, "CALLBACK_NOT_FOUND");
}

#[tokio::test]
async fn a_callback_about_a_payout_over_a_newer_rail_is_to_be_repeated() {
    let mut shop = Shop::open(&Mtn::with_float("0")).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(2_000).await.unwrap();
    let sql = "update disbursements set rail = 'newer' where shown_id = $1";
    write_newer(&shop.world, sql, &payout.payout_id).await;
    let token = shop.disbursement(&payout).await.callback_token;
    for (rail, code, reason) in [
        ("newer", Code::Unavailable, "NOTHING_STARTED"),
        ("other", Code::NotFound, "CALLBACK_NOT_FOUND"),
    ] {
        let callback = rail_away::callback(rail, &token, "", None);
        let answer = shop.world.charges.receive_callback(callback).await;
        check_refusal(answer, code, reason);
    }
    shop.end().await;
}

#[tokio::test]
async fn an_operator_decides_about_a_charge_on_a_newer_rail() {
    let mut world = World::start().await;
    let first = world.given_charge(&[Event::Accepted]).await;
    write_newer(&world, RAIL, first.facts.reference.as_str()).await;
    let resolve = ResolveChargeRequest {
        reference: first.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
    };
    world.operations.resolve_charge(resolve).await.unwrap();
    // Closing a case locks every charge of the session.
    let failed = Event::Failed(FailureReason::PayerTimeout);
    let second = world.given_next_charge(&first, &[failed]).await;
    let about = (second.facts.transaction_id, &second.facts.reference);
    let detail = "as seen".to_owned();
    let case = Case::new(about, CaseKind::Reversed, detail, None, world.clock.now());
    let mut tx = world.db.begin().await.unwrap();
    let opened = store::cases::open(&mut tx, &case).await.unwrap();
    assert_eq!(opened, Some(case.case_id));
    tx.commit().await.unwrap();
    let close = CloseCaseRequest {
        case_id: case.case_id.to_string(),
        action: Action::Refund.into(),
        override_reason: None,
        evidence: None,
    };
    world.operations.close_case(close).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_charge_that_failed_for_a_newer_reason_is_read_and_told() {
    let mut world = World::start().await;
    let failed = Event::Failed(FailureReason::PayerTimeout);
    let charge = world.given_charge(&[failed]).await;
    write_newer(&world, REASON, charge.facts.reference.as_str()).await;
    let got = get(&mut world, &charge).await;
    assert_eq!(got.failure_reason.as_deref(), Some("NEWER"));
    let message = FailureReason::RailError.message();
    assert_eq!(got.failure_message.as_deref(), Some(message));
    let world = check_told(world, &charge).await;
    // It is still looked at for late money.
    world
        .clock
        .advance(Duration::from_secs(3_600))
        .await
        .unwrap();
    let is_queried = async || {
        let mut conn = world.db.read().await.unwrap();
        let said = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid()).await;
        !said.unwrap().is_empty()
    };
    until("the rail was asked", is_queried).await;
    world.end().await;
}

/// Such as a case about a line of a report, for a version that knows no reports.
#[tokio::test]
async fn a_newer_case_leaves_the_others_listed() {
    let mut world = World::start().await;
    let failed = Event::Failed(FailureReason::PayerTimeout);
    let charge = world.given_charge(&[failed]).await;
    given_case(&world, &charge, CaseKind::Reversed, None).await;
    for kind in ["NEWER", "MISMATCH"] {
        let newer = "insert into cases (case_id, transaction_id, kind, detail, opened_at)
                     values ($1, $2, $3, 'as seen', $4)";
        let mut tx = world.db.begin().await.unwrap();
        tx.sql(newer)
            .bind(Uuid::new_v4())
            .bind(Uuid::new_v4())
            .bind(kind)
            .bind(world.clock.now())
            .run()
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    let listed = world.operations.list_cases(ListCasesRequest {}).await;
    let cases = listed.unwrap().into_inner().cases;
    let shown: Vec<_> = cases
        .iter()
        .map(|case| (case.kind(), case.reference.as_str()))
        .collect();
    let reference = charge.facts.reference.as_str();
    assert_eq!(
        shown,
        [
            (ProtoCaseKind::Reversed, reference),
            (ProtoCaseKind::Mismatch, "")
        ]
    );
    world.end().await;
}

#[tokio::test]
async fn a_balance_is_told_whatever_its_merchants_payout_account_is() {
    chassis::metrics::render();
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let known = shop.told_balance().await;
    assert_eq!(known.payout_fee, Some(ghs(0)));
    let newer = "update payout_accounts set destination_type = 'NEWER' where merchant_id = $1";
    let mut tx = shop.world.db.begin().await.unwrap();
    let merchant = shop.charge.facts.merchant_id;
    let written = tx.sql(newer).bind(merchant).update().await.unwrap();
    assert_eq!(written, Update::Updated);
    tx.commit().await.unwrap();
    let told = shop.told_balance().await;
    assert_eq!((told.available, told.payout_fee), (known.available, None));
    let metrics = chassis::metrics::render();
    // Another test may have counted one, too.
    let counted = r#"unknown_values_total{column="destination_type"} "#;
    assert!(metrics.contains(counted), "{metrics}");
    shop.end().await;
}
