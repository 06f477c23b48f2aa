//! The daily settlement: when it pays out, how much, and that it does so once a day.

use std::time::Duration;

use chassis::{
    clock::{Day, Timestamp},
    testing::until,
};
use proto::charges::{DisbursementStatus, Payout, Provider};
use uuid::Uuid;

use crate::{mtn::Mtn, shop::Shop, world::ghs};

const HOUR: Duration = Duration::from_secs(3_600);

/// A shop at noon, so that hours pass within a day whatever time it is now.
async fn open_at_noon(settings: &[(&str, &str)]) -> Shop {
    open_at_noon_with(&Mtn::with_float("1000"), settings).await
}

async fn open_at_noon_with(mtn: &Mtn, settings: &[(&str, &str)]) -> Shop {
    let shop = Shop::open_with(mtn, settings).await;
    let now = shop.world.clock.now();
    let noon = Day::of(now).end() + 12 * HOUR;
    shop.world.clock.advance(noon.since(now)).await.unwrap();
    shop
}

/// Waits until everybody's day has been looked at: one who has just come, with enough for any
/// settings, is settled last.
async fn until_looked_at(shop: &mut Shop) {
    let ours = shop.change_merchant().await;
    for _ in 0..3 {
        shop.collect().await;
    }
    shop.settle_daily().await;
    let a_look = Duration::from_secs(120);
    shop.world.clock.advance(a_look).await.unwrap();
    until("who came last is settled", async || {
        !shop.payouts().await.is_empty() && shop.balance().await.1 == 0
    })
    .await;
    shop.charge = ours;
}

/// The payouts of a shop, the newest first, once they have arrived.
async fn arrived(shop: &Shop) -> Vec<Payout> {
    until("what was paid out has arrived", async || {
        shop.balance().await.1 == 0
    })
    .await;
    let payouts = shop.payouts().await;
    assert!(payouts.iter().all(|payout| payout.scheduled));
    payouts
}

fn day_of(payout: &Payout) -> Day {
    let created_at: Timestamp = payout.created_at.parse().unwrap();
    Day::of(created_at)
}

#[tokio::test]
async fn a_day_is_settled_once_and_the_next_day_pays_what_came_since() {
    let mut shop = open_at_noon(&[]).await;
    shop.settle_daily().await;
    until_looked_at(&mut shop).await;
    assert_eq!(arrived(&shop).await.len(), 1);
    shop.collect().await;
    shop.world.clock.advance(6 * HOUR).await.unwrap();
    until_looked_at(&mut shop).await;
    assert_eq!(arrived(&shop).await.len(), 1, "on the same day");
    assert_eq!(shop.balance().await, (2550, 0));
    shop.world.clock.advance(12 * HOUR).await.unwrap();
    until_looked_at(&mut shop).await;
    let payouts = arrived(&shop).await;
    let amounts: Vec<_> = payouts
        .iter()
        .map(|payout| payout.amount.clone().unwrap())
        .collect();
    assert_eq!(amounts, [ghs(2550), ghs(2550)]);
    assert_eq!(day_of(&payouts[1]).next(), day_of(&payouts[0]));
    assert_eq!(shop.balance().await, (0, 0));
    shop.end().await;
}

#[tokio::test]
async fn it_pays_what_the_reserve_and_the_fee_leave_unless_that_is_below_the_minimum() {
    let (minimum, reserve, fee) = (
        "settlement-minimum",
        "settlement-reserve",
        "payout-fee-momo",
    );
    for (settings, paid, charged, left) in [
        (&[(minimum, "25.50")][..], Some(2550), 0, 0),
        (&[(minimum, "25.51")], None, 0, 2550),
        (&[(reserve, "5.50")], Some(2000), 0, 550),
        (&[(reserve, "15.50")], Some(1000), 0, 1550),
        (&[(reserve, "15.51")], None, 0, 2550),
        (&[(reserve, "40.00")], None, 0, 2550),
        (&[(fee, "0.50")], Some(2500), 50, 0),
        (&[(fee, "0.50"), (minimum, "25.01")], None, 0, 2550),
        (&[(fee, "0.50"), (reserve, "5.00")], Some(2000), 50, 500),
    ] {
        let mut shop = open_at_noon(settings).await;
        shop.settle_daily().await;
        until_looked_at(&mut shop).await;
        let payouts = arrived(&shop).await;
        let found = payouts.iter().map(|payout| payout.amount.clone().unwrap());
        let found: Vec<_> = found.collect();
        let expected: Vec<_> = paid.map(ghs).into_iter().collect();
        assert_eq!(found, expected, "{settings:?}");
        let fees = payouts.iter().filter_map(|payout| payout.fee.clone());
        let fees: i64 = fees.map(|fee| fee.minor_units).sum();
        assert_eq!(fees, charged, "{settings:?}");
        assert_eq!(shop.balance().await, (left, 0), "{settings:?}");
        shop.end().await;
    }
}

