//! Why a charge failed: the closed list that merchants see, and its words for people.

use std::{fmt, str::FromStr};

macro_rules! reasons {
    ($($variant:ident = $code:literal: $message:literal,)+) => {
        /// The closed list of reasons (design: "failure_reason"). Each is given only on the rail's
        /// word, except `SessionExpired` and `OtpExpired` while the rail still wants a code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FailureReason { $($variant,)+ }

        impl FailureReason {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As it stands in JSON, proto and SQL.
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// For people: what happened and what helps.
            pub fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)+ }
            }
        }
    };
}

reasons! {
    InsufficientFunds = "INSUFFICIENT_FUNDS": "The payer's wallet does not hold enough money for this payment.",
    PayerDeclined = "PAYER_DECLINED": "The payer declined the payment on the phone.",
    PayerTimeout = "PAYER_TIMEOUT": "The payer did not approve the payment in time.",
    InvalidPin = "INVALID_PIN": "The payer entered a wrong PIN.",
    PayerNotFound = "PAYER_NOT_FOUND": "This number has no mobile money wallet on the chosen network.",
    PayerLimitReached = "PAYER_LIMIT_REACHED": "The payment exceeds a limit of the payer's wallet.",
    PayerAccountBlocked = "PAYER_ACCOUNT_BLOCKED": "The payer's wallet is blocked or not active.",
    PayeeAccountBlocked = "PAYEE_ACCOUNT_BLOCKED": "The network does not let this payment be received.",
    PaymentInProgress = "PAYMENT_IN_PROGRESS": "Another payment of this payer is still waiting for approval.",
    NumberNetworkMismatch = "NUMBER_NETWORK_MISMATCH": "This number is not on the chosen network.",
    OtpExpired = "OTP_EXPIRED": "The code has expired.",
    OtpAttemptsExceeded = "OTP_ATTEMPTS_EXCEEDED": "A wrong code was entered too many times.",
    SessionExpired = "SESSION_EXPIRED": "The payment session ended before it was paid.",
    RailUnavailable = "RAIL_UNAVAILABLE": "The mobile money network did not take the payment.",
    RailConfiguration = "RAIL_CONFIGURATION": "The mobile money network refused our request. Nothing was debited.",
    RailError = "RAIL_ERROR": "The mobile money network reported a failure.",
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The text is not one of the closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a failure reason")]
pub struct UnknownReason;

impl FromStr for FailureReason {
    type Err = UnknownReason;

    fn from_str(code: &str) -> Result<Self, UnknownReason> {
        let found = Self::ALL.iter().find(|reason| reason.code() == code);
        found.copied().ok_or(UnknownReason)
    }
}

chassis::text_column!(FailureReason, |reason| reason.code().to_owned());
