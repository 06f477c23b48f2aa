//! The customer directory.

use std::time::Duration;

use chassis::ids::MerchantId;
use proto::sessions::{CreateSessionRequest, Customer, Payer, Session, SessionStatus};
use tokio::{task::JoinSet, time::timeout};

use crate::world::{Charge, World, create_persistently, record_persistently};

const AMA: &str = "+233241234567";
const KOFI: &str = "+233201234567";

/// Empty strings mean absent values.
fn payer(phone: &str, email: &str, name: &str) -> Payer {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Payer {
        phone: given(phone),
        email: given(email),
        name: given(name),
    }
}

/// What is known of each, in the order of the list.
fn known(customers: &[Customer]) -> Vec<(&str, &str, &str, u32)> {
    let text =
        |text: &'_ Option<String>| text.as_deref().unwrap_or_default().to_owned().leak() as &str;
    customers
        .iter()
        .map(|customer| {
            let Customer {
                phone,
                email,
                name,
                payments_count,
                ..
            } = customer;
            (text(phone), text(email), text(name), *payments_count)
        })
        .collect()
}

impl World {
    async fn hosted_for(&self, payer: Payer) -> Session {
        let request = CreateSessionRequest {
            payer: Some(payer),
            ..self.request("USD", 2_550)
        };
        self.create(request).await.unwrap().session.unwrap()
    }

    fn charge_of(&self, payer: Payer) -> Charge {
        let mut charge = self.direct_charge();
        charge.payer = Some(payer);
        charge
    }
}

#[tokio::test]
async fn a_sessions_payer_is_a_customer_at_once_and_counts_when_it_has_paid() {
    let mut world = World::start().await;
    let session = world.hosted_for(payer(AMA, "ama@example.com", "Ama")).await;
    let [customer] = world.customers().await.try_into().unwrap();
    assert!(customer.customer_id.starts_with("CUS-"));
    assert_eq!(customer.created_at, session.created_at);
    assert_eq!(customer.last_payment_at, None);
    assert_eq!(
        known(std::slice::from_ref(&customer)),
        [(AMA, "ama@example.com", "Ama", 0)]
    );

    let mut charge = world.hosted_charge(&session, 1);
    // Another wallet pays than the merchant expected.
    charge.payer = Some(payer(KOFI, "", ""));
    world.recorded(charge.open()).await;
    assert_eq!(world.customers().await, std::slice::from_ref(&customer));
    world.recorded(charge.settled(2)).await;
    world.recorded(charge.settled(2)).await;
    world.recorded(charge.settled(3)).await;
    let [paid] = world.customers().await.try_into().unwrap();
    let settled_at = charge.at + Duration::from_secs(2);
    assert_eq!(paid.last_payment_at, Some(settled_at.to_string()));
    assert_eq!(known(&[paid]), [(AMA, "ama@example.com", "Ama", 1)]);
    world.end().await;
}

#[tokio::test]
async fn who_gave_nothing_to_be_recognised_by_is_known_by_the_wallet_that_paid() {
    let mut world = World::start().await;
    world.hosted_for(Payer::default()).await;
    let session = world.hosted_for(payer("", "", "Ama")).await;
    assert_eq!(world.customers().await, []);
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.open()).await;
    world.recorded(charge.settled(2)).await;
    assert_eq!(known(&world.customers().await), [(AMA, "", "Ama", 1)]);
    world.end().await;
}

#[tokio::test]
async fn a_charge_adds_its_payer_only_once_it_has_settled() {
    let mut world = World::start().await;
    let failing = world.charge_of(payer(KOFI, "kofi@example.com", "Kofi"));
    world.recorded(failing.open()).await;
    world.recorded(failing.failed(2)).await;
    let charge = world.charge_of(payer(AMA, "ama@example.com", "Ama"));
    world.recorded(charge.open()).await;
    assert_eq!(world.customers().await, []);
    for _ in 0..3 {
        world.recorded(charge.settled(2)).await;
    }
    assert_eq!(
        known(&world.customers().await),
        [(AMA, "ama@example.com", "Ama", 1)]
    );
    let mut again = world.charge_of(payer("", "", "Ama Mensah"));
    again.direct.as_mut().unwrap().payer = Some(payer(AMA, "", "Ama"));
    world.recorded(again.settled(2)).await;
    assert_eq!(
        known(&world.customers().await),
        [(AMA, "ama@example.com", "Ama Mensah", 2)]
    );
    world.end().await;
}

