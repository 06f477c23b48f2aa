//! The stories: what a payer's number makes its network do.
//!
//! Pure and total: every number has exactly one story.

use serde::{Deserialize, Serialize};

use crate::{rail::Rail, request::Network};

/// The only code that a Telecel payer's handset ever shows.
pub const VOUCHER: &str = "123456";

/// What a network says in the stories 017 and 217: whoever shows it as it is runs a script.
pub const MARKUP: &str = "'\"><script>ran=1</script><img src=x onerror=ran=1></title>{0}";

/// What happens to one payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// 001 and any other number: approved after a moment.
    Settles,
    /// The rail's own test number: approved before the first reply.
    Instant,
    /// 002: asks for the payer's code first.
    AsksCode,
    /// 003
    NoFunds,
    /// 004
    Declines,
    /// 005: ends when the prompt does.
    NeverAnswers,
    /// 006: refused at once.
    UnknownPayer,
    /// 007: refused at once, and unknown afterwards.
    Unavailable,
    /// 008: approved, and the network never calls back.
    Silent,
    /// 009: approved, and the network calls back three times.
    CallsThrice,
    /// 010: reports failure, then takes the money after all.
    LateMoney,
    /// 011: asks for a code, and every code has expired.
    CodeExpires,
    /// 012
    LimitReached,
    /// 013: accepts the request and loses its own reply.
    CutAtRequest,
    /// 014: accepts the code and loses its own reply.
    CutAtCode,
    /// 015: debits and reports a different amount.
    OtherAmount,
    /// 017: as 002, and then fails; the network says [`MARKUP`] each time.
    SaysMarkup,
    /// 018: keys and reference come back in another spelling, on Hubtel.
    SpeltOtherwise,
    /// 019: refused at once by an HTTP error whose body has the code, on Hubtel.
    CodeInError,
    /// 020: answered with a code that no document has, and goes on, on Hubtel.
    UnknownCode,
    /// 100: waits for a person, however long.
    Person,
}

impl Story {
    /// The story of a number, with `phone` in E.164 form.
    pub fn of(rail: Rail, network: Network, phone: &str) -> Self {
        if rail.behaviour().instant_number == Some(phone) {
            return Self::Instant;
        }
        let asks_codes = network == Network::Telecel && rail.behaviour().asks_codes;
        let hubtel = rail == Rail::Hubtel;
        match phone
            .get(phone.len().saturating_sub(3)..)
            .unwrap_or_default()
        {
            "002" if asks_codes => Self::AsksCode,
            "003" => Self::NoFunds,
            "004" => Self::Declines,
            "005" => Self::NeverAnswers,
            "006" => Self::UnknownPayer,
            "007" => Self::Unavailable,
            "008" => Self::Silent,
            "009" => Self::CallsThrice,
            "010" => Self::LateMoney,
            "011" if asks_codes => Self::CodeExpires,
            "012" => Self::LimitReached,
            "013" => Self::CutAtRequest,
            "014" if asks_codes => Self::CutAtCode,
            "015" => Self::OtherAmount,
            "017" if asks_codes => Self::SaysMarkup,
            "018" if hubtel => Self::SpeltOtherwise,
            "019" if hubtel => Self::CodeInError,
            "020" if hubtel => Self::UnknownCode,
            "100" => Self::Person,
            _ => Self::Settles,
        }
    }

    /// Whether the payer must give a code before there is a prompt.
    pub fn wants_code(self) -> bool {
        matches!(
            self,
            Self::AsksCode | Self::CodeExpires | Self::CutAtCode | Self::SaysMarkup
        )
    }

    /// How a prompt ends if nobody touches it.
    pub fn ending(self) -> Ending {
        match self {
            Self::NoFunds => Ending::Fails(Failure::InsufficientFunds),
            Self::Declines => Ending::Fails(Failure::Declined),
            Self::LimitReached => Ending::Fails(Failure::LimitReached),
            Self::LateMoney => Ending::Fails(Failure::TimedOut),
            Self::SaysMarkup => Ending::Fails(Failure::InMarkup),
            Self::NeverAnswers => Ending::RunsOut,
            Self::Person => Ending::Waits,
            Self::Settles
            | Self::Instant
            | Self::AsksCode
            | Self::UnknownPayer
            | Self::Unavailable
            | Self::Silent
            | Self::CallsThrice
            | Self::CodeExpires
            | Self::CutAtRequest
            | Self::CutAtCode
            | Self::OtherAmount
            | Self::SpeltOtherwise
            | Self::CodeInError
            | Self::UnknownCode => Ending::Approved,
        }
    }

    /// The minor units that the network debits and reports for `asked`.
    pub fn debits(self, asked: i64) -> i64 {
        match self {
            Self::OtherAmount => asked.saturating_add(100),
            _ => asked,
        }
    }

    /// How many times the network calls back after it debited the wallet.
    pub fn callbacks(self) -> u32 {
        match self {
            Self::Silent => 0,
            Self::CallsThrice => 3,
            _ => 1,
        }
    }
}

/// How a prompt ends if nobody touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, after a moment.
    Approved,
    /// By itself, after a moment.
    Fails(Failure),
    /// When its time is up.
    RunsOut,
    /// Never.
    Waits,
}

/// Why a payment failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    InsufficientFunds,
    Declined,
    TimedOut,
    PayerNotFound,
    LimitReached,
    CodeExpired,
    /// For a reason that [`MARKUP`] is.
    InMarkup,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_asked_of_telecel_payers_only() {
        for digits in ["002", "011", "014", "017"] {
            let phone = format!("+233201234{digits}");
            let story = |rail, network| Story::of(rail, network, &phone);
            assert!(story(Rail::Paystack, Network::Telecel).wants_code());
            assert_eq!(story(Rail::Paystack, Network::At), Story::Settles);
            assert_eq!(story(Rail::Momo, Network::Mtn), Story::Settles);
            assert_eq!(story(Rail::Hubtel, Network::Telecel), Story::Settles);
        }
    }

    #[test]
    fn hubtel_alone_has_stories_of_its_own() {
        for digits in ["018", "019", "020"] {
            let phone = format!("+233241234{digits}");
            assert_eq!(Story::of(Rail::Momo, Network::Mtn, &phone), Story::Settles);
            assert_ne!(
                Story::of(Rail::Hubtel, Network::Mtn, &phone),
                Story::Settles
            );
        }
    }

    #[test]
    fn any_other_number_settles() {
        for phone in ["+233241234001", "+233241234567", "+233241234000", "12", ""] {
            assert_eq!(Story::of(Rail::Momo, Network::Mtn, phone), Story::Settles);
        }
    }
}
