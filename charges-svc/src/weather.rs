//! How each network does right now, by the charges of all merchants: whether a merchant's trouble is
//! the network's or its own.
//!
//! Promise: nothing here tells of one merchant's charges. There are rates alone, rounded, of at least
//! [`MERCHANTS_MIN`] merchants of which none makes up more than half.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    time::Duration,
};

use chassis::{clock::Timestamp, ids::MerchantId, limits::WAITS_AFTER, provider::Provider};

use crate::{charge::State, schedule::DAY, store::samples::Sampled};

/// Charges created within this long tell how it is now.
pub const NOW: Duration = Duration::from_secs(60 * 60);

/// Those created before that, but within this long, tell how it usually is.
pub const USUAL: Duration = NOW.saturating_add(DAY);

/// With fewer charges or merchants than these, nothing is told.
const CHARGES_MIN: usize = 20;
const MERCHANTS_MIN: usize = 3;

/// Percentages are rounded to a multiple of this.
const PERCENT_STEP: u32 = 5;

/// Many fail if the success rate is at least this many points below the usual one,
const SUCCESS_DROP: u32 = 20;

/// or, where the usual rate is unknown, below this.
const SUCCESS_MIN: u32 = 50;

/// It is slow if at least this percentage waits,
const WAITING_MAX: u32 = 20;

/// or if the median is at least this many times the usual one, and at least this much longer.
const MEDIAN_FACTOR: u32 = 2;
const MEDIAN_RISE: Duration = Duration::from_secs(15);

chassis::closed_list! {
    /// How a network does.
    pub enum Weather: "a network's weather" {
        TooFew = "TOO_FEW",
        AsUsual = "AS_USUAL",
        Slower = "SLOWER",
        ManyFail = "MANY_FAIL",
    }
}

#[derive(Clone, Debug)]
pub struct NetworkWeather {
    pub provider: Provider,
    pub weather: Weather,
    /// `None` if there is too little of it.
    pub rates: Option<Rates>,
}

/// What may be told of a network's charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// How many of a hundred that ended have settled. `None` if none has ended.
    pub succeeded: Option<u32>,
    /// Half of those that ended took no longer than this, to the second.
    pub median: Option<Duration>,
    /// How many of a hundred wait.
    pub waiting: u32,
    /// How long the oldest of those has waited, to the minute.
    pub oldest: Option<Duration>,
}

/// What was seen last, and when.
#[derive(Clone, Debug)]
pub struct Look {
    pub at: Timestamp,
    pub networks: Vec<NetworkWeather>,
}

/// How each network does, by this sample.
pub fn networks(sample: &[Sampled], now: Timestamp) -> Vec<NetworkWeather> {
    let of = |provider: Provider, (youngest, oldest): (Duration, Duration)| {
        let (from, to) = (now - oldest, now - youngest);
        let charges = sample.iter().filter(move |charge| {
            charge.provider == provider && from <= charge.created_at && charge.created_at <= to
        });
        rates(charges.collect(), now)
    };
    let networks = Provider::ALL.iter().map(|provider| {
        let rates = of(*provider, (Duration::ZERO, NOW));
        let usual = of(*provider, (NOW, USUAL));
        NetworkWeather {
            provider: *provider,
            weather: rates.map_or(Weather::TooFew, |rates| rates.compared(usual)),
            rates,
        }
    });
    networks.collect()
}

/// What these charges tell, if they are enough and of enough merchants. One that has been made a
/// moment ago tells nothing yet.
fn rates(mut charges: Vec<&Sampled>, now: Timestamp) -> Option<Rates> {
    let waited = |charge: &Sampled| now.since(charge.created_at);
    charges.retain(|charge| match charge.state {
        State::Settled | State::Failed => true,
        State::Submitting | State::Initiated | State::OtpRequired | State::OtpSubmitting => {
            waited(charge) > WAITS_AFTER
        }
        State::Void => false,
    });
    let charges = balanced(charges);
    let merchants: HashSet<MerchantId> = charges.iter().map(|charge| charge.merchant_id).collect();
    if charges.len() < CHARGES_MIN || merchants.len() < MERCHANTS_MIN {
        return None;
    }
    let (ended, waiting): (Vec<&Sampled>, Vec<&Sampled>) = charges
        .iter()
        .partition(|charge| charge.state.is_terminal());
    let settled = ended.iter().filter(|charge| charge.state == State::Settled);
    let mut durations: Vec<Duration> = ended
        .iter()
        .map(|charge| charge.updated_at.since(charge.created_at))
        .collect();
    durations.sort_unstable();
    let median = durations.get(durations.len() / 2);
    let oldest = waiting.iter().map(|charge| waited(charge)).max();
    Some(Rates {
        succeeded: share(settled.count(), ended.len()),
        median: median.map(|median| Duration::from_secs(median.as_secs())),
        waiting: share(waiting.len(), charges.len()).unwrap_or_default(),
        oldest: oldest.map(|oldest| Duration::from_secs(oldest.as_secs() / 60 * 60)),
    })
}

/// These charges, of which no merchant has made more than all others together.
fn balanced(mut charges: Vec<&Sampled>) -> Vec<&Sampled> {
    let mut made: HashMap<MerchantId, usize> = HashMap::new();
    for charge in &charges {
        *made.entry(charge.merchant_id).or_default() += 1;
    }
    let Some((most_active, most)) = made.into_iter().max_by_key(|(_, count)| *count) else {
        return charges;
    };
    let others = charges.len() - most;
    charges.sort_by_key(|charge| Reverse(charge.created_at));
    let mut left = others;
    charges.retain(|charge| {
        if charge.merchant_id != most_active {
            return true;
        }
        let is_taken = left > 0;
        left = left.saturating_sub(1);
        is_taken
    });
    charges
}

