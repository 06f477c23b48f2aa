//! How networks do, by the charges of all merchants, without telling of any one of them.

use std::time::Duration;

use charges_svc::charge::{Charge, Event};
use chassis::{failure::FailureReason, ids::MerchantId};
use proto::charges::{NetworkWeather, Provider as ProtoProvider, ReadWeatherRequest, Weather};

use crate::world::{World, new_momo_charge};

const MINUTE: Duration = Duration::from_secs(60);

const SETTLED: [Event; 2] = [Event::Accepted, Event::Settled];
const DECLINED: [Event; 2] = [Event::Accepted, Event::Failed(FailureReason::PayerDeclined)];

async fn mtn(world: &World) -> NetworkWeather {
    let mut figures = world.figures.clone();
    let read = figures.read_weather(ReadWeatherRequest {}).await;
    let networks = read.unwrap().into_inner().networks;
    assert_eq!(networks.len(), 3);
    for network in &networks {
        if network.provider() != ProtoProvider::Mtn {
            assert_eq!(network.weather(), Weather::TooFew);
            assert_eq!(network.succeeded_percent, None);
        }
    }
    let mut of_mtn = networks.into_iter();
    of_mtn
        .find(|network| network.provider() == ProtoProvider::Mtn)
        .unwrap()
}

/// Seven charges of each of these merchants, a quarter of an hour old.
async fn charge(world: &World, merchants: &[MerchantId], events: &[Event]) {
    for merchant_id in merchants {
        for _ in 0..7 {
            let mut charge: Charge = new_momo_charge(world.clock.now() - MINUTE * 15);
            charge.facts_mut().merchant_id = *merchant_id;
            world.given(charge, events).await;
        }
    }
}

#[tokio::test]
async fn a_networks_weather_is_told_from_enough_charges_of_enough_merchants() {
    let world = World::start().await;
    let [ama, kofi, esi] = [MerchantId::new(), MerchantId::new(), MerchantId::new()];
    charge(&world, &[ama, kofi], &SETTLED).await;
    let few = mtn(&world).await;
    assert_eq!(few.weather(), Weather::TooFew);
    let numbers = (few.succeeded_percent, few.median_seconds);
    assert_eq!(numbers, (None, None), "they would be of two");
    assert_eq!((few.waiting_percent, few.oldest_minutes), (None, None));

    charge(&world, &[esi], &SETTLED).await;
    assert_eq!(mtn(&world).await.weather(), Weather::TooFew, "just told");
    world.clock.advance(MINUTE).await.unwrap();
    let fine = mtn(&world).await;
    assert_eq!(fine.weather(), Weather::AsUsual);
    assert_eq!(fine.succeeded_percent, Some(100));
    assert_eq!(fine.median_seconds, Some(0));
    assert_eq!((fine.waiting_percent, fine.oldest_minutes), (Some(0), None));

    // Void ones were never sent.
    charge(&world, &[ama, kofi, esi], &[Event::Withdrawn]).await;
    charge(&world, &[ama, kofi, esi], &DECLINED).await;
    world.clock.advance(MINUTE).await.unwrap();
    let half = mtn(&world).await;
    assert_eq!(half.weather(), Weather::AsUsual, "nothing is known before");
    assert_eq!(half.succeeded_percent, Some(50));
    world.end().await;
}

#[tokio::test]
async fn what_nobody_hears_of_is_slow() {
    let world = World::start().await;
    let merchants = [MerchantId::new(), MerchantId::new(), MerchantId::new()];
    charge(&world, &merchants, &SETTLED).await;
    charge(&world, &merchants, &[Event::Accepted, Event::CodeWanted]).await;
    let slow = mtn(&world).await;
    assert_eq!(slow.weather(), Weather::Slower);
    assert_eq!(slow.succeeded_percent, Some(100));
    assert_eq!(slow.waiting_percent, Some(50));
    assert_eq!(slow.oldest_minutes, Some(15));
    world.end().await;
}
