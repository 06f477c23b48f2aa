//! The customer directory.

use std::time::Duration;

use chassis::testing::check_invalid;
use proto::sessions::{
    CreateSessionRequest, Customer, ListCustomersRequest, Payer, Session, SessionStatus,
};
use tokio::task::JoinSet;

use crate::world::{Charge, HOUR, World, create_persistently, record_persistently};

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
        merchant_id: chassis::ids::MerchantId::new().to_string(),
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
async fn customers_are_listed_last_paid_first_page_by_page() {
    let mut world = World::start().await;
    let phone = |number| format!("+23324000000{number}");
    for number in 0..7 {
        world.hosted_for(payer(&phone(number), "", "")).await;
        world.advance(Duration::from_secs(1)).await;
    }
    for number in [4, 2, 4] {
        let charge = world.charge_of(payer(&phone(number), "", ""));
        world.recorded(charge.settled(2)).await;
        world.advance(HOUR).await;
    }
    // A payment from before the others, reported last.
    let mut early = world.charge_of(payer(&phone(2), "", ""));
    early.at = early.at - 24 * HOUR;
    world.recorded(early.settled(2)).await;

    let mut request = ListCustomersRequest {
        merchant_id: world.merchant.clone(),
        page_size: 3,
        page_token: String::new(),
    };
    let mut pages: Vec<Vec<_>> = Vec::new();
    loop {
        let page = world
            .client
            .list_customers(request.clone())
            .await
            .unwrap()
            .into_inner();
        let customers = page.customers.into_iter();
        pages.push(
            customers
                .map(|c| (c.phone.unwrap(), c.payments_count))
                .collect(),
        );
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    let expected = [
        vec![(4, 2), (2, 2), (6, 0)],
        vec![(5, 0), (3, 0), (1, 0)],
        vec![(0, 0)],
    ];
    let expected = expected.map(|page| {
        page.into_iter()
            .map(|(n, count)| (phone(n), count))
            .collect::<Vec<_>>()
    });
    assert_eq!(pages, expected);

    for token in [
        "x",
        "1.2",
        "1.2.3",
        "1.x.CUS-0123456789",
        "99999999999999999999.1.CUS-0123456789",
    ] {
        let request = ListCustomersRequest {
            page_token: token.to_owned(),
            ..request.clone()
        };
        check_invalid(world.client.list_customers(request).await, "page_token");
    }
    let request = ListCustomersRequest {
        page_size: 101,
        ..request
    };
    check_invalid(world.client.list_customers(request).await, "page_size");
    world.end().await;
}
