//! What may go wrong on a link, how often, and the switch that turns it on.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{choice::Choices, time::Millis};

/// How much more often things go wrong in a gust.
const GUST: u64 = 8;

/// How often things go wrong, per thousand messages of a caller unless noted otherwise. A message
/// is what one read of a socket returns, or one exchange with a database.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// A single message, or answer, is delayed.
    pub delayed: u64,
    /// The connection dies before the message arrives.
    pub lost_before: u64,
    /// The message arrives; the connection dies before the answer does.
    pub lost_after: u64,
    /// The connection dies; the message arrives long after its caller was told.
    pub stragglers: u64,
    /// Nothing passes for a while, on the whole link.
    pub frozen: u64,
    /// Every connection of the link dies, and new ones are refused for a while.
    pub away: u64,
    /// Per thousand new connections.
    pub refused: u64,
    /// Per thousand `commit`s: they succeed, but the confirmation is lost.
    pub unconfirmed: u64,
    pub delay_ms_max: Millis,
    pub straggler_ms_max: Millis,
    pub freeze_ms_max: Millis,
    pub away_ms_max: Millis,
    /// Longest outage of the database after an unconfirmed commit.
    pub failover_ms_max: Millis,
}

impl Rates {
    /// Between services. Some delays exceed every deadline of a call.
    pub const NETWORK: Self = Self {
        delayed: 20,
        lost_before: 3,
        lost_after: 6,
        stragglers: 4,
        frozen: 1,
        away: 1,
        refused: 5,
        unconfirmed: 0,
        delay_ms_max: 8_000,
        straggler_ms_max: 12_000,
        freeze_ms_max: 15_000,
        away_ms_max: 5_000,
        failover_ms_max: 0,
    };

    /// Towards rails. A request may be late, but no later than the margin added to their windows
    /// (`schedule.rs` of charges-svc); nothing arrives from a connection that was reset.
    pub const RAIL: Self = Self {
        stragglers: 0,
        ..Self::NETWORK
    };

    /// Towards a database, which gets far more messages.
    pub const DATABASE: Self = Self {
        delayed: 8,
        lost_before: 1,
        lost_after: 1,
        stragglers: 0,
        frozen: 1,
        away: 1,
        refused: 5,
        unconfirmed: 8,
        delay_ms_max: 8_000,
        straggler_ms_max: 0,
        freeze_ms_max: 10_000,
        away_ms_max: 5_000,
        failover_ms_max: 12_000,
    };

    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        delayed: 0,
        lost_before: 0,
        lost_after: 0,
        stragglers: 0,
        frozen: 0,
        away: 0,
        refused: 0,
        unconfirmed: 0,
        delay_ms_max: 0,
        straggler_ms_max: 0,
        freeze_ms_max: 0,
        away_ms_max: 0,
        failover_ms_max: 0,
    };

    /// The same durations, `strength` times as often.
    fn times(self, strength: u64) -> Self {
        Self {
            delayed: self.delayed * strength,
            lost_before: self.lost_before * strength,
            lost_after: self.lost_after * strength,
            stragglers: self.stragglers * strength,
            frozen: self.frozen * strength,
            away: self.away * strength,
            refused: self.refused * strength,
            unconfirmed: self.unconfirmed * strength,
            ..self
        }
    }
}

/// The switch for ordinary faults, and their rates. Clones share the switch.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Factor for the rates; at 0 nothing goes wrong.
    strength: Arc<AtomicU64>,
    /// `None` means each link's own default.
    rates: Option<Rates>,
}

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Forwarded,
    Delayed(Millis),
    LostBefore,
    LostAfter,
    Straggles(Millis),
    Frozen(Millis),
    Away(Millis),
}

impl Faults {
    /// Switched off, with rates that suit the kind of link.
    pub fn off() -> Self {
        Self {
            strength: Arc::default(),
            rates: None,
        }
    }

    /// The same switch with other rates.
    pub fn with(&self, rates: Rates) -> Self {
        Self {
            strength: Arc::clone(&self.strength),
            rates: Some(rates),
        }
    }

    pub fn on(&self) {
        self.strength.store(1, Ordering::SeqCst);
    }

    /// So much goes wrong at once that whatever handles one failure meets the next.
    pub fn gust(&self) {
        self.strength.store(GUST, Ordering::SeqCst);
    }

    /// No further message suffers; those that already wait keep waiting.
    pub fn pause(&self) {
        self.strength.store(0, Ordering::SeqCst);
    }

    pub(crate) fn or(self, rates: Rates) -> Self {
        Self {
            rates: self.rates.or(Some(rates)),
            ..self
        }
    }

    /// The rates, while they apply.
    fn rates(&self) -> Option<Rates> {
        let strength = self.strength.load(Ordering::SeqCst);
        self.rates
            .filter(|_| strength > 0)
            .map(|rates| rates.times(strength))
    }

    pub(crate) fn refuse(&self, choices: &mut Choices) -> bool {
        self.rates()
            .is_some_and(|rates| choices.chance(rates.refused))
    }

    /// Whether the commit's confirmation is lost, and for how long the database is away
    /// afterwards: every other time only the connection dies.
    pub(crate) fn unconfirmed(&self, choices: &mut Choices) -> Option<Millis> {
        let rates = self.rates()?;
        if !choices.chance(rates.unconfirmed) {
            return None;
        }
        match choices.chance(500) {
            true => Some(choices.between(0, rates.failover_ms_max)),
            false => Some(0),
        }
    }

    /// How long an answer waits.
    pub(crate) fn delay(&self, choices: &mut Choices) -> Option<Millis> {
        let rates = self.rates()?;
        choices
            .chance(rates.delayed)
            .then(|| length(choices, rates.delay_ms_max))
    }

    pub(crate) fn fate(&self, choices: &mut Choices) -> Fate {
        let Some(rates) = self.rates() else {
            return Fate::Forwarded;
        };
        let delayed = Fate::Delayed(length(choices, rates.delay_ms_max));
        let straggles = Fate::Straggles(length(choices, rates.straggler_ms_max));
        let frozen = Fate::Frozen(length(choices, rates.freeze_ms_max));
        let away = Fate::Away(length(choices, rates.away_ms_max));
        let faults = [
            (rates.delayed, delayed),
            (rates.lost_before, Fate::LostBefore),
            (rates.lost_after, Fate::LostAfter),
            (rates.stragglers, straggles),
            (rates.frozen, frozen),
            (rates.away, away),
        ];
        let faulty: u64 = faults.iter().map(|(rate, _)| rate).sum();
        match choices.chance(faulty) {
            true => choices.weighted(&faults),
            false => Fate::Forwarded,
        }
    }
}

/// Short ones are likelier than long ones.
fn length(choices: &mut Choices, most: Millis) -> Millis {
    let most = most >> choices.below(8);
    choices.between(1, most.max(1))
}
