//! A merchant's figures, which are those of its lists.

use std::{collections::BTreeMap, time::Duration};

use charges_svc::{
    asked_by::AskedBy,
    charge::{Charge, Event, NewCharge},
};
use chassis::{
    clock::{Day, Timestamp},
    failure::FailureReason,
    ids::MerchantId,
    money::{Currency, Money},
    provider::Provider,
    testing::{check_invalid, until},
};
use proto::charges::{
    ChargeStatus, Figures, ListChargesRequest, ReadFiguresRequest, ResolveChargeRequest,
    resolve_charge_request::Outcome,
};
use rails::RailName;

use crate::world::{World, timing};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Day, provider, status, reason and currency, and then how many and how much.
type Counts = BTreeMap<(String, i32, i32, String, String), (u64, i64)>;

fn charge(merchant: MerchantId, provider: Provider, amount: Money, at: Timestamp) -> Charge {
    let new = NewCharge {
        merchant_id: merchant,
        merchant_name: "Ama's Shop".to_owned(),
        amount,
        phone: "+233201234002".parse().unwrap(),
        provider,
        description: None,
        payer_email: None,
        payer_name: None,
        hosted: None,
        asked_by: AskedBy::default(),
    };
    let rail = match provider {
        Provider::Mtn => RailName::Momo,
        Provider::Telecel | Provider::At => RailName::Paystack,
    };
    Charge::new(&new, rail, at, timing())
}

fn ghs(minor: i64) -> Money {
    Money::new(minor, Currency::GHS)
}

impl World {
    async fn figures(&self, merchant: MerchantId) -> Figures {
        let request = ReadFiguresRequest {
            merchant_id: merchant.to_string(),
        };
        let figures = self.figures.clone().read_figures(request).await;
        figures.unwrap().into_inner()
    }

    /// What the list of each of these days comes to.
    async fn tallied(&self, merchant: MerchantId, days: &[String]) -> Counts {
        let mut counts = Counts::new();
        for day in days {
            let mut request = ListChargesRequest {
                merchant_id: merchant.to_string(),
                page_size: 3,
                from: format!("{day}T00:00:00.000Z"),
                to: day.parse::<Day>().unwrap().end().to_string(),
                ..ListChargesRequest::default()
            };
            loop {
                let page = self.charges.clone().list_charges(request.clone()).await;
                let page = page.unwrap().into_inner();
                for charge in page.charges.into_iter().filter_map(|listed| listed.charge) {
                    let amount = charge.amount.unwrap();
                    let kind = (
                        day.clone(),
                        charge.provider,
                        charge.status,
                        charge.failure_reason.unwrap_or_default(),
                        amount.currency,
                    );
                    let sum = counts.entry(kind).or_default();
                    *sum = (sum.0 + 1, sum.1 + amount.minor_units);
                }
                request.page_token = page.next_page_token;
                if request.page_token.is_empty() {
                    break;
                }
            }
        }
        counts
    }

    /// Checks that the figures are those of the lists, and returns them.
    async fn check_figures(&self, merchant: MerchantId) -> (Figures, Counts) {
        let figures = self.figures(merchant).await;
        assert_eq!(figures.days.len(), 7);
        let today = Day::of(self.clock.now()).to_string();
        assert_eq!(figures.days.last(), Some(&today));
        let counts = figures.counts.iter().cloned().map(|count| {
            let amount = count.amount.unwrap();
            let reason = count.failure_reason.unwrap_or_default();
            let kind = (
                count.day,
                count.provider,
                count.status,
                reason,
                amount.currency,
            );
            (kind, (count.charges, amount.minor_units))
        });
        let counts: Counts = counts.collect();
        assert_eq!(counts.len(), figures.counts.len(), "{figures:?}");
        assert_eq!(counts, self.tallied(merchant, &figures.days).await);
        (figures, counts)
    }

    /// Moves the clock until what was recorded so far is counted by the hour.
    async fn count_hours(&self) {
        let began = self.clock.now();
        self.clock.advance(HOUR + HOUR / 4).await.unwrap();
        until("the hours are counted", async || {
            let mut conn = self.db.read().await.unwrap();
            let done = conn.sql("select until from charge_hours_done");
            let (done,) = done.one::<(Timestamp,)>().await.unwrap();
            done >= began
        })
        .await;
    }

    async fn open_hours(&self) -> i64 {
        let mut conn = self.db.read().await.unwrap();
        let open =
            conn.sql("select count(*) from charge_hours where state not in ('SETTLED', 'FAILED')");
        open.one::<(i64,)>().await.unwrap().0
    }
}

