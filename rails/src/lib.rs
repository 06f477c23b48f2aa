//! Rails: what carries a debit. Each is one folder that knows its settings, its wire, what its
//! answers mean and what its callbacks are trusted for; everything else knows only what is here.
//!
//! Promise: an answer that the rail did not clearly give is `Unknown`, never a failure. A rail is
//! called with a reference that was durable before, and is called once for it.
//!
//! A new rail is its folder and a variant of [`RailName`] and [`Rail`]; nothing compiles until every
//! question about it is answered.

mod answer;
mod callback;
mod checks;
mod client;
mod momo;
mod name;
mod paystack;
mod rail;
mod rails;
mod settings;
mod telemetry;
mod words;

pub use answer::{
    CallOutcome, OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome,
};
pub use callback::{Callback, CallbackError, CallbackSubject};
pub use client::RAIL_CALL_MAX;
pub use name::{RailName, Terms};
pub use rail::Rail;
pub use rails::Rails;
pub use settings::Settings;