#[tokio::test]
async fn who_has_just_changed_the_account_is_settled_the_same_day_once_it_is_free() {
    let mut shop = open_at_noon(&[("payout-account-hold", "2h")]).await;
    shop.enable_payouts_to(Provider::Mtn, "024 123 4568").await;
    shop.settle_daily().await;
    let changed_at = shop.world.clock.now();
    until_looked_at(&mut shop).await;
    assert_eq!(shop.payouts().await, [], "it is held");
    assert_eq!(shop.balance().await, (2550, 0));
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    until_looked_at(&mut shop).await;
    let payouts = arrived(&shop).await;
    assert_eq!(payouts.len(), 1);
    assert_eq!(day_of(&payouts[0]), Day::of(changed_at));
    assert_eq!(shop.balance().await, (0, 0));
    shop.end().await;
}

#[tokio::test]
async fn however_many_cannot_be_settled_the_others_are() {
    let mut shop = open_at_noon(&[]).await;
    shop.enable_payouts().await;
    // As a newer version may have written them: settling them fails.
    let mut tx = shop.world.db.begin().await.unwrap();
    for number in 1..=250 {
        tx.sql(
            "insert into payout_accounts
             select $1, destination_type, 'NEWER', account, holder_name, rail_holder_name,
                 payouts_on_request, true, held_until, updated_at
             from payout_accounts where provider = 'MTN'",
        )
        .bind(Uuid::from_u128(number))
        .run()
        .await
        .unwrap();
    }
    tx.commit().await.unwrap();
    shop.settle_daily().await;
    until_looked_at(&mut shop).await;
    assert_eq!(arrived(&shop).await.len(), 1);
    shop.end().await;
}

/// What is collected meanwhile would be there for a second payout.
#[tokio::test]
async fn two_replicas_that_settle_a_day_at_once_pay_each_merchant_once() {
    let mut shop = open_at_noon(&[]).await;
    let replica = shop.world.replica().await;
    let mut merchants = Vec::new();
    for _ in 0..8 {
        shop.settle_daily().await;
        merchants.push(shop.change_merchant().await);
    }
    let last = shop.charge.clone();
    let a_look = Duration::from_secs(120);
    shop.world.clock.advance(a_look).await.unwrap();
    for charge in &merchants {
        shop.charge = charge.clone();
        until("it is settled", async || !shop.payouts().await.is_empty()).await;
        shop.collect().await;
    }
    // Each of them may be the one that looks.
    for _ in 0..2 {
        until_looked_at(&mut shop).await;
    }
    for charge in merchants {
        shop.charge = charge;
        assert_eq!(arrived(&shop).await.len(), 1);
        assert_eq!(shop.balance().await, (2550, 0));
    }
    shop.charge = last;
    replica.stop().await;
    shop.end().await;
}

/// A person decides who bears it, and could not any more once it is paid out.
#[tokio::test]
async fn what_a_merchant_has_twice_is_not_paid_out_before_a_person_has_decided() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("FAILED", Some("COULD_NOT_PERFORM_TRANSACTION"));
    let mut shop = open_at_noon_with(&mtn, &[]).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Failed).await;
    mtn.ends("SUCCESSFUL", None);
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    until("a person is asked", async || {
        shop.open_cases().await.len() == 1
    })
    .await;
    shop.settle_daily().await;
    until_looked_at(&mut shop).await;
    until("the rest has arrived", async || {
        shop.balance().await == (1000, 0)
    })
    .await;
    shop.end().await;
}
