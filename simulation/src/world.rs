//! One world: all replicas of every service, the rails, the webhook receiver, and the links
//! between them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicUsize},
    time::Duration,
};

use anyhow::Context as _;
use chassis::{
    clock::Timestamp,
    config::Tls,
    grpc::{self, Channel},
};
use clap::Parser;
use tokio::sync::mpsc;

use crate::{
    choice::Choices,
    driver::{Driver, DriverInputs, Running, lock},
    faults::{Faults, Rates},
    link::{Link, Targets},
    postgres_link::PostgresLink,
    rails::{RailCredentials, Rails},
    receiver::Receiver,
    replica::{Host, Replica, Skew, Start},
    routes,
    service::{Peer, Service},
    store::Store,
    time::{START_UNIX_MS, Time},
};

/// Per replica: so few that it sometimes has to wait for one.
const DATABASE_CONNECTIONS_MAX: &str = "4";

/// What merchants pay for a payout, by setting, in pesewas.
pub const PAYOUT_FEES_MINOR: [(&str, i64); 4] = [
    ("payout-fee-momo", 31),
    ("payout-fee-paystack-wallet", 52),
    ("payout-fee-paystack-bank", 73),
    ("payout-fee-hubtel", 44),
];

const STATEMENT_KEY: &str = "c2ltdWxhdGVkIHN0YXRlbWVudCBrZXksIDMyIGJ5dGU=";
const WEBHOOK_SECRET_KEY: &str = "c2ltdWxhdGVkIHdlYmhvb2sgc2VjcmV0IGtleSAzMmI=";

/// A place for one replica: what remains when the replica dies.
struct Place {
    service: Service,
    /// Its number among the replicas of its service.
    number: usize,
    skew: Skew,
    calls: Vec<(Peer, Link)>,
    database: Option<PostgresLink>,
}

/// A running world.
pub struct World {
    pub seed: u64,
    pub time: Time,
    pub rails: Rails,
    pub receiver: Receiver,
    /// The switch for the ordinary faults of every link.
    pub faults: Faults,
    pub store: Store,
    /// Merchants' backends and payers' browsers come in here.
    pub api: Link,
    pub checkout: Link,
    /// For operators, who are on the inside, where nothing is lost.
    pub inside: Inside,
    places: Vec<Place>,
    targets: Vec<(Service, Targets)>,
    /// Where they listen to operators.
    operators: Vec<(Service, Targets)>,
    pages: Targets,
    running: Running,
    statements: Arc<AtomicUsize>,
    driver: Mutex<Option<Driver>>,
    ended: mpsc::UnboundedSender<usize>,
    /// Replicas that ended by themselves.
    pub endings: Endings,
}

/// Replicas that ended by themselves and must be restarted.
pub type Endings = tokio::sync::Mutex<mpsc::UnboundedReceiver<usize>>;

/// Links without faults, to what the services serve to operators.
pub struct Inside {
    links: Vec<(Service, Link)>,
}

impl Inside {
    /// A channel to whichever replica of a service answers.
    pub fn channel(&self, service: Service) -> anyhow::Result<Channel> {
        let (_, link) = self
            .links
            .iter()
            .find(|(found, _)| *found == service)
            .context("no link leads there")?;
        grpc::connect(
            &url(link.address()),
            &Tls::default(),
            Duration::from_secs(600),
        )
    }
}

impl World {
    /// Starts everything. Returns once everything listens.
    ///
    /// # Errors
    /// A service does not start.
    pub async fn start(seed: u64, server: Option<&str>) -> anyhow::Result<Self> {
        let time = Time::starting_at(Timestamp::from_unix_millis(START_UNIX_MS)?);
        let faults = Faults::off();
        let store = Store::make(server).await?;
        let settings = RailCredentials::simulated();
        let rails = Rails::start(seed, time.clone(), settings).await?;
        let receiver = Receiver::start(seed, time.clone()).await?;
        let targets = Service::ALL.map(|service| (service, Targets::none()));
        let pages = Targets::none();
        let builder = Builder {
            seed,
            time: &time,
            faults: &faults,
            targets: &targets,
            rails: &rails,
        };
        let gateways = builder.targets_of(Service::Gateway);
        let api = builder.link("api", &gateways, faults.clone()).await?;
        let checkout = builder.link("checkout", &pages, faults.clone()).await?;
        rails.call_back_to(url(api.address()));
        let operated = Service::ALL.into_iter().filter(|of| of.has_operators());
        let operators: Vec<_> = operated.map(|of| (of, Targets::none())).collect();
        let mut inside = Vec::new();
        for (service, targets) in &operators {
            let name = format!("inside {}", service.name());
            let link =
                Link::open(&name, seed, time.clone(), Faults::off(), targets.clone()).await?;
            inside.push((*service, link));
        }
        let statements = Arc::new(AtomicUsize::new(0));
        let places = builder.places(&store, &statements).await?;
        let running = Running::default();
        let (ended, endings) = mpsc::unbounded_channel();
        let world = Self {
            ended,
            endings: Endings::new(endings),
            seed,
            time,
            rails,
            receiver,
            faults,
            store,
            api,
            checkout,
            inside: Inside { links: inside },
            places,
            targets: targets.into(),
            operators,
            pages,
            running,
            statements,
            driver: Mutex::default(),
        };
        world.start_all().await?;
        Ok(world)
    }

