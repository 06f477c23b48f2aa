//! What the handlers of the JSON API and of callbacks share.

use std::sync::Arc;

use chassis::{clock::Clock, config::Mode, grpc::BatchedCalls};
use ipnet::IpNet;
use proto::{
    charges::{
        charges_client::ChargesClient, disbursements_client::DisbursementsClient,
        statements_client::StatementsClient,
    },
    merchants::merchants_client::MerchantsClient,
    sessions::sessions_client::SessionsClient,
    webhooks::merchant_events_client::MerchantEventsClient,
};

use crate::{
    api::alias::Alias,
    auth::MerchantKeys,
    backend::{
        Backend, ChargeReads, Charges, DEADLINE, Disbursements, MerchantEvents, NewSessions,
        SessionReads, Sessions, Statements,
    },
    callback_headers::CallbackHeaders,
    channels::Channels,
    checkout::quote::ExchangeRates,
    config::Config,
    guesses::{Guesses, Limit},
    limits::RateLimits,
    room::Room,
    watch::ChargeWatches,
};

/// Most statements that are passed on at once, of which one merchant has half. Each is read from the
/// store anew.
const STATEMENTS_MAX: usize = 16;

#[derive(Debug)]
pub struct Edge {
    pub keys: MerchantKeys,
    pub rate_limits: RateLimits,
    pub sessions: Sessions,
    pub new_sessions: NewSessions,
    pub session_reads: SessionReads,
    pub charges: Charges,
    pub charge_reads: ChargeReads,
    pub disbursements: Disbursements,
    pub events: MerchantEvents,
    pub statements: Statements,
    /// For statements that are being passed on: a request's own place ends with its answer's head.
    pub statements_room: Arc<Room>,
    pub charge_watches: ChargeWatches,
    pub callback_guesses: Guesses,
    pub callback_headers: CallbackHeaders,
    /// Which currencies can be paid at the checkout.
    pub rates: ExchangeRates,
    /// Without a trailing slash.
    pub checkout_url: String,
    pub alias: Alias,
    pub trusted_proxies: Vec<IpNet>,
    pub mode: Mode,
}

impl Edge {
    pub fn new(config: Config, channels: Channels, clock: Clock) -> anyhow::Result<Self> {
        let merchants = Backend::new("merchants", MerchantsClient::new(channels.merchants));
        let guesses =
            |most| Guesses::new(Limit::per_minute(most), config.requests_max, clock.clone());
        let key_guesses = guesses(config.auth_failures_per_minute);
        let callback_guesses = guesses(config.callback_failures_per_minute);
        let sessions = SessionsClient::new(channels.sessions.clone());
        let sessions = Backend::new("sessions", sessions);
        let new_sessions = BatchedCalls::new(channels.sessions.clone(), DEADLINE);
        let session_reads = BatchedCalls::new(channels.sessions, DEADLINE);
        let charges = Backend::new("charges", ChargesClient::new(channels.charges.clone()));
        let charge_reads = BatchedCalls::new(channels.charges.clone(), DEADLINE);
        let disbursements = DisbursementsClient::new(channels.charges);
        let events = MerchantEventsClient::new(channels.webhooks);
        let statements = StatementsClient::new(channels.statements);
        Ok(Self {
            keys: MerchantKeys::new(merchants, key_guesses, config.mode),
            rate_limits: RateLimits::new(channels.rate_limits, config.ratelimit_timeout),
            new_sessions: sessions.with(new_sessions),
            sessions,
            // Reads have budgets of their own, and so leave repeats to what must not stay unknown.
            session_reads: Backend::new("sessions", session_reads),
            charges,
            charge_reads: Backend::new("charges", charge_reads),
            disbursements: Backend::new("disbursements", disbursements),
            events: Backend::new("webhooks", events),
            statements: Backend::new("statements", statements),
            statements_room: Arc::new(Room::of_requests(STATEMENTS_MAX)),
            charge_watches: ChargeWatches::default(),
            callback_guesses,
            callback_headers: CallbackHeaders::new(),
            rates: ExchangeRates::new(&config.checkout_rates),
            checkout_url: config
                .checkout_url
                .as_str()
                .trim_end_matches('/')
                .to_owned(),
            alias: Alias::new(config.alias_deprecated_at, config.alias_sunset)?,
            trusted_proxies: config.trusted_proxies(),
            mode: config.mode,
        })
    }
}
