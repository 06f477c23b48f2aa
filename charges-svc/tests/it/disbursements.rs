//! Money that goes out: payouts and refunds, through the service's own interface and MTN's wire.

use charges_svc::store;
use chassis::{
    grpc,
    ids::MerchantId,
    testing::{
        check_invalid, check_refusal,
        fake_server::{Reaction, json},
        until,
    },
};
use futures::future::join_all;
use proto::{
    charges::{
        CaseKind, CreatePayoutRequest, CreateRefundRequest, DestinationType, DisbursementStatus,
        GetPayoutRequest, GetRefundRequest, ListPayoutsRequest, Provider, ReceiveCallbackRequest,
        SetPayoutAccountRequest, SetPayoutSwitchesRequest, ShowDisbursementRequest,
    },
    webhooks::EventType,
};
use tonic::Code;

use crate::{
    mtn::{Mtn, transfers},
    neighbour::Updates,
    shop::Shop,
    world::ghs,
};

fn events(updates: &Updates) -> Vec<EventType> {
    updates
        .events()
        .iter()
        .map(|event| event.r#type())
        .collect()
}

#[tokio::test]
async fn a_payout_is_reserved_paid_and_told_once() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(2000).await.unwrap();
    assert_eq!(payout.status(), DisbursementStatus::Pending);
    let paid = shop
        .until_payout(&payout, DisbursementStatus::Completed)
        .await;
    assert!(paid.completed_at.is_some() && paid.failure_reason.is_none());
    assert_eq!(paid.destination.unwrap().account_masked, "024 ••• 4567");
    assert_eq!(shop.balance().await, (550, 0));
    assert_eq!(transfers(&shop.network), 1);
    let seen = shop.network.seen();
    let sent = seen
        .iter()
        .find(|seen| seen.call == "POST /disbursement/v1_0/transfer");
    let body = sent.unwrap().json();
    assert_eq!(body["amount"], "20.00");
    assert_eq!(body["payee"]["partyId"], "233241234567");
    assert_eq!(
        body["externalId"],
        sent.unwrap().header("x-reference-id").unwrap()
    );
    until("it is told", async || {
        !shop.world.updates.events().is_empty()
    })
    .await;
    assert_eq!(events(&shop.world.updates), [EventType::PayoutSuccess]);
    shop.end().await;
}

#[tokio::test]
async fn payouts_and_refunds_at_once_never_overdraw() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let payouts = (0..12).map(|_| {
        let (mut disbursements, request) = (shop.world.disbursements.clone(), shop.payout(500));
        async move { disbursements.create_payout(request).await.map(drop) }
    });
    let refunds = (0..12).map(|_| {
        let request = CreateRefundRequest {
            merchant_id: shop.merchant(),
            reference: shop.charge.facts.reference.to_string(),
            amount: Some(ghs(500)),
            idempotency_key: format!("c:{}", MerchantId::new()),
            asked_by: None,
        };
        let mut disbursements = shop.world.disbursements.clone();
        async move { disbursements.create_refund(request).await.map(drop) }
    });
    let (payouts, refunds) = futures::join!(join_all(payouts), join_all(refunds));
    let answers: Vec<_> = payouts.into_iter().chain(refunds).collect();
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(taken, 5, "25.50 cedis are five times five, and a little");
    for refused in answers.into_iter().filter_map(Result::err) {
        let reason = grpc::reason(&refused).unwrap();
        let left = match reason.as_str() {
            "INSUFFICIENT_BALANCE" => grpc::metadata(&refused, "available_minor"),
            "REFUND_EXCEEDS_CHARGE" => grpc::metadata(&refused, "refundable_minor"),
            other => panic!("{other}"),
        };
        assert!(left.unwrap().parse::<i64>().unwrap() < 500);
    }
    until("all are paid", async || shop.balance().await == (50, 0)).await;
    assert_eq!(transfers(&shop.network), 5);
    shop.end().await;
}

#[tokio::test]
async fn a_declined_payout_returns_the_money_and_is_told_once() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("FAILED", Some("PAYEE_NOT_FOUND"));
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(2000).await.unwrap();
    assert_eq!(shop.balance().await.0, 550);
    let failed = shop.until_payout(&payout, DisbursementStatus::Failed).await;
    assert_eq!(failed.failure_reason.as_deref(), Some("PAYEE_NOT_FOUND"));
    assert_eq!(shop.balance().await, (2550, 0));
    until("it is told", async || {
        !shop.world.updates.events().is_empty()
    })
    .await;
    assert_eq!(events(&shop.world.updates), [EventType::PayoutFailed]);
    shop.end().await;
}