/// A merchant's week.
struct Week {
    merchant: MerchantId,
    now: Timestamp,
    /// Of the day before yesterday.
    midnight: Timestamp,
    /// With which the figures begin.
    oldest: Timestamp,
    /// Of that day.
    open: Charge,
}

const MOMENT: Duration = Duration::from_millis(1);

impl Week {
    async fn write(world: &World) -> Self {
        let merchant = MerchantId::new();
        let now = world.clock.now();
        let (midnight, oldest) = (Day::of(now - DAY * 2).end(), Day::of(now - DAY * 7).end());
        let (mtn, telecel, at) = (Provider::Mtn, Provider::Telecel, Provider::At);
        let settled = [Event::Accepted, Event::Settled];
        let declined = [Event::Accepted, Event::Failed(FailureReason::PayerDeclined)];
        let wrong_pin = [Event::Accepted, Event::Failed(FailureReason::InvalidPin)];
        let usd = Money::new(7, "USD".parse().unwrap());
        for (provider, amount, when, events) in [
            (mtn, ghs(1), midnight, settled),
            (mtn, ghs(20), midnight - MOMENT, settled),
            (mtn, ghs(300), oldest, settled),
            (mtn, ghs(4_000), oldest - MOMENT, settled),
            (telecel, ghs(50_000), midnight + HOUR, settled),
            (telecel, usd, midnight + HOUR, settled),
            (at, ghs(9), midnight + HOUR, declined),
            (at, ghs(9), midnight + HOUR, declined),
            (at, ghs(9), midnight + HOUR, wrong_pin),
        ] {
            let written = charge(merchant, provider, amount, when);
            world.given(written, &events).await;
        }
        let void = charge(merchant, mtn, ghs(11), midnight);
        world.given(void, &[Event::Withdrawn]).await;
        let fresh = charge(merchant, telecel, ghs(13), now);
        world.given(fresh, &[Event::Accepted]).await;
        let open = charge(merchant, telecel, ghs(600_000), midnight + HOUR);
        Self {
            merchant,
            now,
            midnight,
            oldest,
            open: world.given(open, &[Event::Accepted]).await,
        }
    }
}

