//! gRPC over a few connections, since one alone may be the bottleneck of the load tester.

use std::time::Duration;

use chassis::{
    config::Tls,
    grpc::{self, Channel},
};
use tonic::Status;

use crate::{engine::turn, plan::Code};

const CONNECTIONS: usize = 4;

/// A channel's own limit, longer than the engine's.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Several channels to one service.
pub struct Channels(Vec<Channel>);

impl Channels {
    pub fn connect(url: &str) -> anyhow::Result<Self> {
        let channels = (0..CONNECTIONS).map(|_| connect(url));
        Ok(Self(channels.collect::<anyhow::Result<_>>()?))
    }

    /// The channel of the `n`th request.
    pub fn of(&self, n: u64) -> Channel {
        turn(&self.0, n).clone()
    }
}

/// One channel, for preparations.
pub fn connect(url: &str) -> anyhow::Result<Channel> {
    grpc::connect(url, &Tls::default(), ANSWER_MAX)
}

/// A status as the code of a failed request.
pub fn code(status: &Status) -> Code {
    match grpc::reason(status) {
        Some(reason) => Code::Owned(format!("{:?} {reason}", status.code())),
        None => Code::Owned(format!("{:?}", status.code())),
    }
}
