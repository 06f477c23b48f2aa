//! What is to be measured, and how a request ends.

use std::{borrow::Cow, fmt, time::Duration};

/// Why a request failed: a status and a code, in few variants.
pub type Code = Cow<'static, str>;

/// How a request ended.
pub type Outcome = Result<(), Code>;

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A closed loop with this many requests at once.
    InFlight(usize),
    /// An open loop with this many requests per second.
    Rate(u64),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight(requests) => write!(f, "{requests} in flight"),
            Self::Rate(rate) => write!(f, "{rate}/s offered"),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the report is called.
    pub name: String,
    pub pace: Pace,
    /// Not measured.
    pub warm_up: Duration,
    pub duration: Duration,
}
