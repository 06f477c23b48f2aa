//! A rail carries debits, and credits the other way. Each is one folder that knows its settings,
//! its wire format, what its answers mean and what its callbacks are trusted for. Everything else
//! knows only what is exported here.
//!
//! Promise: without a clear answer from the rail the outcome is `Unknown`, never a failure. A
//! payment request carries a reference that is already durable, and goes out once for it. It goes
//! out a second time only on a rail that [refuses a reference's second
//! use](Terms::refuses_second_use).
//!
//! A new rail is a folder, a [`RailName`] and its arms in `rail.rs`. Nothing compiles until every
//! question about it is answered.

mod answer;
mod callback;
mod checks;
mod client;
mod hubtel;
mod momo;
mod name;
mod paystack;
mod rail;
mod rails;
mod settings;
mod telemetry;
#[doc(hidden)]
pub mod testing;
mod transfer;
mod words;

pub use answer::{
    CallOutcome, OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome,
    WalletOutcome,
};
pub use callback::{Callback, CallbackError, CallbackSubject};
pub use client::RAIL_CALL_MAX;
pub use name::{RailName, Terms};
pub use rail::Rail;
pub use rails::Rails;
pub use settings::RailSettings;
pub use transfer::{
    Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
};
