//! What is measured of charges and disbursements that have not ended.

use std::time::Duration;

use charges_svc::{
    case::CaseKind,
    charge::Event,
    disbursement::{Destination, Disbursement},
    store,
};
use chassis::money::{Currency, Money};
use db::Insert;
use proto::charges::{DestinationType, Provider, SetPayoutAccountRequest};
use rails::RailName;

use crate::{
    cases::given_case,
    mtn::Mtn,
    shop::Shop,
    world::{World, new_momo_charge},
};

const MANY: i64 = 100;

/// Otherwise one that waits for a person for days hides that no other ends either.
#[tokio::test]
async fn the_oldest_charge_is_one_that_waits_for_no_person() {
    let world = World::start().await;
    let begun = world.clock.now();
    for age in [30, 20] {
        let charge = new_momo_charge(begun - Duration::from_secs(age));
        let charge = world.given(charge, &[Event::Accepted]).await;
        if age == 30 {
            given_case(&world, &charge, CaseKind::Mismatch, None).await;
        }
    }
    let mut conn = world.db.read().await.unwrap();
    let backlog = store::charges::backlog(&mut conn, MANY).await.unwrap();
    assert_eq!(backlog.count, 2);
    assert_eq!(backlog.oldest, Some(begun - Duration::from_secs(20)));
    drop(conn);
    world.end().await;
}

#[tokio::test]
async fn a_payout_that_a_change_of_its_account_holds_is_not_late() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let account = SetPayoutAccountRequest {
        merchant_id: shop.merchant(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: "0241234568".to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    };
    let treasury = &mut shop.world.treasury;
    treasury.set_payout_account(account).await.unwrap();
    let (now, merchant_id) = (shop.world.clock.now(), shop.charge.facts.merchant_id);
    let (amount, to) = (Money::new(1_000, Currency::GHS), Destination::default());
    let payout = Disbursement::payout(merchant_id, amount, to, RailName::Momo, false, now);
    let mut tx = shop.world.db.begin().await.unwrap();
    let inserted = store::disbursements::insert(&mut tx, &payout).await;
    assert_eq!(inserted.unwrap(), Insert::Inserted);
    for (at, late_since) in [(now, None), (now + Duration::from_hours(25), Some(now))] {
        let backlog = store::disbursements::backlog(&mut tx, MANY, at).await;
        let backlog = backlog.unwrap();
        assert_eq!((backlog.count, backlog.oldest), (1, late_since));
    }
    drop(tx);
    shop.end().await;
}