#[tokio::test]
async fn a_refusal_at_once_is_an_end_too() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(
        json(400, r#"{"code":"PAYEE_NOT_FOUND","message":"no"}"#),
        false,
    );
    let mut shop = Shop::open(&mtn).await;
    let refund = shop.refund(None).await.unwrap();
    assert_eq!(refund.amount.unwrap().minor_units, 2550);
    let request = GetRefundRequest {
        merchant_id: shop.merchant(),
        refund_id: refund.refund_id,
    };
    let mut disbursements = shop.world.disbursements.clone();
    until("it has failed", async || {
        let found = disbursements.get_refund(request.clone()).await.unwrap();
        found.into_inner().status() == DisbursementStatus::Failed
    })
    .await;
    assert_eq!(shop.balance().await, (2550, 0));
    // What was not refunded can be refunded again.
    mtn.answers(chassis::testing::fake_server::empty(202), true);
    shop.refund(None).await.unwrap();
    until("it is paid", async || shop.balance().await == (0, 0)).await;
    until("both are told", async || {
        shop.world.updates.events().len() == 2
    })
    .await;
    let told = events(&shop.world.updates);
    assert_eq!(told, [EventType::RefundFailed, EventType::RefundSuccess]);
    shop.end().await;
}

/// A 429 counts as a lost answer: that it keeps a transfer from being paid is documented nowhere.
#[tokio::test]
async fn a_lost_answer_is_asked_after_and_never_sent_again() {
    for reaction in [Reaction::Cut, json(429, "{}")] {
        let mtn = Mtn::with_float("1000");
        mtn.answers(reaction, true);
        mtn.ends("PENDING", None);
        let mut shop = Shop::open(&mtn).await;
        shop.enable_payouts().await;
        let payout = shop.pay_out(2000).await.unwrap();
        shop.until_payout(&payout, DisbursementStatus::Processing)
            .await;
        until("it is asked about", async || {
            let calls = shop.network.calls();
            calls
                .iter()
                .any(|call| call.starts_with("GET /disbursement/v1_0/transfer/"))
        })
        .await;
        assert_eq!(shop.balance().await, (550, 2000));
        mtn.ends("SUCCESSFUL", None);
        shop.until_payout(&payout, DisbursementStatus::Completed)
            .await;
        assert_eq!(transfers(&shop.network), 1);
        shop.end().await;
    }
}

#[tokio::test]
async fn a_payout_that_the_float_cannot_cover_waits_with_a_case() {
    let mtn = Mtn::with_float("19.99");
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(2000).await.unwrap();
    until("there is a case", async || {
        shop.open_cases()
            .await
            .iter()
            .any(|case| case.kind() == CaseKind::FloatEmpty)
    })
    .await;
    let waiting = shop.shown(&payout).await;
    assert_eq!(waiting.status(), DisbursementStatus::Pending);
    assert_eq!(transfers(&shop.network), 0);
    mtn.set_float("20.00");
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    until("the case is closed", async || {
        shop.open_cases().await.is_empty()
    })
    .await;
    shop.end().await;
}

