//! The services of a world: how many replicas each has, and whom it calls.

/// The services, in the order in which they are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Merchants,
    Ratelimit,
    Webhooks,
    Sessions,
    Charges,
    Gateway,
}

impl Service {
    pub const ALL: [Self; 6] = [
        Self::Merchants,
        Self::Ratelimit,
        Self::Webhooks,
        Self::Sessions,
        Self::Charges,
        Self::Gateway,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Merchants => "merchants",
            Self::Ratelimit => "ratelimit",
            Self::Webhooks => "webhooks",
            Self::Sessions => "sessions",
            Self::Charges => "charges",
            Self::Gateway => "gateway",
        }
    }

    /// SQLite allows one process at a time.
    pub fn replicas(self, on_postgres: bool) -> usize {
        match self {
            Self::Merchants | Self::Ratelimit => 1,
            Self::Webhooks | Self::Sessions | Self::Charges if !on_postgres => 1,
            Self::Webhooks | Self::Sessions | Self::Charges | Self::Gateway => 2,
        }
    }

    pub fn has_database(self) -> bool {
        match self {
            Self::Merchants | Self::Webhooks | Self::Sessions | Self::Charges => true,
            Self::Ratelimit | Self::Gateway => false,
        }
    }

    /// Whether it serves operators, at a socket of their own.
    pub fn has_operators(self) -> bool {
        match self {
            Self::Merchants | Self::Webhooks | Self::Charges => true,
            Self::Ratelimit | Self::Sessions | Self::Gateway => false,
        }
    }

    /// The sockets at which it listens.
    pub fn sockets(self) -> usize {
        match self {
            Self::Gateway => 3,
            _ => 1 + usize::from(self.has_operators()),
        }
    }

    /// The peers that it calls.
    pub fn calls(self) -> &'static [Peer] {
        match self {
            Self::Merchants | Self::Ratelimit => &[],
            Self::Webhooks => &[Peer::Service(Self::Merchants)],
            Self::Sessions => &[Peer::Service(Self::Webhooks)],
            Self::Charges => &[
                Peer::Service(Self::Sessions),
                Peer::Service(Self::Webhooks),
                Peer::Service(Self::Merchants),
                Peer::Momo,
                Peer::Paystack,
                Peer::Hubtel,
            ],
            Self::Gateway => &[
                Peer::Service(Self::Merchants),
                Peer::Service(Self::Ratelimit),
                Peer::Service(Self::Sessions),
                Peer::Service(Self::Charges),
                Peer::Service(Self::Webhooks),
            ],
        }
    }
}

/// The peer at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Service(Service),
    Momo,
    Paystack,
    Hubtel,
}
