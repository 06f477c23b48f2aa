//! A running gateway in front of services whose answers the test gives.

use std::{net::SocketAddr, sync::Arc};

use chassis::{
    api_key::ApiKey,
    clock::Clock,
    shutdown::{Shutdown, Tasks},
    testing::{ServedService, address, listen},
};
use clap::Parser as _;
use gateway::config::Config;
use proto::{
    batch::batches_server::BatchesServer,
    charges::{
        charges_server::ChargesServer, disbursements_server::DisbursementsServer,
        statements_server::StatementsServer,
    },
    merchants::merchants_server::MerchantsServer,
    ratelimit::rate_limits_server::RateLimitsServer,
    sessions::{checkout_sessions_server::CheckoutSessionsServer, sessions_server::SessionsServer},
    webhooks::merchant_events_server::MerchantEventsServer,
};
use tonic::service::Routes;

use crate::{
    http::{Answer, Request},
    services::{Served, Services},
};

/// The discard port of this machine, on which nobody listens.
pub const NOBODY: &str = "http://127.0.0.1:9";

pub const INITIATE: &str = "/api/v1/payments/initiate";
pub const ALIAS: &str = "/api/payments/initiate";
pub const CHARGE: &str = "/api/v1/payments/charge";
pub const SUBMIT_OTP: &str = "/api/v1/payments/charge/submit-otp";
pub const PREFLIGHT: &str = "/api/v1/payments/charge/preflight";
pub const PAYOUTS: &str = "/api/v1/payouts";
/// With a charge's reference in the place of `{reference}`.
pub const REFUNDS: &str = "/api/v1/payments/charge/{reference}/refunds";

/// The flags of a gateway in production.
pub const PRODUCTION: [&str; 8] = [
    "--mode",
    "production",
    "--auth-failures-per-minute",
    "600",
    "--trusted-proxies",
    "none",
    "--support-email",
    "help@example.com",
];

pub struct Gateway {
    pub address: SocketAddr,
    /// The address of the hosted checkout.
    pub checkout: SocketAddr,
    pub admin: SocketAddr,
    /// The services, on one address.
    pub behind: ServedService,
    pub services: Arc<Services>,
    /// The merchant's key.
    pub key: ApiKey,
    stop: Stop,
}

/// Stops the servers when the test ends.
struct Stop(Shutdown);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.begin();
    }
}

impl Gateway {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a gateway with more flags, which override those of the tests.
    pub async fn start_with(flags: &[&str]) -> Self {
        let services = Arc::new(Services::new());
        let behind = serve_services(services.clone()).await;
        let shutdown = Shutdown::new();
        let url = behind.url();
        let [address, checkout, admin] = serve_gateway(&url, flags, shutdown.clone()).await;
        Self {
            address,
            checkout,
            admin,
            behind,
            services,
            key: ApiKey::generate(),
            stop: Stop(shutdown),
        }
    }

    /// Begins to stop, as on SIGTERM.
    pub fn stop(&self) {
        self.stop.0.begin();
    }

    /// A request without a key.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    /// A request with the merchant's key.
    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path).key(self.key.expose())
    }

    /// A request with the merchant's key and a JSON body.
    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Request {
        self.request("POST", path).key(self.key.expose()).json(body)
    }

    pub async fn initiate(&self, body: impl AsRef<[u8]>) -> Answer {
        self.post(INITIATE, body).send().await
    }

    pub async fn charge(&self, body: impl AsRef<[u8]>) -> Answer {
        self.post(CHARGE, body).send().await
    }
}

/// All services on one address.
async fn serve_services(services: Arc<Services>) -> ServedService {
    let served = Served(services);
    let routes = Routes::new(MerchantsServer::new(served.clone()))
        .add_service(RateLimitsServer::new(served.clone()))
        .add_service(BatchesServer::new(served.clone()))
        .add_service(SessionsServer::new(served.clone()))
        .add_service(CheckoutSessionsServer::new(served.clone()))
        .add_service(DisbursementsServer::new(served.clone()))
        .add_service(MerchantEventsServer::new(served.clone()))
        .add_service(StatementsServer::new(served.clone()))
        .add_service(ChargesServer::new(served));
    ServedService::of(routes).await
}

async fn serve_gateway(url: &str, flags: &[&str], shutdown: Shutdown) -> [SocketAddr; 3] {
    let (api, checkout, admin) = (listen().await, listen().await, listen().await);
    let addresses = [&api, &checkout, &admin].map(address);
    let sockets = gateway::Sockets {
        api,
        checkout,
        dashboard: listen().await,
        admin: Some(admin),
    };
    let settings = [
        ("--merchants-url", url),
        ("--sessions-url", url),
        ("--charges-url", url),
        ("--webhooks-url", url),
        ("--ratelimit-url", url),
        // Long, because a machine that is busy with other tests is not an outage.
        ("--ratelimit-timeout", "10s"),
        ("--checkout-url", "https://pay.example.com/"),
        ("--dashboard-url", "https://dashboard.example.com/"),
        ("--api-url", "https://api.example.com/"),
        ("--checkout-rates", "USD=12.50"),
        ("--auth-failures-per-minute", "0"),
    ];
    let is_given = |flag: &str| flags.contains(&flag);
    let settings = settings.iter().filter(|(flag, _)| !is_given(flag));
    let arguments = ["gateway"]
        .into_iter()
        .chain(settings.flat_map(|(flag, value)| [*flag, *value]))
        .chain(flags.iter().copied());
    let config = Config::try_parse_from(arguments).expect("the flags are right");
    let serving = gateway::serve(config, sockets, Clock::system(), shutdown);
    Tasks::new().spawn(async { serving.await.expect("the gateway serves") });
    addresses
}
