//! The bare paths, and the hops that they are made of.

use std::{fmt, net::SocketAddr};

use clap::{Args, ValueEnum};

/// A bare path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Baseline {
    /// axum: JSON in and out.
    A,
    /// Like a, with one INSERT.
    B,
    /// axum, then one call to a service without I/O.
    C,
    /// axum, then a limit (one INCR in Redis), then a service with one INSERT.
    D,
    /// Like d, with a SELECT by key in place of the INSERT.
    E,
    /// Like d, with a POST to a local stub and two more transactions of one statement.
    F,
    /// axum, then a limit and a service, both without I/O.
    G,
    /// A service with an INSERT, a signed POST over connections that are kept, and an UPDATE.
    H,
    /// Like f, with as many POSTs (three) and transactions (nine) as a charge's whole life takes
    /// when it is alone, but without its calls between services and its callback.
    I,
    /// A limit alone: one INCR in Redis.
    Incr,
    /// A service alone: one INSERT.
    Insert,
}

/// What a hop is, and what is behind it. What is not named is left out.
#[derive(Clone, Debug, Args)]
pub struct Hop {
    #[arg(value_enum)]
    pub kind: HopKind,

    #[arg(long)]
    pub listen: SocketAddr,

    /// Keeps sessions in this database.
    #[arg(long)]
    pub database_url: Option<String>,

    /// Counts requests in this Redis.
    #[arg(long)]
    pub redis_url: Option<String>,

    /// Asks this hop before anything else.
    #[arg(long)]
    pub limits_url: Option<String>,

    /// Leaves the work to this hop.
    #[arg(long)]
    pub sessions_url: Option<String>,

    /// Posts what was inserted to this address, signed.
    #[arg(long)]
    pub post_url: Option<String>,

    /// How often each is posted.
    #[arg(long, default_value_t = 1)]
    pub posts: u8,

    /// How often a row is updated after it was posted.
    #[arg(long, default_value_t = 0)]
    pub updates: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum HopKind {
    /// HTTP and JSON, like the gateway; also whoever is called over HTTP.
    Edge,
    /// Like ratelimit-svc.
    Limits,
    /// Like sessions-svc, or any other service with a database.
    Sessions,
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}
