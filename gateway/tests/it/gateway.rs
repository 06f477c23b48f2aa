//! A running gateway in front of services whose answers the test gives.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use chassis::{
    admin::Readiness,
    api_key::ApiKey,
    clock::Clock,
    config::Tls,
    grpc,
    shutdown::{Shutdown, Tasks},
};
use clap::Parser as _;
use gateway::config::Config;
use proto::{
    charges::charges_server::ChargesServer, merchants::merchants_server::MerchantsServer,
    ratelimit::rate_limits_server::RateLimitsServer, sessions::sessions_server::SessionsServer,
};
use tokio::net::TcpListener;
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

pub struct Gateway {
    pub address: SocketAddr,
    /// The address of the hosted checkout.
    pub checkout: SocketAddr,
    pub admin: SocketAddr,
    /// Where the services listen.
    pub behind: SocketAddr,
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
        let shutdown = Shutdown::new();
        let tasks = Tasks::new();
        let behind = serve_services(services.clone(), &tasks, shutdown.clone()).await;
        let url = format!("http://{behind}");
        let [address, checkout, admin] = serve_gateway(&url, flags, &tasks, shutdown.clone()).await;
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

/// All four services on one address.
async fn serve_services(services: Arc<Services>, tasks: &Tasks, shutdown: Shutdown) -> SocketAddr {
    let listener = listen().await;
    let address = listener.local_addr().expect("a bound address");
    let served = Served(services);
    let routes = Routes::new(MerchantsServer::new(served.clone()))
        .add_service(RateLimitsServer::new(served.clone()))
        .add_service(SessionsServer::new(served.clone()))
        .add_service(ChargesServer::new(served));
    let serving = grpc::Serving {
        sockets: grpc::Sockets {
            grpc: listener,
            admin: None,
        },
        tls: Tls::default(),
        reflection: false,
        readiness: Readiness::new(),
        clock: Clock::system(),
        shutdown,
    };
    tasks.spawn(async {
        grpc::serve(routes, serving)
            .await
            .expect("the services serve")
    });
    address
}

async fn serve_gateway(
    url: &str,
    flags: &[&str],
    tasks: &Tasks,
    shutdown: Shutdown,
) -> [SocketAddr; 3] {
    let sockets = gateway::Sockets {
        api: listen().await,
        checkout: listen().await,
        admin: Some(listen().await),
    };
    let address = |listener: &TcpListener| listener.local_addr().expect("a bound address");
    let (api, checkout) = (address(&sockets.api), address(&sockets.checkout));
    let admin = sockets
        .admin
        .as_ref()
        .map(address)
        .expect("an admin address");
    let settings = [
        ("--merchants-url", url),
        ("--sessions-url", url),
        ("--charges-url", url),
        ("--ratelimit-url", url),
        ("--checkout-url", "https://pay.example.com/"),
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
    tasks.spawn(async { serving.await.expect("the gateway serves") });
    [api, checkout, admin]
}

pub async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port")
}

/// Waits until something holds; panics after ten seconds.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.unwrap_or_else(|_| panic!("never came true: {what}"));
}
