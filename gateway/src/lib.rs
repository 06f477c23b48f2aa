//! The edge: the only process that speaks HTTP to merchants, payers and rails. It has no database.
//!
//! It owns the pages of the hosted checkout and of the dashboard, the JSON API (shapes, input rules, error bodies) and
//! admission (keys, rates, verification), and nothing else: for the facts it asks the services. It
//! promises that a request is carried out at most once under one key, whatever the gateway repeats,
//! and that it never reports a failure when it does not know the outcome.

pub mod config;

mod api;
mod auth;
mod backend;
mod callback_headers;
mod channels;
mod checkout;
mod client_address;
mod dashboard;
mod docs;
mod edge;
mod error;
mod field_error;
mod front;
mod guesses;
mod in_hand;
mod limits;
mod merchant;
mod pages;
mod rails;
mod room;
mod watch;

use std::{net::IpAddr, sync::Arc};

use anyhow::bail;
use axum::{Router, middleware, routing};
use chassis::{
    admin,
    clock::Clock,
    grpc,
    http::{self, Limits},
    shutdown::Shutdown,
};
use proto::{
    charges::charges_client::ChargesClient,
    merchants::merchants_client::MerchantsClient,
    sessions::{checkout_sessions_client::CheckoutSessionsClient, sessions_client::SessionsClient},
};
use tokio::net::TcpListener;

use crate::{
    backend::Backend,
    channels::Channels,
    checkout::{Checkout, abuse::Abuse, quote::ExchangeRates},
    client_address::network,
    config::Config,
    dashboard::Dashboard,
    edge::Edge,
    error::Error,
    front::Front,
    guesses::Guesses,
    in_hand::WaitingRoom,
};

/// Connections for each request that may run. They leave room for idle ones: payers' browsers and
/// merchants' clients keep theirs open after an answer.
const CONNECTIONS_PER_REQUEST: usize = 2;

/// Fewest connections, even if few requests may run: idle connections cost little.
const CONNECTIONS_MIN: usize = 256;

/// Most connections, besides those of requests that wait for something to happen. Each may hold a
/// head of 32 KiB, a body of 64 KiB and 32 KiB of them just read: 128 KiB.
const CONNECTIONS_MAX: usize = 10_000;

/// The connections of one public address may use 1/`OPEN_FILES_SHARE` of the files that the process
/// may open. The three together use three quarters, which leaves the rest for connections to the
/// services.
const OPEN_FILES_SHARE: usize = 4;

/// 1/`WAITING_PER_ADDRESS_SHARE` of the connections that are not for waits may be idle ones of one
/// client address.
const WAITING_PER_ADDRESS_SHARE: usize = 2;

/// 1/`WAITS_SHARE` of the connections may be those of requests that wait for something to happen,
/// so that the others are left even where the system allows few.
const WAITS_SHARE: usize = 2;

/// The gateway's bound sockets.
#[derive(Debug)]
pub struct Sockets {
    pub api: TcpListener,
    pub checkout: TcpListener,
    pub dashboard: TcpListener,
    pub admin: Option<TcpListener>,
}

impl Sockets {
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let api = grpc::bind("API_LISTEN", config.api_listen).await?;
        let checkout = grpc::bind("CHECKOUT_LISTEN", config.checkout_listen).await?;
        let dashboard = grpc::bind("DASHBOARD_LISTEN", config.dashboard_listen).await?;
        let admin = grpc::bind_admin(config.admin_listen).await?;
        Ok(Self {
            api,
            checkout,
            dashboard,
            admin,
        })
    }
}