/// How many of a hundred, to the nearest step.
fn share(part: usize, whole: usize) -> Option<u32> {
    let percent = (part * 100).checked_div(whole)?;
    let percent = u32::try_from(percent).ok()?;
    Some((percent + PERCENT_STEP / 2) / PERCENT_STEP * PERCENT_STEP)
}

impl Rates {
    fn compared(self, usual: Option<Self>) -> Weather {
        let usually = usual.and_then(|usual| usual.succeeded);
        let do_many_fail = self.succeeded.is_some_and(|now| match usually {
            Some(usually) => now + SUCCESS_DROP <= usually,
            None => now < SUCCESS_MIN,
        });
        if do_many_fail {
            return Weather::ManyFail;
        }
        let medians = self.median.zip(usual.and_then(|usual| usual.median));
        let is_slow = medians
            .is_some_and(|(now, usual)| now >= usual * MEDIAN_FACTOR && now >= usual + MEDIAN_RISE);
        match is_slow || self.waiting >= WAITING_MAX {
            true => Weather::Slower,
            false => Weather::AsUsual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-31T09:00:00.000Z".parse().expect("a timestamp")
    }

    /// So many charges of a merchant, made so many minutes ago, that ended within so many seconds.
    fn made(count: usize, by: MerchantId, ago: u64, state: State, within: u64) -> Vec<Sampled> {
        let created_at = now() - Duration::from_secs(ago * 60);
        let one = Sampled {
            merchant_id: by,
            provider: Provider::Mtn,
            state,
            created_at,
            updated_at: created_at + Duration::from_secs(within),
        };
        vec![one; count]
    }

    fn merchants() -> [MerchantId; 3] {
        [MerchantId::new(), MerchantId::new(), MerchantId::new()]
    }

    fn mtn(sample: &[Sampled]) -> NetworkWeather {
        let networks = networks(sample, now());
        let mut of_mtn = networks.into_iter();
        of_mtn
            .find(|network| network.provider == Provider::Mtn)
            .expect("a network")
    }

    #[test]
    fn too_few_charges_or_merchants_tell_nothing() {
        let [ama, kofi, esi] = merchants();
        let settled = |count, by| made(count, by, 10, State::Settled, 9);
        let enough = [settled(10, ama), settled(6, kofi), settled(4, esi)].concat();
        let told = mtn(&enough);
        assert_eq!(told.weather, Weather::AsUsual);
        let rates = Rates {
            succeeded: Some(100),
            median: Some(Duration::from_secs(9)),
            waiting: 0,
            oldest: None,
        };
        assert_eq!(told.rates, Some(rates));
        for few in [
            [settled(10, ama), settled(6, kofi), settled(3, esi)],
            [settled(50, ama), settled(50, kofi), Vec::new()],
            // Hers would be nearly all.
            [settled(900, ama), settled(5, kofi), settled(4, esi)],
            // It is not known yet what becomes of them.
            [
                settled(10, ama),
                settled(6, kofi),
                made(90, esi, 2, State::Initiated, 0),
            ],
            // Too long ago.
            [
                settled(10, ama),
                settled(6, kofi),
                made(90, esi, 70, State::Settled, 9),
            ],
        ] {
            let told = mtn(&few.concat());
            assert_eq!((told.weather, told.rates), (Weather::TooFew, None));
        }
    }

    #[test]
    fn a_merchant_counts_for_half_at_most() {
        let [ama, kofi, esi] = merchants();
        let sample = [
            made(900, ama, 10, State::Failed, 9),
            made(10, kofi, 10, State::Settled, 9),
            made(10, esi, 10, State::Settled, 9),
        ];
        let rates = mtn(&sample.concat()).rates.expect("rates");
        assert_eq!(rates.succeeded, Some(50));
    }

    #[test]
    fn it_is_compared_with_how_it_usually_is() {
        let [ama, kofi, esi] = merchants();
        let all = |ago, state, within| {
            [ama, kofi, esi]
                .map(|by| made(10, by, ago, state, within))
                .concat()
        };
        let usual = [all(600, State::Settled, 9), all(900, State::Failed, 9)].concat();
        for (recent, weather) in [
            (all(10, State::Settled, 9), Weather::AsUsual),
            (all(10, State::Settled, 20), Weather::AsUsual),
            (all(10, State::Settled, 24), Weather::Slower),
            (all(10, State::Failed, 9), Weather::ManyFail),
            (all(10, State::OtpRequired, 0), Weather::Slower),
        ] {
            let told = mtn(&[usual.clone(), recent].concat());
            assert_eq!(told.weather, weather, "{told:?}");
        }
        // Half of them fail, which is too many if nothing else is known.
        let half = [all(10, State::Settled, 9), all(10, State::Failed, 9)].concat();
        let more = [half.clone(), all(10, State::Failed, 9)].concat();
        assert_eq!(mtn(&half).weather, Weather::AsUsual);
        assert_eq!(mtn(&more).weather, Weather::ManyFail);
        assert_eq!(mtn(&[usual, half].concat()).weather, Weather::AsUsual);
        let stuck = mtn(&all(42, State::Initiated, 0)).rates.expect("rates");
        assert_eq!((stuck.succeeded, stuck.waiting), (None, 100));
        assert_eq!(stuck.oldest, Some(Duration::from_secs(42 * 60)));
    }
}
