//! The rails by name.

use std::time::Duration;

use chassis::provider::Provider;

chassis::closed_list! {
    /// A rail, as it stands in records, callback addresses, settings and metrics.
    #[derive(clap::ValueEnum)]
    pub enum RailName: "a rail" {
        Momo = "momo",
        Paystack = "paystack",
    }
}

#[cfg(feature = "sql")]
chassis::text_column!(RailName);

/// What a network promises and demands, whatever is configured.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whose wallets it debits.
    pub carries: &'static [Provider],
    /// How long it lets a payer approve, by its own clock.
    pub approval_window: Duration,
    /// It promises to refuse a reference's second use, so that nobody is debited twice by sending a
    /// request again.
    pub refuses_second_use: bool,
    /// The headers, in lower case, that its callbacks are judged by.
    pub callback_headers: &'static [&'static str],
}
