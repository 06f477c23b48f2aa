//! How a merchant's charges have gone in the last days, in numbers.
//!
//! Promise: the numbers are those of the charges that are listed of these days, to the last
//! pesewa. What is counted by the hour is taken as it is if every charge of the hour had ended,
//! because an end never changes; all else is counted now. What waits is counted whatever its age: it
//! is what is listed as open.

use std::collections::BTreeMap;

use chassis::{
    charge_status::ChargeStatus,
    clock::{Day, Timestamp},
    ids::MerchantId,
    limits::{LOOKED_AT_MAX, WAITS_AFTER},
    money::{Money, MoneyError},
    provider::Provider,
};
use db::Conn;

use crate::{
    error::Result,
    schedule::DAY,
    service::Service,
    store::{
        charges::list::count_open,
        hours::{self, Count},
    },
};

/// Today and the days before it.
const DAYS: u32 = 7;

/// Any more are not counted: while a network is down, an overview must not walk all that wait for it.
const WAITING_MAX: i64 = LOOKED_AT_MAX + 1;

#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Oldest first.
    pub days: Vec<Day>,
    pub counts: Vec<DayCount>,
    /// How many charges wait, counted up to [`WAITING_MAX`].
    pub waiting: i64,
}

/// Charges of a day that are alike.
#[derive(Clone, Debug)]
pub struct DayCount {
    pub day: Day,
    pub provider: Provider,
    pub status: ChargeStatus,
    pub failure_reason: Option<String>,
    pub charges: i64,
    pub amount: Money,
}

impl Service {
    pub async fn read_figures(&self, merchant_id: MerchantId) -> Result<Figures> {
        let now = self.clock.now();
        let mut conn = self.db.read().await?;
        // Read first, so that an hour that is counted meanwhile is neither counted twice nor missed.
        let done = hours::done(&mut conn).await?.until;
        let mut tally = Tally::default();
        let mut figures = Figures {
            waiting: count_open(&mut conn, merchant_id, now - WAITS_AFTER, WAITING_MAX).await?,
            ..Figures::default()
        };
        let mut begins = Day::of(now - DAY * DAYS).end();
        for _ in 0..DAYS {
            let day = Day::of(begins);
            let ends = day.end();
            figures.days.push(day);
            let whole = (begins, ends.min(done.max(begins)));
            let mut left = tally_hours(&mut conn, merchant_id, whole, (day, &mut tally)).await?;
            left.push((whole.1, ends));
            for time in joined(left) {
                for count in hours::count(&mut conn, merchant_id, time).await? {
                    tally.add(day, count)?;
                }
            }
            begins = ends;
        }
        figures.counts = tally.0.into_values().collect();
        Ok(figures)
    }
}

/// Adds what was counted of hours whose charges have all ended. Returns the others.
async fn tally_hours(
    conn: &mut Conn,
    merchant_id: MerchantId,
    time: (Timestamp, Timestamp),
    (day, tally): (Day, &mut Tally),
) -> Result<Vec<(Timestamp, Timestamp)>> {
    let (from, to) = time;
    if from >= to {
        return Ok(Vec::new());
    }
    let counted = hours::counted(conn, merchant_id, time).await?;
    let open = counted
        .iter()
        .filter(|counted| !counted.count.state.is_terminal());
    let open: BTreeMap<Timestamp, Timestamp> = open.map(|open| (open.hour, open.ends_at)).collect();
    for counted in counted {
        if !open.contains_key(&counted.hour) {
            tally.add(day, counted.count)?;
        }
    }
    Ok(open.into_iter().collect())
}

/// The same times, in their order, with those in one that follow each other at once.
fn joined(times: Vec<(Timestamp, Timestamp)>) -> Vec<(Timestamp, Timestamp)> {
    let mut joined: Vec<(Timestamp, Timestamp)> = Vec::new();
    for (from, to) in times.into_iter().filter(|(from, to)| from < to) {
        match joined.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// What is alike: day, provider, status, reason and currency.
type Kind = (Day, &'static str, &'static str, String, &'static str);

#[derive(Debug, Default)]
struct Tally(BTreeMap<Kind, DayCount>);

impl Tally {
    fn add(&mut self, day: Day, count: Count) -> Result<(), MoneyError> {
        let Some(status) = count.state.shown() else {
            return Ok(());
        };
        let (provider, amount) = (count.provider, count.amount());
        let kind = (
            day,
            provider.code(),
            status.code(),
            count.failure_reason.clone(),
            amount.currency().code(),
        );
        let sum = self.0.entry(kind).or_insert_with(|| DayCount {
            day,
            provider,
            status,
            failure_reason: Some(count.failure_reason).filter(|reason| !reason.is_empty()),
            charges: 0,
            amount: Money::new(0, amount.currency()),
        });
        sum.charges += count.charges;
        let minor = sum.amount.minor_units().checked_add(amount.minor_units());
        let minor = minor.ok_or(MoneyError::OutOfRange)?;
        sum.amount = Money::new(minor, amount.currency());
        Ok(())
    }
}