#[tokio::test]
async fn charges_count_on_the_day_on_which_they_were_created() {
    let world = World::start().await;
    let week = Week::write(&world).await;
    Week::write(&world).await;
    let (figures, counts) = world.check_figures(week.merchant).await;
    assert_eq!(figures.waiting, 1, "and not the fresh one");
    let all: u64 = counts.values().map(|(charges, _)| charges).sum();
    assert_eq!(all, 10);
    let Week {
        now,
        midnight,
        oldest,
        ..
    } = week;
    for (day, provider, status, reason, currency, count) in [
        (midnight, 1, 4, "", "GHS", (1, 1)),
        (midnight - MOMENT, 1, 4, "", "GHS", (1, 20)),
        (oldest, 1, 4, "", "GHS", (1, 300)),
        (midnight, 2, 4, "", "GHS", (1, 50_000)),
        (midnight, 2, 4, "", "USD", (1, 7)),
        (midnight, 3, 3, "PAYER_DECLINED", "GHS", (2, 18)),
        (midnight, 3, 3, "INVALID_PIN", "GHS", (1, 9)),
        (midnight, 2, 1, "", "GHS", (1, 600_000)),
        (now, 2, 1, "", "GHS", (1, 13)),
    ] {
        let (reason, currency) = (reason.to_owned(), currency.to_owned());
        let kind = (Day::of(day).to_string(), provider, status, reason, currency);
        assert_eq!(counts.get(&kind), Some(&count), "{kind:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn figures_stay_those_of_the_lists_once_they_are_counted_by_the_hour() {
    let world = World::start().await;
    let week = Week::write(&world).await;
    let other = Week::write(&world).await;
    world.count_hours().await;
    assert_eq!(world.open_hours().await, 4);
    let (counted, _) = world.check_figures(week.merchant).await;
    assert_eq!(counted.waiting, 2);
    world.check_figures(other.merchant).await;

    // Settled late: on the day on which it was created, and at once.
    let resolve = ResolveChargeRequest {
        reference: week.open.facts.reference.to_string(),
        outcome: Some(Outcome::Settled(true)),
        evidence: "seen in the network's portal".to_owned(),
    };
    let mut operations = world.operations.clone();
    operations.resolve_charge(resolve).await.unwrap();
    let (_, settled) = world.check_figures(week.merchant).await;
    let day = Day::of(week.midnight).to_string();
    let kind = (day, 2, 4, String::new(), "GHS".to_owned());
    assert_eq!(settled.get(&kind), Some(&(2, 650_000)));

    // And still so once its hour is counted again.
    world.clock.advance(Duration::from_secs(61)).await.unwrap();
    until("the hour is counted again", async || {
        world.open_hours().await == 3
    })
    .await;
    let (_, again) = world.check_figures(week.merchant).await;
    assert_eq!(again.get(&kind), Some(&(2, 650_000)));
    world.check_figures(other.merchant).await;
    world.end().await;
}

/// Whatever its age, and whether a code is missing or an approval.
#[tokio::test]
async fn what_waits_is_what_is_listed_as_open() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let now = world.clock.now();
    let minutes = |count: u32| Duration::from_secs(60) * count;
    let (accepted, settled) = ([Event::Accepted], [Event::Accepted, Event::Settled]);
    let mut waiting = Vec::new();
    for (whose, age, events, waits) in [
        (merchant, DAY * 40, &accepted[..], true),
        (merchant, DAY * 8, &accepted, true),
        (merchant, HOUR, &accepted, true),
        (merchant, minutes(7), &[], true),
        (merchant, minutes(6), &[Event::CodeWanted], true),
        (merchant, minutes(4), &accepted, false),
        (merchant, minutes(4), &[Event::CodeWanted], false),
        (merchant, DAY * 8, &settled, false),
        (merchant, HOUR, &settled, false),
        (merchant, HOUR, &[Event::Withdrawn], false),
        (MerchantId::new(), HOUR, &accepted, false),
    ] {
        let written = charge(whose, Provider::Telecel, ghs(100), now - age);
        let written = world.given(written, events).await;
        if waits {
            waiting.insert(0, written.facts.reference.to_string());
        }
    }
    let mut request = ListChargesRequest {
        merchant_id: merchant.to_string(),
        page_size: 2,
        to: (now - minutes(5)).to_string(),
        is_open: true,
        ..ListChargesRequest::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = world.charges.clone().list_charges(request.clone()).await;
        let page = page.unwrap().into_inner();
        let charges = page.charges.into_iter().filter_map(|listed| listed.charge);
        listed.extend(charges.map(|charge| charge.reference));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, waiting);
    assert_eq!(world.figures(merchant).await.waiting, 5);
    for (status, count) in [(ChargeStatus::OtpRequired, 1), (ChargeStatus::Initiated, 4)] {
        let request = ListChargesRequest {
            page_size: 100,
            page_token: String::new(),
            status: status.into(),
            ..request.clone()
        };
        let page = world.charges.clone().list_charges(request).await.unwrap();
        assert_eq!(page.into_inner().charges.len(), count, "{status:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_counted_by_the_hour_is_taken_as_it_is() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let at = world.clock.now() - HOUR * 3;
    let paid = charge(merchant, Provider::Mtn, ghs(100), at);
    world.given(paid, &[Event::Accepted, Event::Settled]).await;
    world.count_hours().await;
    let mut tx = world.db.begin().await.unwrap();
    let forged = tx.sql("update charge_hours set charges = 5, amount_minor = 500");
    forged.run().await.unwrap();
    tx.commit().await.unwrap();
    let figures = world.figures(merchant).await;
    let [count] = figures.counts.as_slice() else {
        panic!("{figures:?}");
    };
    assert_eq!(count.charges, 5, "a week is not counted again");
    world.end().await;
}

#[tokio::test]
async fn hours_are_forgotten_once_no_figure_goes_back_to_them() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let at = world.clock.now() - HOUR * 3;
    let paid = charge(merchant, Provider::Mtn, ghs(100), at);
    world.given(paid, &[Event::Accepted, Event::Settled]).await;
    world.count_hours().await;
    world.clock.advance(DAY * 9).await.unwrap();
    world.count_hours().await;
    let mut conn = world.db.read().await.unwrap();
    let left = conn.sql("select count(*) from charge_hours");
    assert_eq!(left.one::<(i64,)>().await.unwrap().0, 0);
    drop(conn);
    let (figures, _) = world.check_figures(merchant).await;
    assert!(figures.counts.is_empty());
    world.end().await;
}

#[tokio::test]
async fn figures_are_somebodys() {
    let world = World::start().await;
    let (figures, _) = world.check_figures(MerchantId::new()).await;
    assert!(figures.counts.is_empty());
    let nobody = ReadFiguresRequest::default();
    let refused = world.figures.clone().read_figures(nobody).await;
    check_invalid(refused, "merchant_id");
    world.end().await;
}