    /// Lets time move from now on.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn let_time_run(&self) -> std::io::Result<()> {
        let driver = Driver::start(DriverInputs {
            time: self.time.clone(),
            running: Arc::clone(&self.running),
            statements: Arc::clone(&self.statements),
            lock_waits: self.store.lock_waits(),
            simulation: tokio::runtime::Handle::current().metrics(),
            clock_file: self.store.clock_file(),
        })?;
        *lock(&self.driver) = Some(driver);
        Ok(())
    }

    async fn start_all(&self) -> anyhow::Result<()> {
        for place in 0..self.places.len() {
            self.start_replica(place).await?;
        }
        Ok(())
    }

    /// Places of replicas that may die: all that take part in payments.
    pub fn mortal(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        let mortal = places.filter(|(_, place)| place.service != Service::Ratelimit);
        mortal.map(|(number, _)| number).collect()
    }

    pub fn name_of(&self, place: usize) -> String {
        let place = &self.places[place];
        format!("{}-{}", place.service.name(), place.number)
    }

    /// The links over which a replica calls others.
    pub fn links_of(&self, place: usize) -> Vec<Link> {
        self.places[place]
            .calls
            .iter()
            .map(|(_, link)| link.clone())
            .collect()
    }

    pub fn is_charges(&self, place: usize) -> bool {
        self.places[place].service == Service::Charges
    }

    pub fn database_of(&self, place: usize) -> Option<&PostgresLink> {
        self.places[place].database.as_ref()
    }

    /// Starts a replica in a place where none runs.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_replica(&self, place: usize) -> anyhow::Result<()> {
        let at = &self.places[place];
        for (_, link) in &at.calls {
            link.mend();
        }
        if let Some(database) = &at.database {
            database.mend();
        }
        let start = Start {
            name: self.name_of(place),
            now: self.time.timestamp(),
            skew: at.skew,
            sockets: at.service.sockets(),
            place,
            ended: self.ended.clone(),
        };
        let replica = self.launch(at, start).await?;
        let addresses = replica.addresses.clone();
        lock(&self.running).insert(place, replica);
        self.targets_of(at.service).set(at.number, addresses[0]);
        if let Some(other) = addresses.get(1) {
            self.other_targets_of(at.service).set(at.number, *other);
        }
        Ok(())
    }

    /// Ends a replica wherever it is. Nobody sees what it still sends.
    ///
    /// # Errors
    /// It had ended by itself.
    pub async fn crash(&self, place: usize) -> anyhow::Result<()> {
        let at = &self.places[place];
        let Some(replica) = lock(&self.running).remove(&place) else {
            return Ok(());
        };
        for (_, link) in &at.calls {
            link.cut();
        }
        if let Some(database) = &at.database {
            database.cut();
        }
        self.targets_of(at.service).down(at.number);
        if at.service.sockets() > 1 {
            self.other_targets_of(at.service).down(at.number);
        }
        replica
            .crash()
            .await
            .with_context(|| format!("{} ended by itself", self.name_of(place)))
    }

    /// Places of replicas whose host's clock may be wrong because a store tells them the time.
    pub fn aligned(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        let aligned = places.filter(|(_, place)| place.database.is_some());
        aligned.map(|(number, _)| number).collect()
    }

    /// Sets the clock of a replica's host, if it runs.
    pub fn step_host(&self, place: usize, by_ms: i64) {
        if let Some(replica) = lock(&self.running).get(&place) {
            replica.clock.step_host(by_ms);
        }
    }

    /// Lets time stand still for good. Returns how many steps it took.
    pub fn stop_time(&self) -> u64 {
        let driver = lock(&self.driver).take();
        driver.map(Driver::stop).unwrap_or_default()
    }

    /// Ends everything.
    ///
    /// # Errors
    /// A service had ended by itself, or the databases cannot be dropped.
    pub async fn stop(self) -> anyhow::Result<()> {
        for place in 0..self.places.len() {
            self.crash(place).await?;
        }
        self.store.drop_databases().await
    }

    fn targets_of(&self, service: Service) -> &Targets {
        let found = self.targets.iter().find(|(found, _)| *found == service);
        &found.expect("every service has targets").1
    }

    /// What its second socket is for.
    fn other_targets_of(&self, service: Service) -> &Targets {
        let mut operators = self.operators.iter();
        let found = operators.find(|(found, _)| *found == service);
        found.map_or(&self.pages, |(_, targets)| targets)
    }

    async fn launch(&self, at: &Place, start: Start) -> anyhow::Result<Replica> {
        let flags = self.flags(at);
        match at.service {
            Service::Merchants => {
                let config = parse("merchants-svc", &flags)?;
                Replica::start(start, |host| {
                    let (sockets, clock, shutdown) = split(host);
                    merchants_svc::serve(config, sockets, clock, shutdown)
                })
                .await
            }
            Service::Ratelimit => {
                let config = parse("ratelimit-svc", &flags)?;
                Replica::start(start, |host| {
                    let (sockets, clock, shutdown) = split(host);
                    ratelimit_svc::serve(config, sockets, clock, shutdown)
                })
                .await
            }
            Service::Webhooks => {
                let config = parse("webhooks-svc", &flags)?;
                Replica::start(start, |host| {
                    let (sockets, clock, shutdown) = split(host);
                    webhooks_svc::serve(config, sockets, clock, shutdown)
                })
                .await
            }
            Service::Sessions => {
                let config = parse("sessions-svc", &flags)?;
                Replica::start(start, |host| {
                    let (sockets, clock, shutdown) = split(host);
                    sessions_svc::serve(config, sockets, clock, shutdown)
                })
                .await
            }
            Service::Charges => {
                let config = parse("charges-svc", &flags)?;
                Replica::start(start, |host| {
                    let (sockets, clock, shutdown) = split(host);
                    charges_svc::serve(config, sockets, clock, shutdown)
                })
                .await
            }
            Service::Gateway => {
                let config = parse("gateway", &flags)?;
                Replica::start(start, |host| {
                    let Host {
                        listeners,
                        clock,
                        shutdown,
                    } = host;
                    let [api, checkout, dashboard] =
                        listeners.try_into().expect("three sockets were bound");
                    let sockets = gateway::Sockets {
                        api,
                        checkout,
                        dashboard,
                        admin: None,
                    };
                    gateway::serve(config, sockets, clock, shutdown)
                })
                .await
            }
        }
    }

    /// Some minutes after the world begins, each day.
    fn settlement_time(&self) -> String {
        let mut choices = Choices::of(self.seed, "settlement time");
        let after_nine = choices.between(1, 40);
        format!("{}m", 9 * 60 + after_nine)
    }

    fn flags(&self, at: &Place) -> Vec<String> {
        let call = |wanted: Peer| {
            let link = at.calls.iter().find(|(peer, _)| *peer == wanted);
            url(link.expect("a link to each peer").1.address())
        };
        let flag = |name: &str, value: &str| format!("--{name}={value}");
        let mut flags = Vec::new();
        if at.service.has_database() {
            let link = at.database.as_ref().map(PostgresLink::address);
            flags.push(flag(
                "database-url",
                &self.store.url(at.service.name(), link),
            ));
            flags.push(flag("database-max-connections", DATABASE_CONNECTIONS_MAX));
        }
        for (peer, _) in &at.calls {
            let name = match peer {
                Peer::Service(service) => format!("{}-url", service.name()),
                Peer::Momo => "momo-base-url".to_owned(),
                Peer::Paystack => "paystack-base-url".to_owned(),
                Peer::Hubtel => "hubtel-base-url".to_owned(),
            };
            flags.push(flag(&name, &call(*peer)));
        }
        match at.service {
            Service::Charges => {
                let credentials = RailCredentials::simulated();
                let known = credentials.settings();
                flags.extend(known.iter().map(|(name, value)| flag(name, value)));
                flags.extend([
                    flag("callback-base-url", &url(self.api.address())),
                    flag("paystack-email-domain", "payers.example.com"),
                    flag("settlement-time", &self.settlement_time()),
                    flag("statement-key", STATEMENT_KEY),
                ]);
                let routes = routes::at(self.seed, self.time.now());
                flags.extend(routes.map(|(name, rail)| flag(name, rail.name())));
                let fees = PAYOUT_FEES_MINOR.iter();
                flags.extend(fees.map(|(name, minor)| flag(name, &format!("0.{minor}"))));
            }
            Service::Webhooks => flags.extend([
                flag("webhook-secret-key", WEBHOOK_SECRET_KEY),
                flag("webhook-allow-http", "true"),
                flag("webhook-allow-nets", "127.0.0.0/8"),
            ]),
            Service::Gateway => flags.extend([
                flag("checkout-url", &url(self.checkout.address())),
                flag("auth-failures-per-minute", "0"),
                flag("checkout-rates", "USD=12.50"),
                flag("checkout-tries-per-session", "0"),
                flag("checkout-tries-per-address", "0"),
                flag("checkout-tries-per-number", "0"),
                flag("checkout-unknown-per-address", "0"),
            ]),
            Service::Merchants | Service::Ratelimit | Service::Sessions => {}
        }
        flags
    }
}

