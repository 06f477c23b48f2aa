//! Who decides whether a rail is called: the task that is about to call it, or the request that
//! will wait for it no longer.
//!
//! Promise: the decision is made once. A request that answers "nothing was started" is right, and
//! one that must not say so knows it.

use std::sync::{Arc, OnceLock};

/// A gate before a rail call. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<OnceLock<Decision>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Call,
    Leave,
}

impl Gate {
    /// The task asks: may the rail be called? If so, it is called now.
    pub fn may_call(&self) -> bool {
        *self.0.get_or_init(|| Decision::Call) == Decision::Call
    }

    /// The request asks: is it certain that the rail is not and will not be called?
    pub fn leave(&self) -> bool {
        *self.0.get_or_init(|| Decision::Leave) == Decision::Leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_asks_decides() {
        let gate = Gate::default();
        assert!(gate.may_call());
        assert!(!gate.leave());
        let gate = Gate::default();
        assert!(gate.leave());
        assert!(!gate.may_call());
    }
}
