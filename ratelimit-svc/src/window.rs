//! How long requests are counted together (spec §8).

use std::time::Duration;

/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// [`WINDOW`] in milliseconds.
pub const WINDOW_MS: i64 = 60_000;
