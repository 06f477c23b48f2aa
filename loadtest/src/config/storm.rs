//! What a storm is told.

use std::time::Duration;

use chassis::config::duration;
use clap::Args;

use super::{Output, Place};

#[derive(Clone, Debug, Args)]
pub struct StormTarget {
    /// How many movements the ledger holds before the storm calms down.
    #[arg(long, default_value_t = 10_000)]
    pub movements: u64,

    /// Clients at once, each with one request or a few at a time.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub clients: u16,

    /// Over how many merchants their requests are spread. With few, they fight for each balance.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub merchants: u16,

    /// How often one of the processes is killed and started again; 0s for never.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub kill_every: Duration,

    /// What is asked for, who is killed and what goes wrong. The same seed chooses the same again.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// The longest that the storm takes, and again as long until everything has ended.
    #[arg(long, default_value = "20m", value_parser = duration)]
    pub within: Duration,

    /// Leaves the databases and the logs behind, and says where they are.
    #[arg(long)]
    pub keep: bool,

    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}
