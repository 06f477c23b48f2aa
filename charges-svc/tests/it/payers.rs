//! Charges of one payer, by the address that was given and by the number that was debited.

use std::time::Duration;

use charges_svc::charge::{Charge, Event};
use chassis::{ids::MerchantId, testing::check_invalid};
use proto::charges::{ChargeStatus, ListChargesRequest, SoughtPayer};

use crate::{
    lists::{of, references},
    world::{World, new_charge},
};

fn of_payer(email: &str, phone: Option<&str>) -> Option<SoughtPayer> {
    Some(SoughtPayer {
        email: email.to_owned(),
        phone: phone.map(str::to_owned),
    })
}

#[tokio::test]
async fn one_payers_charges_are_found_by_their_address_and_by_their_number() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let (ama, kofi) = ("+233241234567", "+233201234567");
    let mut given = Vec::new();
    for (age, phone, email, event) in [
        (1, ama, Some("Ama@Example.com"), Event::Settled),
        (2, ama, None, Event::Settled),
        (3, kofi, Some("ama@example.com"), Event::Settled),
        (4, kofi, Some("kofi@example.com"), Event::Settled),
        (5, ama, Some("kofi@example.com"), Event::Settled),
        (6, kofi, Some("AMA@EXAMPLE.COM"), Event::Settled),
    ] {
        let mut charge = new_charge(world.clock.now() - Duration::from_secs(age));
        charge.facts_mut().merchant_id = merchant;
        charge.facts_mut().phone = phone.parse().unwrap();
        charge.facts_mut().payer_email = email.map(str::to_owned);
        given.push(world.given(charge, &[Event::Accepted, event]).await);
    }
    let at =
        |places: &[usize]| -> Vec<&Charge> { places.iter().map(|place| &given[*place]).collect() };
    let sought = |email, phone| ListChargesRequest {
        payer: of_payer(email, phone),
        ..of(merchant)
    };
    let settled = |request| ListChargesRequest {
        status: ChargeStatus::Settled.into(),
        ..request
    };
    for (email, phone, places) in [
        ("AMA@example.com", None, &[0, 2, 5][..]),
        ("ama@example.com", Some(ama), &[0, 1, 2, 4, 5]),
        ("nobody@example.com", Some(ama), &[0, 1, 4]),
        ("nobody@example.com", None, &[]),
        ("ma@example.com", None, &[]),
    ] {
        let request = sought(email, phone);
        world.check_found(request.clone(), &at(places)).await;
        world
            .check_found(settled(request.clone()), &at(places))
            .await;
        let reference = ListChargesRequest {
            reference: Some(given[0].facts.reference.to_string()),
            ..request.clone()
        };
        let found: Vec<usize> = places.iter().copied().filter(|place| *place == 0).collect();
        world.check_found(reference, &at(&found)).await;
        for page_size in 1..=6 {
            let mut request = ListChargesRequest {
                page_size,
                ..request.clone()
            };
            let mut listed = Vec::new();
            loop {
                let (page, next) = world.listed(request.clone()).await;
                assert!(page.len() <= page_size as usize);
                assert!(next.is_empty() || page.len() == page_size as usize);
                listed.extend(page);
                request.page_token = next;
                if request.page_token.is_empty() {
                    break;
                }
            }
            assert_eq!(listed, references(&at(places)), "{email} by {page_size}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn what_a_payer_cannot_be_known_by_is_named() {
    let world = World::start().await;
    for (payer, field) in [
        (of_payer("", None), "payer.email"),
        (of_payer("ama@example.com", Some("024")), "payer.phone"),
    ] {
        let request = ListChargesRequest {
            payer,
            ..of(MerchantId::new())
        };
        check_invalid(world.charges.clone().list_charges(request).await, field);
    }
    world.end().await;
}