/// Serves until the process stops. The services need not be up yet; until they are, requests are
/// answered 503.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    chassis::config::check(&config)?;
    // Nobody waits at the pages.
    let (api_limits, pages_limits) = (limits(&config, config.waits_max), limits(&config, 0));
    let waits_max = config
        .waits_max
        .min(api_limits.connections_max / WAITS_SHARE);
    let waiting = WaitingRoom::new(waits_max, &clock, &shutdown);
    // The API, the checkout and the dashboard each have room of their own.
    let proxies = config.trusted_proxies();
    let front = || Front::new(config.requests_max, waiting.clone(), &proxies);
    let (api_front, checkout_front, dashboard_front) = (front(), front(), front());
    let channels = Channels::connect(&config)?;
    let readiness = channels.readiness();
    let replicas = channels.charges.replicas();
    let checkout = checkout::router(
        Arc::new(checkout(&config, &channels, &clock)),
        checkout_front,
    );
    let dashboard = dashboard::router(
        Arc::new(Dashboard::new(&config, &channels, &clock)),
        dashboard_front,
    );
    let edge = Arc::new(Edge::new(config, channels, clock)?);
    let watching = edge.charge_watches.clone().keep(replicas);
    let router = router(edge, api_front);
    let api = http::serve(router, sockets.api, api_limits, shutdown.clone());
    let pages =
        |router, socket| http::serve(router, socket, pages_limits.clone(), shutdown.clone());
    let checkout = pages(checkout, sockets.checkout);
    let dashboard = pages(dashboard, sockets.dashboard);
    let all = async {
        let (api, checkout, dashboard) = tokio::join!(
            shutdown.begin_on_failure(api),
            shutdown.begin_on_failure(checkout),
            shutdown.begin_on_failure(dashboard),
        );
        api.and(checkout).and(dashboard)
    };
    let all = async {
        tokio::select! {
            served = all => served,
            () = watching => bail!("the replicas of charges-svc are no longer looked up"),
        }
    };
    admin::beside(all, sockets.admin, readiness, shutdown.clone()).await
}

/// What clients may use of one of the two public addresses, at which so many requests may wait.
fn limits(config: &Config, waits_max: usize) -> Limits {
    let files_max = http::raise_open_files_max() / OPEN_FILES_SHARE;
    let of_requests = config.requests_max.saturating_mul(CONNECTIONS_PER_REQUEST);
    let of_requests = of_requests
        .clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
        .min(files_max);
    let proxies = config.trusted_proxies();
    let is_proxy = move |peer: IpAddr| proxies.iter().any(|net| net.contains(&peer));
    Limits {
        connections_max: of_requests.saturating_add(waits_max).min(files_max),
        waiting_max: of_requests,
        waiting_per_address_max: of_requests / WAITING_PER_ADDRESS_SHARE,
        counted_as: Arc::new(move |peer| {
            let peer = peer.to_canonical();
            (!is_proxy(peer)).then(|| network(peer))
        }),
        ..Limits::default()
    }
}

/// What the pages of the checkout share.
fn checkout(config: &Config, channels: &Channels, clock: &Clock) -> Checkout {
    let merchants = MerchantsClient::new(channels.merchants.clone());
    let sessions = CheckoutSessionsClient::new(channels.sessions.clone());
    let charges = ChargesClient::new(channels.charges.clone());
    Checkout {
        merchants: Backend::new("merchants", merchants),
        sessions: Backend::new("sessions", sessions),
        previous_sessions: SessionsClient::new(channels.sessions.clone()),
        charges: Backend::new("charges", charges),
        rates: ExchangeRates::new(&config.checkout_rates),
        rescue: config.checkout_rescue.clone().unwrap_or_default(),
        abuse: Abuse::new(config.abuse, clock.clone()),
        guesses: Guesses::new(config.abuse.unknown(), config.requests_max, clock.clone()),
        clock: clock.clone(),
        trusted_proxies: config.trusted_proxies(),
    }
}

/// All routes of the API's address, and the answers everywhere else.
fn router(edge: Arc<Edge>, front: Front) -> Router {
    Router::new()
        .merge(api::routes(&edge))
        .merge(rails::routes())
        .route("/docs", routing::get(docs::serve))
        .fallback(async || Error::NotFound)
        .method_not_allowed_fallback(async || Error::MethodNotAllowed)
        .layer(middleware::from_fn_with_state(front, front::pass))
        .with_state(edge)
}
