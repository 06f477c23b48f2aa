//! What becomes of a transfer, drawn before it happens.
//!
//! Promise: nothing is drawn that the rails' own documents do not allow. A rail never pays what it
//! refused in a documented way.

use crate::{
    choice::Choices,
    rails::{life, payment::Rail},
    time::{HOUR, MINUTE, Millis, SECOND},
};

/// What becomes of a transfer if its request is accepted.
#[derive(Clone, Debug)]
pub struct TransferLife {
    /// Refused with one of the documented reasons.
    pub refused: Option<&'static str>,
    /// The rail looks at the float before it accepts, and not only before it pays.
    pub checks_float: bool,
    pub ending: TransferEnd,
    /// From the acceptance until the end.
    pub ends_after: Millis,
    /// How long queries still show the state before the end.
    pub lag: Millis,
    /// How long after the acceptance queries still know nothing of it.
    pub unseen: Millis,
    /// How many of a thousand queries reach a part of the rail that has not heard of it.
    pub forgotten: u64,
    pub credited: CreditedAmount,
    /// A later request with the same reference is accepted too, and pays once more: Hubtel does not
    /// say that it refuses one.
    pub pays_again: bool,
    /// How long after a failure was shown the account is credited after all.
    pub late_after: Option<Millis>,
    /// How long after success was shown the rail takes the money back.
    pub reversed_after: Option<Millis>,
    /// After the end.
    pub calls: Vec<Millis>,
    /// After what comes later.
    pub late_calls: Vec<Millis>,
    /// Bits that decide what the contracts leave open.
    pub shape: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    Paid,
    Failed(&'static str),
}

/// How much reaches the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditedAmount {
    Asked,
    Less,
    More,
}

/// MTN's refusals of a transfer, each documented.
const MOMO_REFUSALS: &[(u64, &str)] = &[
    (2, "PAYEE_NOT_FOUND"),
    (1, "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED"),
    (2, "SERVICE_UNAVAILABLE"),
    (1, "NOT_ALLOWED"),
];

/// Paystack does not know the recipient, or does not let us pay.
pub const NO_RECIPIENT: &str = "invalid_transfer_recipient";
const PAYSTACK_REFUSALS: &[(u64, &str)] = &[
    (2, NO_RECIPIENT),
    (1, "You cannot initiate third party payouts at this time"),
];

/// Hubtel's refusals, each with its code first. A code of three digits is an HTTP status.
const HUBTEL_REFUSALS: &[(u64, &str)] = &[
    (3, "3050 The number is not registered on the channel"),
    (1, "4000 Validation errors"),
    (1, "4101 The keys or the scope are wrong"),
    (1, "4103 The channel is not permitted"),
    (1, "4105 The account does not match"),
    (1, "401 Unauthorized"),
    (1, "403 Forbidden"),
];

const HUBTEL_FAILURES: &[(u64, &str)] = &[
    (3, "2001 The processor declined the transfer"),
    (2, "2001 The wallet's limit was exceeded"),
    (1, "3050 The number is not registered on the channel"),
];

const MOMO_FAILURES: &[(u64, &str)] = &[
    (3, "PAYEE_NOT_FOUND"),
    (2, "PAYEE_LIMIT_REACHED"),
    (1, "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED"),
    (2, "EXPIRED"),
    (1, "COULD_NOT_PERFORM_TRANSACTION"),
    (1, "INTERNAL_PROCESSING_ERROR"),
];

/// Paystack's words for what is over without having been paid, besides `failed`.
pub const PAYSTACK_ENDS: [&str; 3] = ["abandoned", "blocked", "rejected"];
const PAYSTACK_FAILURES: &[(u64, &str)] = &[
    (3, "The account number is invalid"),
    (2, "The wallet limit was exceeded"),
    (2, "The transfer was not completed"),
    (1, "abandoned"),
    (1, "blocked"),
    (1, "rejected"),
];

impl TransferLife {
    pub fn draw(choices: &mut Choices, rail: Rail) -> Self {
        let (refusals, failures) = match rail {
            Rail::Momo => (MOMO_REFUSALS, MOMO_FAILURES),
            Rail::Paystack => (PAYSTACK_REFUSALS, PAYSTACK_FAILURES),
            Rail::Hubtel => (HUBTEL_REFUSALS, HUBTEL_FAILURES),
        };
        let refused = choices.weighted(refusals);
        let failed = TransferEnd::Failed(choices.weighted(failures));
        let (quick, slow) = (
            choices.between(0, 20 * SECOND),
            choices.between(20 * SECOND, 40 * MINUTE),
        );
        let lag = match choices.below(1_000) {
            0..900 => 0,
            900..980 => choices.between(SECOND, 20 * MINUTE),
            // The last settlement of a run has this long to end.
            _ => choices.between(HOUR, 12 * HOUR),
        };
        let soon = choices.between(SECOND, 20 * SECOND);
        // Longer than the services wait before they send it again.
        let long = choices.between(15 * MINUTE, 25 * MINUTE);
        let late_after = choices.between(HOUR / 10, 3 * HOUR);
        let late_after = choices.weighted(&[(1, late_after), (1, 32 * late_after)]);
        let reversed_after = choices.between(MINUTE, 72 * HOUR);
        Self {
            refused: choices.chance(50).then_some(refused),
            checks_float: choices.chance(500),
            ending: choices.weighted(&[(850, TransferEnd::Paid), (150, failed)]),
            ends_after: choices.weighted(&[(80, quick), (20, slow)]),
            lag,
            unseen: choices.weighted(&[(930, 0), (50, soon), (20, long)]),
            forgotten: choices.weighted(&[(92, 0), (8, 400)]),
            credited: choices.weighted(&[
                (985, CreditedAmount::Asked),
                (8, CreditedAmount::Less),
                (7, CreditedAmount::More),
            ]),
            pays_again: rail == Rail::Hubtel && choices.chance(500),
            late_after: choices.chance(250).then_some(late_after),
            // The others have no word for it.
            reversed_after: (rail == Rail::Paystack && choices.chance(100))
                .then_some(reversed_after),
            calls: life::calls(choices),
            late_calls: life::calls(choices),
            shape: choices.below(u64::MAX),
        }
    }
}
