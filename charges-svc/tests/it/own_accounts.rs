//! A merchant sets where its own payouts go.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    testing::{check_invalid, check_refusal, until},
};
use proto::{
    charges::{
        DestinationType, DisbursementStatus, HolderToConfirm, ListPayoutAccountChangesRequest,
        PayoutAccount, PayoutAccountChange, Provider, ReadPayoutAccountRequest,
        SetOwnPayoutAccountRequest, SetPayoutAccountRequest, SetPayoutSwitchesRequest,
        SwitchDailySettlementRequest, set_own_payout_account_response::Outcome,
    },
    merchants::NoticeKind,
};
use tonic::{Code, Status};

use crate::{mtn::Mtn, shop::Shop};

const PERSON: &str = "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e";
const FIRST: &str = "024 123 4567";
const SECOND: &str = "0241234568";
const HOUR: Duration = Duration::from_secs(3_600);

fn asked(shop: &Shop, account: &str) -> SetOwnPayoutAccountRequest {
    SetOwnPayoutAccountRequest {
        merchant_id: shop.merchant(),
        person_id: PERSON.to_owned(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: account.to_owned(),
        holder_name: "MENSAH Ama".to_owned(),
        ..SetOwnPayoutAccountRequest::default()
    }
}

fn confirmed(request: SetOwnPayoutAccountRequest, name: &str) -> SetOwnPayoutAccountRequest {
    SetOwnPayoutAccountRequest {
        confirmed_name: Some(name.to_owned()),
        ..request
    }
}

async fn send(shop: &Shop, request: SetOwnPayoutAccountRequest) -> Result<Outcome, Status> {
    let mut accounts = shop.world.accounts.clone();
    let answer = accounts.set_own_payout_account(request).await?;
    Ok(answer.into_inner().outcome.unwrap())
}

async fn set(shop: &Shop, request: SetOwnPayoutAccountRequest) -> PayoutAccount {
    match send(shop, request).await.unwrap() {
        Outcome::Set(account) => account,
        Outcome::ToConfirm(holder) => panic!("{holder:?} is to be confirmed"),
    }
}

async fn to_confirm(shop: &Shop, request: SetOwnPayoutAccountRequest) -> HolderToConfirm {
    match send(shop, request).await.unwrap() {
        Outcome::ToConfirm(holder) => holder,
        Outcome::Set(account) => panic!("{account:?} is set"),
    }
}

async fn account(shop: &Shop) -> Option<PayoutAccount> {
    let request = ReadPayoutAccountRequest {
        merchant_id: shop.merchant(),
    };
    let mut disbursements = shop.world.disbursements.clone();
    let read = disbursements.read_payout_account(request).await;
    read.ok().map(tonic::Response::into_inner)
}

async fn changes(shop: &Shop) -> Vec<PayoutAccountChange> {
    let mut changes = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListPayoutAccountChangesRequest {
            merchant_id: shop.merchant(),
            page_size: 1,
            page_token,
        };
        let mut accounts = shop.world.accounts.clone();
        let listed = accounts.list_payout_account_changes(request);
        let listed = listed.await.unwrap().into_inner();
        changes.extend(listed.changes);
        page_token = listed.next_page_token;
        if page_token.is_empty() {
            return changes;
        }
    }
}

fn by_operator(shop: &Shop, account: &str) -> SetPayoutAccountRequest {
    SetPayoutAccountRequest {
        merchant_id: shop.merchant(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: account.to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    }
}

#[tokio::test]
async fn what_the_network_tells_is_confirmed_first_and_then_paid_to() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    let holder = to_confirm(&shop, asked(&shop, FIRST)).await;
    assert_eq!(holder.rail_holder_name.as_deref(), Some("Ama Mensah"));
    assert!(holder.is_same);
    assert_eq!(holder.destination.unwrap().account_masked, "024 ••• 4567");
    for not_it in ["", "MENSAH Ama", "ama mensah", "Kofi Boateng"] {
        to_confirm(&shop, confirmed(asked(&shop, FIRST), not_it)).await;
    }
    assert_eq!(account(&shop).await, None, "nothing was set");
    let set_it = confirmed(asked(&shop, FIRST), "Ama Mensah");
    let first = set(&shop, set_it.clone()).await;
    assert!(first.payouts_on_request && !first.daily_settlement);
    let again = set(&shop, set_it).await;
    assert_eq!(again, first, "sent twice");
    assert_eq!(changes(&shop).await.len(), 1);
    let payout = shop.pay_out(1_000).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    shop.end().await;
}

