//! What `loadtest growth` is told.

use std::time::Duration;

use chassis::config::duration;
use clap::Args;

use super::{Output, Place};

#[derive(Clone, Debug, Args)]
pub struct Growth {
    /// How many sessions and charges there are at first. Each number is measured with each number
    /// of replicas, on databases of its own, and compared with the first of both. Ten million take
    /// ten minutes to fill in, and 12 GB.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    pub rows: Vec<u64>,

    /// How often each thing is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub rounds: u8,

    /// How long each thing is measured in a round.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Duration,

    /// How long requests are sent before that.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub warm_up: Duration,

    /// How long each kind of request is sent to each size before any is measured. Pages that were
    /// filled in at once are on disk, and go whole into the log when they first change.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub settling: Duration,

    /// Requests at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub in_flight: u16,

    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}
