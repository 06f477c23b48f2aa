//! The source of every choice in a run: a pure function of the seed, the chooser and the step.
//!
//! Every chooser has a stream of its own, so that one more draw by one actor does not change
//! another's choices, and the same seed asks the same of the services again.

/// The choices of one actor.
#[derive(Clone, Debug)]
pub struct Choices {
    key: u64,
    step: u64,
}

impl Choices {
    pub fn of(seed: u64, actor: &str) -> Self {
        let key = actor
            .bytes()
            .fold(mix(seed), |key, byte| mix(key ^ u64::from(byte)));
        Self { key, step: 0 }
    }

    fn draw(&mut self) -> u64 {
        self.step += 1;
        mix(self.key ^ mix(self.step))
    }

    /// A number below `end`, or 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or_default()
    }

    /// A number from `from` to `to`, inclusive.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True this many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of the options, chosen by weight.
    ///
    /// # Panics
    /// If there are no options, or all weights are 0.
    pub fn weighted<T: Copy>(&mut self, options: &[(u64, T)]) -> T {
        let total = options.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for (weight, option) in options {
            if left < *weight {
                return *option;
            }
            left -= weight;
        }
        options.first().expect("something to choose from").1
    }
}

/// SplitMix64's finalizer: every bit of the answer depends on every bit of the question.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