/// Makes the links.
struct Builder<'w> {
    seed: u64,
    time: &'w Time,
    faults: &'w Faults,
    targets: &'w [(Service, Targets)],
    rails: &'w Rails,
}

impl Builder<'_> {
    fn targets_of(&self, service: Service) -> Targets {
        let found = self.targets.iter().find(|(found, _)| *found == service);
        found.expect("every service has targets").1.clone()
    }

    async fn link(&self, name: &str, to: &Targets, faults: Faults) -> anyhow::Result<Link> {
        let time = self.time.clone();
        Link::open(name, self.seed, time, faults, to.clone()).await
    }

    async fn places(
        &self,
        store: &Store,
        statements: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Vec<Place>> {
        let to_rails = self.faults.with(Rates::RAIL);
        let mut places = Vec::new();
        for service in Service::ALL {
            for number in 0..service.replicas(store.is_postgres()) {
                let name = format!("{}-{number}", service.name());
                let mut calls = Vec::new();
                for peer in service.calls() {
                    let (to, faults) = match peer {
                        Peer::Service(service) => (self.targets_of(*service), self.faults.clone()),
                        Peer::Momo => (Targets::fixed(self.rails.momo()), to_rails.clone()),
                        Peer::Paystack => (Targets::fixed(self.rails.paystack()), to_rails.clone()),
                        Peer::Hubtel => (Targets::fixed(self.rails.hubtel()), to_rails.clone()),
                    };
                    let link = self.link(&format!("{name} {peer:?}"), &to, faults).await?;
                    calls.push((*peer, link));
                }
                let server = store.server().filter(|_| service.has_database());
                let database = match server {
                    Some(server) => {
                        let (time, faults) = (self.time.clone(), self.faults.clone());
                        let statements = Arc::clone(statements);
                        let link =
                            PostgresLink::open(&name, self.seed, time, faults, server, statements);
                        Some(link.await?)
                    }
                    None => None,
                };
                let skew = self.skew(&name, store.is_postgres() && service.has_database());
                places.push(Place {
                    service,
                    number,
                    skew,
                    calls,
                    database,
                });
            }
        }
        Ok(places)
    }

    /// Draws a host's clock: up to a minute off if a store can tell the replica the time.
    fn skew(&self, name: &str, is_aligned: bool) -> Skew {
        let mut choices = Choices::of(self.seed, &format!("clock {name}"));
        if !is_aligned || choices.chance(300) {
            return Skew::default();
        }
        let signed = |value: u64, most: i64| i64::try_from(value).unwrap_or_default() - most;
        Skew {
            ahead_ms: signed(choices.below(120_001), 60_000),
            drift_ppm: signed(choices.below(401), 200),
        }
    }
}

fn split(
    host: Host,
) -> (
    grpc::Sockets,
    chassis::clock::Clock,
    chassis::shutdown::Shutdown,
) {
    let Host {
        listeners,
        clock,
        shutdown,
    } = host;
    let mut listeners = listeners.into_iter();
    let sockets = grpc::Sockets {
        grpc: listeners.next().expect("a socket was bound"),
        operators: listeners.next(),
        admin: None,
    };
    (sockets, clock, shutdown)
}

/// Parses a service's settings from our flags, with defaults for the rest.
fn parse<C: Parser>(name: &str, flags: &[String]) -> anyhow::Result<C> {
    let words = std::iter::once(name).chain(flags.iter().map(String::as_str));
    C::try_parse_from(words).with_context(|| format!("the settings of {name}"))
}

pub fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}
