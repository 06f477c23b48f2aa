//! What `loadtest compare` is told.

use std::time::Duration;

use chassis::config::duration;
use clap::Args;

use super::{Output, Place, Receiving};

#[derive(Clone, Debug, Args)]
pub struct Compare {
    /// Rows of the table in docs/performance.md.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,3,4,5,6,7,8,9,10,13,14"
    )]
    pub rows: Vec<u8>,

    /// How often each thing is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub rounds: u8,

    /// How long each thing is measured in a round.
    #[arg(long, default_value = "4s", value_parser = duration)]
    pub duration: Duration,

    /// How long requests are sent before that.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub warm_up: Duration,

    #[command(flatten)]
    pub receiver: Receiving,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}
