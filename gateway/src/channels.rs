//! The channels to the services.

use chassis::{
    admin::Readiness,
    grpc::{self, Channel},
};

use crate::{
    backend::{DEADLINE, RAIL_DEADLINE, WAIT_DEADLINE},
    config::Config,
};

pub struct Channels {
    pub merchants: Channel,
    pub sessions: Channel,
    pub charges: Channel,
    /// The same service, over a connection of its own: who reads a statement slowly then holds up no
    /// charge.
    pub statements: Channel,
    pub webhooks: Channel,
    pub rate_limits: Channel,
}

impl Channels {
    pub fn connect(config: &Config) -> anyhow::Result<Self> {
        let connect = |url: &str, answer_max| grpc::connect(url, &config.tls, answer_max);
        // Only a `Backend` repeats their calls.
        let once = |url: &str, answer_max| connect(url, answer_max).map(Channel::without_repeats);
        Ok(Self {
            merchants: once(&config.merchants_url, DEADLINE)?,
            sessions: once(&config.sessions_url, DEADLINE)?,
            charges: once(&config.charges_url, RAIL_DEADLINE)?,
            statements: once(&config.charges_url, DEADLINE)?,
            webhooks: once(&config.webhooks_url, WAIT_DEADLINE)?,
            rate_limits: connect(&config.ratelimit_url, config.ratelimit_timeout)?,
        })
    }

    /// The gateway can do nothing without these services. It can do without rate limits, and take
    /// payments without events.
    pub fn readiness(&self) -> Readiness {
        let serves = |channel: &Channel| {
            let channel = channel.clone();
            move || {
                let channel = channel.clone();
                async move { channel.is_serving().await }
            }
        };
        Readiness::new()
            .check("merchants", serves(&self.merchants))
            .check("sessions", serves(&self.sessions))
            .check("charges", serves(&self.charges))
    }
}
