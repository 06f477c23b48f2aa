//! The rails by name.

use std::time::Duration;

use chassis::provider::Provider;

chassis::closed_list! {
    /// A rail, as named in records, callback addresses, settings and metrics.
    #[derive(clap::ValueEnum)]
    pub enum RailName: "a rail" {
        Momo = "momo",
        Paystack = "paystack",
        Hubtel = "hubtel",
    }
}

#[cfg(feature = "sql")]
chassis::text_column!(RailName);

/// What a rail promises and demands, whatever is configured.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The networks whose wallets it debits and pays.
    pub carries: &'static [Provider],
    /// Those of them whose payers always enter a code, so that the rail may wait for one even if its
    /// reply that asked for it was lost.
    pub asks_for_codes: &'static [Provider],
    /// How long a payer has to approve, by the network's own clock.
    pub approval_window: Duration,
    /// Whether it promises to refuse a reference's second use, so that sending a request again
    /// debits nobody twice.
    pub refuses_second_use: bool,
    /// The same for a transfer's reference.
    pub refuses_second_transfer: bool,
    /// Whether the float that it tells is already without the transfers that are on their way.
    pub float_is_net: bool,
    /// Whether it tells if a payer's wallet is there.
    pub tells_wallets: bool,
    /// The headers, in lower case, that authenticate its callbacks.
    pub callback_headers: &'static [&'static str],
}