#[tokio::test]
async fn a_reference_that_the_rail_has_already_is_asked_about() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(json(409, r#"{"code":"RESOURCE_ALREADY_EXIST"}"#), true);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    // MTN has the reference already: what it knows of it is ours.
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    assert_eq!(shop.balance().await, (1550, 0));
    shop.end().await;
}

#[tokio::test]
async fn a_key_stands_for_one_payout() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let request = shop.payout(1000);
    let mut disbursements = shop.world.disbursements.clone();
    let first = disbursements
        .create_payout(request.clone())
        .await
        .unwrap()
        .into_inner();
    let payout = first.payout.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let again = disbursements
        .create_payout(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(!first.replayed && again.replayed);
    assert_eq!(again.payout, Some(payout), "as it was answered");
    let other = CreatePayoutRequest {
        amount: Some(ghs(1001)),
        ..request
    };
    let refused = disbursements.create_payout(other).await;
    check_refusal(refused, Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(shop.balance().await, (1550, 0));
    shop.end().await;
}

#[tokio::test]
async fn a_callback_is_a_hint_about_a_disbursement_too() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    mtn.ends("SUCCESSFUL", None);
    let mut conn = shop.world.db.read().await.unwrap();
    let found = store::disbursements::find_shown(&mut conn, &payout.payout_id).await;
    drop(conn);
    let callback = ReceiveCallbackRequest {
        rail: "momo".to_owned(),
        token: found.unwrap().unwrap().callback_token,
        body: b"{}".to_vec(),
        ..Default::default()
    };
    shop.world
        .charges
        .receive_callback(callback.clone())
        .await
        .unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let unknown = ReceiveCallbackRequest {
        token: "nobodys-token".to_owned(),
        ..callback
    };
    let refused = shop.world.charges.receive_callback(unknown).await;
    check_refusal(refused, Code::NotFound, "CALLBACK_NOT_FOUND");
    let request = ShowDisbursementRequest {
        id: payout.payout_id,
    };
    let file = shop
        .world
        .treasury
        .show_disbursement(request)
        .await
        .unwrap()
        .into_inner();
    assert!(file.evidence.iter().any(|said| said.action == "callback"));
    assert_eq!(file.postings.len(), 4, "reserved, and paid");
    shop.end().await;
}

#[tokio::test]
async fn refunds_never_exceed_what_was_collected() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.refund(Some(1000)).await.unwrap();
    let refused = shop.refund(Some(1551)).await;
    assert_eq!(
        grpc::metadata(refused.as_ref().unwrap_err(), "refundable_minor").as_deref(),
        Some("1550")
    );
    check_refusal(refused, Code::FailedPrecondition, "REFUND_EXCEEDS_CHARGE");
    let part = shop.refund(Some(99)).await;
    check_invalid(part, "amount");
    shop.refund(Some(1500)).await.unwrap();
    shop.refund(Some(50)).await.expect("the rest may be small");
    check_refusal(
        shop.refund(None).await,
        Code::FailedPrecondition,
        "REFUND_EXCEEDS_CHARGE",
    );
    until("all are paid", async || shop.balance().await == (0, 0)).await;
    shop.end().await;
}

/// The house bears what a rail takes for each.
#[tokio::test]
async fn a_charge_takes_ten_refunds_and_the_tenth_is_the_rest() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    for _ in 0..9 {
        shop.refund(Some(100)).await.unwrap();
    }
    let tenth = shop.refund(Some(100)).await;
    check_invalid(tenth, "amount");
    shop.refund(Some(1650)).await.unwrap();
    until("all are paid", async || shop.balance().await == (0, 0)).await;
    shop.end().await;
}

/// MTN has one word for both.
#[tokio::test]
async fn a_refusal_that_blames_float_or_payee_is_the_floats_if_it_is_short() {
    let ambiguous = r#"{"code":"LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED"}"#;
    let mtn = Mtn::with_float("1000");
    mtn.answers(json(400, ambiguous), false);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    let failed = shop.until_payout(&payout, DisbursementStatus::Failed).await;
    let limit = Some("PAYEE_LIMIT_REACHED");
    assert_eq!(failed.failure_reason.as_deref(), limit, "there was enough");
    mtn.drains_to("9.99");
    let payout = shop.pay_out(1000).await.unwrap();
    until("there is a case", async || {
        let cases = shop.open_cases().await;
        cases.iter().any(|case| case.kind() == CaseKind::FloatEmpty)
    })
    .await;
    let waiting = shop.shown(&payout).await;
    assert_eq!(waiting.status(), DisbursementStatus::Pending);
    shop.end().await;
}