#[tokio::test]
async fn the_phone_is_matched_first_then_the_email_and_nothing_is_merged() {
    let mut world = World::start().await;
    world.hosted_for(payer("", "Ama@Example.com", "Ama")).await;
    world.hosted_for(payer("", "ama@example.COM", "")).await;
    assert_eq!(
        known(&world.customers().await),
        [("", "Ama@Example.com", "Ama", 0)]
    );
    world.hosted_for(payer(AMA, "ama@example.com", "")).await;
    assert_eq!(
        known(&world.customers().await),
        [(AMA, "Ama@Example.com", "Ama", 0)]
    );

    world.hosted_for(payer(KOFI, "", "Kofi")).await;
    let session = world.hosted_for(payer(KOFI, "AMA@example.com", "")).await;
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.settled(2)).await;
    let two = [(KOFI, "", "Kofi", 1), (AMA, "Ama@Example.com", "Ama", 0)];
    assert_eq!(known(&world.customers().await), two);

    world
        .hosted_for(payer("+442079460958", "ama@example.com", ""))
        .await;
    world.hosted_for(payer(AMA, "other@example.com", "")).await;
    assert_eq!(
        known(&world.customers().await),
        two,
        "what identifies is never replaced"
    );
    world.end().await;
}

#[tokio::test]
async fn a_directory_is_its_merchants_own() {
    let mut world = World::start().await;
    world.hosted_for(payer(AMA, "", "Ama")).await;
    let other = CreateSessionRequest {
        merchant_id: MerchantId::new().to_string(),
        payer: Some(payer(AMA, "", "Efua")),
        ..world.request("USD", 1)
    };
    let merchant_id = other.merchant_id.clone();
    world.create(other).await.unwrap();
    assert_eq!(known(&world.customers().await), [(AMA, "", "Ama", 0)]);
    world.merchant = merchant_id;
    assert_eq!(known(&world.customers().await), [(AMA, "", "Efua", 0)]);
    world.end().await;
}

#[tokio::test]
async fn one_payer_in_fifty_parallel_payments_is_one_customer_who_paid_fifty_times() {
    let mut world = World::start().await;
    let mut racing = JoinSet::new();
    for _ in 0..50 {
        let charge = world.charge_of(payer(AMA, "ama@example.com", "Ama"));
        let recording = record_persistently(world.client.clone(), charge.settled(2));
        racing.spawn(async move {
            let answer = recording.await;
            assert_eq!(answer.session_status(), SessionStatus::Completed);
        });
    }
    racing.join_all().await;
    assert_eq!(
        known(&world.customers().await),
        [(AMA, "ama@example.com", "Ama", 50)]
    );
    world.end().await;
}

#[tokio::test]
async fn phones_and_emails_stay_unique_whoever_comes_first() {
    let mut world = World::start().await;
    let mut racing = JoinSet::new();
    let payers = [
        payer(AMA, "", ""),
        payer("", "ama@example.com", ""),
        payer(AMA, "AMA@example.com", "Ama"),
        payer(KOFI, "ama@example.com", ""),
    ];
    for round in 0..40 {
        let request = CreateSessionRequest {
            payer: Some(payers[round % payers.len()].clone()),
            ..world.request("USD", 1)
        };
        racing.spawn(create_persistently(world.client.clone(), request));
    }
    racing.join_all().await;
    let customers = world.customers().await;
    let with = |phone: &str| {
        customers
            .iter()
            .filter(|c| c.phone.as_deref() == Some(phone))
            .count()
    };
    let with_email = customers.iter().filter(|c| c.email.is_some()).count();
    assert_eq!((with(AMA), with_email), (1, 1), "{:?}", known(&customers));
    assert!(
        with(KOFI) <= 1 && customers.len() <= 3,
        "{:?}",
        known(&customers)
    );
    world.end().await;
}

