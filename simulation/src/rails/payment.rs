//! What a rail knows and says about a payment.

use crate::time::{MINUTE, Millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rail {
    Momo,
    Paystack,
    Hubtel,
}

impl Rail {
    pub const ALL: [Self; 3] = [Self::Momo, Self::Paystack, Self::Hubtel];

    pub fn name(self) -> &'static str {
        match self {
            Self::Momo => "momo",
            Self::Paystack => "paystack",
            Self::Hubtel => "hubtel",
        }
    }

    /// How long a payer has to approve.
    pub fn window(self) -> Millis {
        match self {
            Self::Momo | Self::Hubtel => 5 * MINUTE,
            Self::Paystack => 3 * MINUTE,
        }
    }
}

/// Which network's wallet is debited, over which rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayerNetwork {
    Momo,
    /// The networks that send a prompt.
    Paystack,
    /// The network that asks for a code first.
    PaystackTelecel,
    /// All networks.
    Hubtel,
}

impl PayerNetwork {
    pub fn rail(self) -> Rail {
        match self {
            Self::Momo => Rail::Momo,
            Self::Paystack | Self::PaystackTelecel => Rail::Paystack,
            Self::Hubtel => Rail::Hubtel,
        }
    }
}

/// What one rail knows about one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    pub rail: Rail,
    /// As our records spell it.
    pub reference: String,
    /// In E.164. Empty if the rail was only asked about the reference.
    pub phone: String,
    pub amount_minor: i64,
    pub currency: String,
    /// When requests for it came in, whatever became of them.
    pub asked_at: Vec<Millis>,
    /// When requests for it were accepted.
    pub taken_at: Vec<Millis>,
    pub debits: Vec<Debit>,
    /// When the payer or the network decided, or the network stopped waiting for the code.
    pub decided_at: Option<Millis>,
    pub reversed_at: Option<Millis>,
    pub said: Vec<RailMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debit {
    pub at: Millis,
    pub amount_minor: i64,
}

impl Payment {
    pub fn debited_minor(&self) -> i64 {
        self.debits.iter().map(|debit| debit.amount_minor).sum()
    }
}

/// One answer or callback about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailMessage {
    /// When it was sent.
    pub at: Millis,
    pub to: Asker,
    pub what: Word,
    /// Whether the rail itself sent it; for a callback, whether it was acknowledged. An answer
    /// whose asker had hung up was never sent, and is not here.
    pub delivered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Request,
    Otp,
    Query,
    /// The rail called by itself.
    Callback,
}

/// What a rail says about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Accepted,
    CodeWanted,
    /// The request is refused with this reason, and will never lead to a debit.
    Refused(&'static str),
    Success,
    Failed(&'static str),
    Pending,
    /// Paystack's word for a payer who has not answered yet, or no longer will, and Hubtel's for
    /// whatever is not paid.
    Abandoned,
    Unknown404,
    Reversed,
    Duplicate409,
    /// Nobody is waiting for a code (any more).
    CodeNotAwaited,
    /// Nothing documented.
    Nothing,
}

/// Why a payment failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Declined,
    Funds,
    Limit,
    TimedOut,
    CodeExpired,
    WrongCodes,
    /// Reported in the answer to the request.
    AtOnce(&'static str),
}

impl Failure {
    /// The reason in the words of `rail`; Hubtel's begin with a code. Some have two for a reason;
    /// `shape` picks one.
    pub fn words(self, rail: Rail, shape: u64) -> &'static str {
        let is_other = shape & 16 == 0;
        match (rail, self) {
            (Rail::Momo, Failure::Declined) if is_other => "PAYMENT_NOT_APPROVED",
            (Rail::Momo, Failure::Declined) => "APPROVAL_REJECTED",
            (Rail::Momo, Failure::Funds) => "NOT_ENOUGH_FUNDS",
            (Rail::Momo, Failure::Limit) => "PAYER_LIMIT_REACHED",
            (Rail::Momo, Failure::TimedOut) if is_other => "COULD_NOT_PERFORM_TRANSACTION",
            (Rail::Momo, _) => "EXPIRED",
            (Rail::Paystack, Failure::Declined) => "The payer declined the request",
            (Rail::Paystack, Failure::Funds) => "The payer has insufficient funds",
            (Rail::Paystack, Failure::Limit) => "The payer has reached the transaction limit",
            (Rail::Paystack, Failure::TimedOut) => {
                "The request timed out before the payer answered"
            }
            (Rail::Paystack, Failure::CodeExpired) => "The voucher code has expired",
            (Rail::Paystack, Failure::WrongCodes) => "Declined after too many wrong voucher codes",
            (Rail::Hubtel, Failure::Declined) if is_other => "2001 The payer declined the request",
            (Rail::Hubtel, Failure::Declined) => "2101 A wrong PIN was entered",
            (Rail::Hubtel, Failure::Funds) if is_other => "2001 The payer has insufficient funds",
            (Rail::Hubtel, Failure::Funds) => "2050 The wallet's balance is too low",
            (Rail::Hubtel, Failure::Limit) => "2001 The payer has reached the transaction limit",
            (Rail::Hubtel, Failure::TimedOut) if is_other => "2001 The USSD session timed out",
            (Rail::Hubtel, Failure::TimedOut | Failure::CodeExpired | Failure::WrongCodes) => {
                "2100 The payer's phone is off"
            }
            (Rail::Paystack | Rail::Hubtel, Failure::AtOnce(words)) => words,
        }
    }
}