#[tokio::test]
async fn a_change_waits_and_a_form_that_saw_another_account_is_refused() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    let first = set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    let stale = confirmed(asked(&shop, SECOND), "Ama Mensah");
    for seen in ["", "1999-01-01T00:00:00.000Z", "yesterday"] {
        let request = SetOwnPayoutAccountRequest {
            updated_at: seen.to_owned(),
            ..stale.clone()
        };
        let refused = send(&shop, request).await;
        check_refusal(refused, Code::FailedPrecondition, "FORM_USED");
    }
    let change = SetOwnPayoutAccountRequest {
        updated_at: first.updated_at.clone(),
        ..stale
    };
    let changed = set(&shop, change.clone()).await;
    assert_eq!(set(&shop, change).await, changed, "sent twice");
    assert!(changed.updated_at > first.updated_at);
    let refused = shop.pay_out(1_000).await;
    check_refusal(refused, Code::FailedPrecondition, "PAYOUT_ACCOUNT_ON_HOLD");
    shop.world.clock.advance(25 * HOUR).await.unwrap();
    shop.pay_out(1_000).await.unwrap();
    let listed = changes(&shop).await;
    let shown: Vec<_> = listed.iter().map(|change| &*change.account).collect();
    assert_eq!(
        shown,
        [
            "MTN 024 ••• 4568, MENSAH Ama",
            "MTN 024 ••• 4567, MENSAH Ama"
        ]
    );
    assert!(listed.iter().all(|change| change.person_id == PERSON));
    assert_eq!(listed[0].held_until, changed.held_until);
    shop.end().await;
}

#[tokio::test]
async fn a_name_that_changes_meanwhile_is_asked_about_again() {
    let mtn = Mtn::with_float("1000");
    let shop = Shop::open(&mtn).await;
    to_confirm(&shop, asked(&shop, FIRST)).await;
    mtn.wallets_are_of(Some("Kofi Boateng"));
    let holder = to_confirm(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    assert_eq!(holder.rail_holder_name.as_deref(), Some("Kofi Boateng"));
    assert!(!holder.is_same);
    mtn.wallets_are_of(Some(""));
    let holder = to_confirm(&shop, confirmed(asked(&shop, FIRST), "Kofi Boateng")).await;
    assert_eq!(holder.rail_holder_name, None);
    mtn.wallets_are_of(None);
    let refused = send(&shop, confirmed(asked(&shop, FIRST), "")).await;
    check_invalid(refused, "account");
    assert_eq!(account(&shop).await, None);
    mtn.wallets_are_of(Some(""));
    let set = set(&shop, confirmed(asked(&shop, FIRST), "")).await;
    assert_eq!(set.rail_holder_name, None);
    shop.end().await;
}

#[tokio::test]
async fn of_settings_at_once_one_is_the_first() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    for _ in 0..5 {
        let own = |number| send(&shop, confirmed(asked(&shop, number), "Ama Mensah"));
        let (one, other) = tokio::join!(own(FIRST), own(SECOND));
        let refused = [one, other].into_iter().filter_map(Result::err);
        let refused: Vec<Status> = refused.collect();
        assert_eq!(refused.len(), 1, "one of them is the first");
        for refused in refused {
            check_refusal(Err::<(), _>(refused), Code::FailedPrecondition, "FORM_USED");
        }
        assert_eq!(changes(&shop).await.len(), 1);
        shop.change_merchant().await;

        let (mut one, mut other) = (shop.world.treasury.clone(), shop.world.treasury.clone());
        let (one, other) = tokio::join!(
            one.set_payout_account(by_operator(&shop, FIRST)),
            other.set_payout_account(by_operator(&shop, SECOND)),
        );
        let held = |set: PayoutAccount| set.held_until > set.updated_at;
        let held = [
            held(one.unwrap().into_inner()),
            held(other.unwrap().into_inner()),
        ];
        assert_ne!(held[0], held[1], "one is the first, and one a change of it");
        let listed = changes(&shop).await;
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|change| change.person_id.is_empty()));
        shop.change_merchant().await;
    }
    shop.end().await;
}

#[tokio::test]
async fn nobody_reaches_anothers_account() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    let set_it = confirmed(asked(&shop, FIRST), "Ama Mensah");
    let first = set(&shop, set_it).await;
    let owner = shop.merchant();
    shop.change_merchant().await;
    assert_eq!(account(&shop).await, None);
    assert!(changes(&shop).await.is_empty());
    let switch = SwitchDailySettlementRequest {
        merchant_id: shop.merchant(),
        daily_settlement: true,
    };
    let refused = shop.world.accounts.switch_daily_settlement(switch).await;
    check_refusal(refused, Code::NotFound, "PAYOUT_ACCOUNT_NOT_FOUND");
    set(&shop, confirmed(asked(&shop, SECOND), "Ama Mensah")).await;
    let request = ReadPayoutAccountRequest { merchant_id: owner };
    let read = shop.world.disbursements.read_payout_account(request).await;
    assert_eq!(read.unwrap().into_inner(), first);
    for (field, spoil) in [
        ("merchant_id", |request: &mut SetOwnPayoutAccountRequest| {
            request.merchant_id.clear();
        }),
        ("person_id", |request| request.person_id.clear()),
        ("provider", |request| request.provider = 0),
        ("account", |request| request.account = "12".to_owned()),
        ("holder_name", |request| {
            request.holder_name = " ".to_owned()
        }),
    ] as [(&str, fn(&mut SetOwnPayoutAccountRequest)); 5]
    {
        let mut request = asked(&shop, FIRST);
        spoil(&mut request);
        check_invalid(send(&shop, request).await, field);
    }
    shop.end().await;
}