#[tokio::test]
async fn a_customer_named_without_a_phone_learns_the_wallet_that_paid() {
    let mut world = World::start().await;
    let session = world.hosted_for(payer("", "ama@example.com", "")).await;
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.open()).await;
    world.recorded(charge.failed(2)).await;
    let unpaid = [("", "ama@example.com", "", 0)];
    assert_eq!(known(&world.customers().await), unpaid, "nobody paid");
    let mut charge = world.hosted_charge(&session, 2);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.settled(2)).await;
    let learned = [(AMA, "ama@example.com", "", 1)];
    assert_eq!(known(&world.customers().await), learned);
    // Another wallet later.
    let session = world.hosted_for(payer("", "ama@example.com", "")).await;
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(KOFI, "", ""));
    world.recorded(charge.settled(2)).await;
    let kept = [(AMA, "ama@example.com", "", 2)];
    assert_eq!(known(&world.customers().await), kept);
    world.end().await;
}

#[tokio::test]
async fn a_wallet_that_another_customer_has_is_not_learned() {
    let mut world = World::start().await;
    world.hosted_for(payer(AMA, "", "Ama")).await;
    world.advance(Duration::from_secs(1)).await;
    let session = world.hosted_for(payer("", "kofi@example.com", "")).await;
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.settled(2)).await;
    let two = [("", "kofi@example.com", "", 1), (AMA, "", "Ama", 0)];
    assert_eq!(known(&world.customers().await), two);
    world.end().await;
}

/// Only PostgreSQL locks rows.
#[tokio::test]
async fn who_can_never_learn_a_wallet_waits_for_nobody_who_changes_the_directory() {
    let world = World::start().await;
    if !world.db.is_postgres() {
        return world.end().await;
    }
    world.hosted_for(payer(AMA, "", "Ama")).await;
    let session = world.hosted_for(payer("", "kofi@example.com", "")).await;
    let mut charge = world.hosted_charge(&session, 1);
    charge.payer = Some(payer(AMA, "", ""));
    world.recorded(charge.open()).await;
    let merchant: MerchantId = world.merchant.parse().unwrap();
    let mut changing = world.db.begin().await.unwrap();
    let locked = changing
        .sql("select merchant_id from directories where merchant_id = $1 for no key update")
        .bind(merchant);
    let _locked: (MerchantId,) = locked.one().await.unwrap();
    let recorded = world.recorded(charge.settled(2));
    let in_time = timeout(Duration::from_secs(20), recorded).await;
    in_time.expect("recorded while somebody changes the directory");
    changing.commit().await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn one_wallet_that_pays_for_many_at_once_is_learned_by_one_of_each_merchant() {
    let mut world = World::start().await;
    let mut charges = Vec::new();
    let other = chassis::ids::MerchantId::new().to_string();
    let ours = world.merchant.clone();
    for merchant in [&ours, &other] {
        world.merchant.clone_from(merchant);
        for number in 0..20 {
            let email = format!("payer-{number}@example.com");
            let session = world.hosted_for(payer("", &email, "")).await;
            let mut charge = world.hosted_charge(&session, 1);
            charge.payer = Some(payer(AMA, "", ""));
            charges.push(charge);
        }
    }
    let mut racing = JoinSet::new();
    for charge in charges {
        racing.spawn(record_persistently(world.client.clone(), charge.settled(2)));
    }
    racing.join_all().await;
    for merchant in [ours, other] {
        world.merchant = merchant;
        let customers = world.customers().await;
        let paid: u32 = customers.iter().map(|one| one.payments_count).sum();
        let learned = customers.iter().filter(|one| one.phone.is_some()).count();
        assert_eq!((customers.len(), paid, learned), (20, 20, 1));
    }
    world.end().await;
}