#[tokio::test]
async fn payouts_need_an_account_that_is_confirmed_and_not_just_changed() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let refused = shop.pay_out(100).await;
    check_refusal(refused, Code::PermissionDenied, "PAYOUTS_NOT_ENABLED");
    let mut account = SetPayoutAccountRequest {
        merchant_id: shop.merchant(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: "0241234567".to_owned(),
        holder_name: "Kofi Boateng".to_owned(),
        ..SetPayoutAccountRequest::default()
    };
    let refused = shop
        .world
        .treasury
        .set_payout_account(account.clone())
        .await;
    let told = grpc::metadata(refused.as_ref().unwrap_err(), "rail_holder_name");
    assert_eq!(told.as_deref(), Some("Ama Mensah"));
    check_refusal(refused, Code::FailedPrecondition, "HOLDER_MISMATCH");
    account.confirm_holder_name = true;
    shop.world
        .treasury
        .set_payout_account(account.clone())
        .await
        .unwrap();
    let refused = shop.pay_out(100).await;
    check_refusal(refused, Code::PermissionDenied, "PAYOUTS_NOT_ENABLED");
    let switches = SetPayoutSwitchesRequest {
        merchant_id: shop.merchant(),
        payouts_on_request: Some(true),
        daily_settlement: Some(false),
    };
    shop.world
        .treasury
        .set_payout_switches(switches)
        .await
        .unwrap();
    let payout = shop.pay_out(100).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    account.account = "0241234568".to_owned();
    shop.world
        .treasury
        .set_payout_account(account)
        .await
        .unwrap();
    let refused = shop.pay_out(99).await;
    check_invalid(refused, "amount");
    let refused = shop.pay_out(100).await;
    assert!(grpc::metadata(refused.as_ref().unwrap_err(), "held_until").is_some());
    check_refusal(refused, Code::FailedPrecondition, "PAYOUT_ACCOUNT_ON_HOLD");
    assert_eq!(shop.balance().await, (2450, 0));
    shop.end().await;
}

#[tokio::test]
async fn a_merchant_sees_only_its_own() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(shop.pay_out(100).await.unwrap().payout_id);
    }
    made.reverse();
    let mut disbursements = shop.world.disbursements.clone();
    let mut listed = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListPayoutsRequest {
            merchant_id: shop.merchant(),
            page_size: 2,
            page_token: token,
            ..ListPayoutsRequest::default()
        };
        let page = disbursements
            .list_payouts(request)
            .await
            .unwrap()
            .into_inner();
        listed.extend(page.payouts.into_iter().map(|payout| payout.payout_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, made);
    until("all are paid", async || shop.balance().await == (2050, 0)).await;
    // What only a newer version knows is left out, and does not end the list.
    let mut tx = shop.world.db.begin().await.unwrap();
    tx.sql("update disbursements set destination_type = 'CARD' where shown_id = $1")
        .bind(&made[1])
        .run()
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let request = ListPayoutsRequest {
        merchant_id: shop.merchant(),
        page_size: 2,
        ..ListPayoutsRequest::default()
    };
    let page = disbursements.list_payouts(request).await;
    let page = page.unwrap().into_inner();
    assert_eq!(page.payouts.len(), 1);
    assert!(!page.next_page_token.is_empty());
    let another = MerchantId::new().to_string();
    let request = ListPayoutsRequest {
        merchant_id: another.clone(),
        ..ListPayoutsRequest::default()
    };
    let page = disbursements
        .list_payouts(request)
        .await
        .unwrap()
        .into_inner();
    assert!(page.payouts.is_empty());
    let request = GetPayoutRequest {
        merchant_id: another,
        payout_id: made[0].clone(),
    };
    let refused = disbursements.get_payout(request).await;
    check_refusal(refused, Code::NotFound, "PAYOUT_NOT_FOUND");
    shop.end().await;
}

/// A second process has taken the payout over while the first was kept waiting.
#[tokio::test]
async fn who_has_lost_a_payout_does_not_send_it() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let mtn = Mtn::with_float("1000");
    mtn.holds_balance(gate);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    until("the float is asked for", async || {
        let calls = shop.network.calls();
        calls.iter().any(|call| call.ends_with("/account/balance"))
    })
    .await;
    let mut tx = shop.world.db.begin().await.unwrap();
    let found = store::disbursements::find_shown(&mut tx, &payout.payout_id).await;
    let held = found.unwrap().unwrap();
    assert!(held.claim.fence.is_some());
    let mut taken = held.clone();
    taken.claim.fence = Some(uuid::Uuid::new_v4());
    let written = store::disbursements::update(&mut tx, &held, &taken).await;
    assert_eq!(written.unwrap(), db::Update::Updated);
    tx.commit().await.unwrap();
    open.send_replace(true);
    // The one that holds it gives it back.
    let mut freed = taken.clone();
    freed.claim = charges_svc::charge::Claim::default();
    let mut tx = shop.world.db.begin().await.unwrap();
    let written = store::disbursements::update(&mut tx, &taken, &freed).await;
    assert_eq!(
        written.unwrap(),
        db::Update::Updated,
        "nobody else has changed it"
    );
    tx.commit().await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    assert_eq!(transfers(&shop.network), 1);
    shop.end().await;
}