#[tokio::test]
async fn the_first_account_that_a_merchant_sets_holds_payouts_for_its_own_time() {
    let mtn = Mtn::with_float("1000");
    let settings = [("first-payout-account-hold", "24h")];
    let mut shop = Shop::open_with(&mtn, &settings).await;
    let first = set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    assert_eq!(at(&first.held_until), at(&first.updated_at) + 24 * HOUR);
    let refused = shop.pay_out(1_000).await;
    check_refusal(refused, Code::FailedPrecondition, "PAYOUT_ACCOUNT_ON_HOLD");
    shop.end().await;
}

#[tokio::test]
async fn whoever_stops_payouts_on_request_stops_the_daily_settlement_too() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    let mut switch = async |on_request: Option<bool>, daily: Option<bool>| {
        let request = SetPayoutSwitchesRequest {
            merchant_id: shop.merchant(),
            payouts_on_request: on_request,
            daily_settlement: daily,
        };
        let switched = shop.world.treasury.set_payout_switches(request).await;
        let account = switched.unwrap().into_inner();
        (account.payouts_on_request, account.daily_settlement)
    };
    assert_eq!(switch(None, Some(true)).await, (true, true));
    assert_eq!(switch(Some(false), None).await, (false, false));
    assert_eq!(switch(Some(false), Some(true)).await, (false, true));
    shop.end().await;
}

#[tokio::test]
async fn operators_decide_who_may_ask_for_payouts() {
    let mtn = Mtn::with_float("1000");
    let settings = [("payouts-on-request-by-default", "false")];
    let mut shop = Shop::open_with(&mtn, &settings).await;
    set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    let refused = shop.pay_out(1_000).await;
    check_refusal(refused, Code::PermissionDenied, "PAYOUTS_NOT_ENABLED");
    shop.end().await;

    let mut shop = Shop::open(&mtn).await;
    let first = set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    let off = SetPayoutSwitchesRequest {
        merchant_id: shop.merchant(),
        payouts_on_request: Some(false),
        daily_settlement: None,
    };
    shop.world.treasury.set_payout_switches(off).await.unwrap();
    let change = SetOwnPayoutAccountRequest {
        updated_at: first.updated_at,
        ..confirmed(asked(&shop, SECOND), "Ama Mensah")
    };
    assert!(!set(&shop, change).await.payouts_on_request);
    let mut switch = SwitchDailySettlementRequest {
        merchant_id: shop.merchant(),
        daily_settlement: true,
    };
    let mut accounts = shop.world.accounts.clone();
    let refused = accounts.switch_daily_settlement(switch.clone()).await;
    check_refusal(refused, Code::PermissionDenied, "PAYOUTS_NOT_ENABLED");
    let on = SetPayoutSwitchesRequest {
        merchant_id: switch.merchant_id.clone(),
        payouts_on_request: Some(true),
        daily_settlement: None,
    };
    shop.world.treasury.set_payout_switches(on).await.unwrap();
    for is_on in [true, true, false] {
        switch.daily_settlement = is_on;
        let switched = accounts.switch_daily_settlement(switch.clone()).await;
        assert_eq!(switched.unwrap().into_inner().daily_settlement, is_on);
        assert_eq!(account(&shop).await.unwrap().daily_settlement, is_on);
    }
    shop.end().await;
}

#[tokio::test]
async fn every_account_that_was_set_is_told_once_whoever_set_it() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    let updates = shop.world.updates.clone();
    updates.refuse_notices(3);
    let first = set(&shop, confirmed(asked(&shop, FIRST), "Ama Mensah")).await;
    until("the first is told", async || {
        shop.world.clock.advance(HOUR / 60).await.unwrap();
        updates.notices().len() == 1
    })
    .await;
    let change = by_operator(&shop, SECOND);
    shop.world
        .treasury
        .set_payout_account(change)
        .await
        .unwrap();
    until("the change is told", async || updates.notices().len() == 2).await;
    let told = updates.notices();
    assert_ne!(told[0].notice_id, told[1].notice_id);
    for notice in &told {
        assert_eq!(notice.kind(), NoticeKind::PayoutAccountSet);
        assert_eq!(notice.merchant_id, shop.merchant());
    }
    assert_eq!(told[0].about, "MTN 024 ••• 4567, MENSAH Ama");
    assert_eq!(told[0].at, first.updated_at);
    let about = "MTN 024 ••• 4568, Ama Mensah, instead of MTN 024 ••• 4567, MENSAH Ama; payouts wait \
                 until ";
    assert!(told[1].about.starts_with(about), "{}", told[1].about);
    assert!(told[1].about.ends_with(" GMT"), "{}", told[1].about);
    shop.end().await;
    assert_eq!(updates.notices().len(), 2, "each once");
}
