//! Why a payment failed: the closed list of reasons, and what each tells merchants and payers.

macro_rules! reasons {
    ($(
        $variant:ident = $code:literal {
            message: $message:literal,
            english: $english:literal,
            twi: $twi:literal,
            is_uncharged: $is_uncharged:literal,
        }
    )+) => {
        crate::closed_list! {
            /// The closed list of reasons. Each is given only if the rail says so, except
            /// `SessionExpired`, and `OtpExpired` while the rail still wants a code.
            pub enum FailureReason: "a failure reason" { $($variant = $code,)+ }
        }

        impl FailureReason {
            /// For merchants, and for payers in the merchant's own shop.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)+ }
            }

            /// For payers at our checkout.
            pub const fn at_checkout(self) -> AtCheckout {
                match self {
                    $(Self::$variant => AtCheckout {
                        english: $english,
                        twi: $twi,
                        is_uncharged: $is_uncharged,
                    },)+
                }
            }
        }
    };
}

/// What the checkout tells a payer: what happened, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtCheckout {
    pub english: &'static str,
    pub twi: &'static str,
    /// Whether it is certain that nothing was debited, which only the network's own answer can
    /// establish.
    pub is_uncharged: bool,
}

reasons! {
    InsufficientFunds = "INSUFFICIENT_FUNDS" {
        message: "The payer's wallet does not hold enough money for this payment.",
        english: "There is not enough money in the wallet. Add money, or use another number.",
        twi: "Sika a ɛwɔ wallet no mu nnɔɔso. Fa sika gu so, anaa fa nɔma foforɔ.",
        is_uncharged: true,
    }
    PayerDeclined = "PAYER_DECLINED" {
        message: "The payer declined the payment on the phone.",
        english: "The payment was declined on the phone.",
        twi: "Wɔpoo ntua no wɔ fon no so.",
        is_uncharged: true,
    }
    // The network may still find that the payer had approved.
    PayerTimeout = "PAYER_TIMEOUT" {
        message: "The payer did not approve the payment in time.",
        english: "The payment was not approved in time.",
        twi: "Wɔampene so wɔ berɛ ano.",
        is_uncharged: false,
    }
    InvalidPin = "INVALID_PIN" {
        message: "The payer entered a wrong PIN.",
        english: "The PIN was wrong. Take care: the network locks a wallet after too many wrong PINs.",
        twi: "PIN no nyɛ. Hwɛ yie: PIN bɔne dodoɔ ma network no to wallet no mu.",
        is_uncharged: true,
    }
    PayerNotFound = "PAYER_NOT_FOUND" {
        message: "This number has no mobile money wallet on the chosen network.",
        english: "This number has no wallet on the network that you chose. Check both.",
        twi: "Nɔma yi nni wallet wɔ network a woyii no so. Hwɛ mmienu no nyinaa.",
        is_uncharged: true,
    }
    PayerLimitReached = "PAYER_LIMIT_REACHED" {
        message: "The payment exceeds a limit of the payer's wallet.",
        english: "This payment is over a limit of the wallet. Ask your network, or use another number.",
        twi: "Sika yi boro deɛ wallet no ma ho kwan. Bisa wo network, anaa fa nɔma foforɔ.",
        is_uncharged: true,
    }
    PayerAccountBlocked = "PAYER_ACCOUNT_BLOCKED" {
        message: "The payer's wallet is blocked or not active.",
        english: "This wallet is blocked or not active. Ask your network, or use another number.",
        twi: "Wɔato wallet yi mu. Bisa wo network, anaa fa nɔma foforɔ.",
        is_uncharged: true,
    }
    PayeeAccountBlocked = "PAYEE_ACCOUNT_BLOCKED" {
        message: "The network does not let this payment be received.",
        english: "The network reported a problem.",
        twi: "Network no nyaa ɔhaw.",
        is_uncharged: false,
    }
    // Only of payouts and refunds, as the next.
    PayeeNotFound = "PAYEE_NOT_FOUND" {
        message: "The account to be paid does not exist at this network or bank.",
        english: "The network reported a problem.",
        twi: "Network no nyaa ɔhaw.",
        is_uncharged: false,
    }
    PayeeLimitReached = "PAYEE_LIMIT_REACHED" {
        message: "The amount exceeds a limit of the account to be paid.",
        english: "The network reported a problem.",
        twi: "Network no nyaa ɔhaw.",
        is_uncharged: false,
    }
    PaymentInProgress = "PAYMENT_IN_PROGRESS" {
        message: "Another payment of this payer is still waiting for approval.",
        english: "Another payment from this number waits for approval. Finish it first.",
        twi: "Ntua foforɔ firi nɔma yi so retwɛn. Wie no kane.",
        is_uncharged: true,
    }
    NumberNetworkMismatch = "NUMBER_NETWORK_MISMATCH" {
        message: "This number is not on the chosen network.",
        english: "This number is not on the network that you chose. Check both.",
        twi: "Nɔma yi nni network a woyii no so. Hwɛ mmienu no nyinaa.",
        is_uncharged: true,
    }
    // Our own time for the code is over; the network's may not be.
    OtpExpired = "OTP_EXPIRED" {
        message: "The code has expired.",
        english: "The code came too late.",
        twi: "Code no baa akyire dodo.",
        is_uncharged: false,
    }
    // Our own limit of codes is reached; the network's may not be.
    OtpAttemptsExceeded = "OTP_ATTEMPTS_EXCEEDED" {
        message: "A wrong code was entered too many times.",
        english: "A wrong code was entered too many times.",
        twi: "Wɔkyerɛw code bɔne mpɛn dodoɔ.",
        is_uncharged: false,
    }
    SessionExpired = "SESSION_EXPIRED" {
        message: "The session expired before it was paid.",
        english: "The network reported a problem.",
        twi: "Network no nyaa ɔhaw.",
        is_uncharged: false,
    }
    // Also if the network knew no such payment once the payment's time was over.
    RailUnavailable = "RAIL_UNAVAILABLE" {
        message: "The mobile money network did not take the payment.",
        english: "The network cannot take payments right now. Try again later, or use another network.",
        twi: "Network no ntumi nnye sika seesei. San sɔ hwɛ akyire, anaa fa network foforɔ.",
        is_uncharged: false,
    }
    RailConfiguration = "RAIL_CONFIGURATION" {
        message: "The mobile money network refused our request. Nothing was debited.",
        english: "The network cannot take payments right now. Try again later, or use another network.",
        twi: "Network no ntumi nnye sika seesei. San sɔ hwɛ akyire, anaa fa network foforɔ.",
        is_uncharged: true,
    }
    RailError = "RAIL_ERROR" {
        message: "The mobile money network reported a failure.",
        english: "The network reported a problem.",
        twi: "Network no nyaa ɔhaw.",
        is_uncharged: false,
    }
}

impl FailureReason {
    /// Whether only payouts and refunds fail for it. Merchants' code that reads charges was written
    /// without it.
    pub const fn is_of_disbursements(self) -> bool {
        matches!(self, Self::PayeeNotFound | Self::PayeeLimitReached)
    }
}

#[cfg(feature = "sql")]
crate::text_column!(FailureReason);
