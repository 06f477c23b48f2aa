//! What is chosen in a storm: a pure function of the seed, the chooser and the step, so that the same
//! seed asks for the same again.

/// The choices of one actor.
pub struct Choices {
    key: u64,
    step: u64,
}

impl Choices {
    pub fn of(seed: u64, chooser: &str) -> Self {
        let bytes = chooser.bytes();
        let key = bytes.fold(mix(seed), |key, byte| mix(key ^ u64::from(byte)));
        Self { key, step: 0 }
    }

    /// A number below `end`, or 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.step += 1;
        let drawn = mix(self.key ^ mix(self.step));
        drawn.checked_rem(end).unwrap_or_default()
    }

    /// A number from `from` to `to`, inclusive.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True this many times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the options, if there are any.
    pub fn one_of<'o, T>(&mut self, options: &'o [T]) -> Option<&'o T> {
        let count = u64::try_from(options.len()).ok()?;
        options.get(usize::try_from(self.below(count)).ok()?)
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
