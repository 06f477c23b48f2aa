//! Payers, whose numbers make the simulated networks approve at once.

use clap::ValueEnum;
use uuid::Uuid;

use crate::engine::turn;

/// Prefixes of MTN Ghana's numbers.
const PREFIXES_COUNT: u64 = 4;
const PREFIXES: [&str; 4] = ["24", "54", "55", "59"];

/// The four digits in the middle of a number.
const MIDDLES: u64 = 10_000;

/// The last three digits begin here: lower ones make a simulated network do something else.
const FIRST_ENDING: u64 = 200;
const ENDINGS: u64 = 800;

/// Whoever has a number with this ending waits for the handset.
const SILENT_ENDING: u64 = 100;

/// How many payers come back.
const RETURNING: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Each pays for the first time.
    New,
    /// A thousand payers who pay again and again.
    Returning,
    /// Requests name no payer, where they need not.
    None,
    /// Each pays for the first time, and does nothing about it.
    #[value(skip)]
    Silent,
}

/// Where the payers of a measurement come from.
#[derive(Clone, Copy, Debug)]
pub struct Payers {
    kind: Kind,
    /// So that new payers of one measurement are new after another one too.
    first: u64,
}

impl Payers {
    pub fn new(kind: Kind) -> Self {
        let first = Uuid::new_v4().as_u64_pair().0 / 2;
        Self { kind, first }
    }

    /// The phone number that the `n`th request names, if it names one.
    pub fn named(&self, n: u64) -> Option<String> {
        (self.kind != Kind::None).then(|| self.phone(n))
    }

    /// The phone number of the `n`th request's payer.
    pub fn phone(&self, n: u64) -> String {
        let payer = match self.kind {
            Kind::New | Kind::None | Kind::Silent => self.first + n,
            Kind::Returning => n % RETURNING,
        };
        let prefix = turn(&PREFIXES, payer);
        let middle = payer / PREFIXES_COUNT % MIDDLES;
        let ending = match self.kind {
            Kind::Silent => SILENT_ENDING,
            _ => FIRST_ENDING + payer / PREFIXES_COUNT / MIDDLES % ENDINGS,
        };
        format!("+233{prefix}{middle:04}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chassis::phone::Phone;

    use super::*;

    #[test]
    fn new_payers_differ_and_returning_ones_return() {
        let count = |kind| {
            let payers = Payers::new(kind);
            let phones = (0..5_000).map(|n| payers.phone(n));
            phones.collect::<BTreeSet<_>>().len()
        };
        assert_eq!(count(Kind::New), 5_000);
        assert_eq!(count(Kind::Returning), 1_000);
        assert_eq!(Payers::new(Kind::None).named(1), None);
    }

    #[test]
    fn each_has_a_mobile_number_that_settles() {
        let payers = Payers::new(Kind::New);
        for n in 0..1_000 {
            let phone = payers.phone(n * 999_983);
            Phone::parse_ghana_mobile(&phone).unwrap();
            assert!(phone.get(10..).unwrap() >= "200", "{phone}");
        }
    }
}
