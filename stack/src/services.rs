//! Starts every service with settings under which they work together.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use chassis::{clock::Clock, config::Tls, grpc, http, shutdown::Shutdown};
use clap::Parser;
use tokio::{net::TcpListener, task::JoinSet};
use uuid::Uuid;

use crate::{
    config::Config,
    ready::{DemoMerchant, GrpcAddresses, Ready, write_private},
};

/// Longest wait until a service answers.
const START_MAX: Duration = Duration::from_secs(30);

/// Interval of polling whether a service answers.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The credentials between the embedded networks and their clients. They are not secret: the
/// networks are simulated and only listen on this machine.
const RAIL_CREDENTIALS: [&str; 12] = [
    "--momo-subscription-key=stack-momo-subscription-key",
    "--momo-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11",
    "--momo-api-key=stack-momo-api-key",
    "--momo-disbursement-subscription-key=stack-momo-disbursement-key",
    "--momo-disbursement-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a12",
    "--momo-disbursement-api-key=stack-momo-disbursement-api-key",
    "--momo-target-environment=mtnghana",
    "--paystack-secret-key=sk_test_stack",
    "--hubtel-api-id=stack-hubtel-api-id",
    "--hubtel-api-key=stack-hubtel-api-key",
    "--hubtel-pos-sales-id=2000001",
    "--hubtel-prepaid-deposit-id=3000001",
];

/// As good as none: the networks are simulated.
const QUERIES_PER_SECOND: u32 = 100_000;

/// The running services, and how to reach them.
pub struct Services {
    addresses: Addresses,
    pub merchants: grpc::Channel,
    pub merchants_operators: grpc::Channel,
    pub webhooks_operators: grpc::Channel,
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
}

/// A bound socket for everything that listens.
struct Listeners {
    merchants: grpc::Sockets,
    sessions: grpc::Sockets,
    charges: grpc::Sockets,
    webhooks: grpc::Sockets,
    ratelimit: grpc::Sockets,
    api: TcpListener,
    checkout: TcpListener,
    dashboard: TcpListener,
    handset: TcpListener,
    mail: TcpListener,
    clock: TcpListener,
}

struct Addresses {
    merchants: SocketAddr,
    sessions: SocketAddr,
    charges: SocketAddr,
    webhooks: SocketAddr,
    ratelimit: SocketAddr,
    merchants_operators: SocketAddr,
    charges_operators: SocketAddr,
    webhooks_operators: SocketAddr,
    api: SocketAddr,
    checkout: SocketAddr,
    dashboard: SocketAddr,
    handset: SocketAddr,
    mail: SocketAddr,
    clock: SocketAddr,
}

/// What starting the services needs.
struct Start<'a> {
    config: &'a Config,
    data: &'a Path,
    clock: &'a Clock,
    shutdown: &'a Shutdown,
    addresses: Addresses,
    /// The last segment of Paystack's callback address.
    paystack_token: String,
    /// The key that encrypts webhook secrets at rest.
    webhook_secret_key: String,
    /// The key that encrypts the secrets of authenticators at rest.
    totp_secret_key: String,
    /// The key that signs statements.
    statement_key: String,
}

/// Starts everything. Returns once everything answers.
pub async fn start(
    config: &Config,
    data: &Path,
    clock: &Clock,
    shutdown: &Shutdown,
) -> anyhow::Result<Services> {
    let listeners = Listeners::bind(config).await?;
    let start = Start {
        config,
        data,
        clock,
        shutdown,
        addresses: listeners.addresses()?,
        paystack_token: Uuid::new_v4().simple().to_string(),
        webhook_secret_key: secret_key(&data.join("webhook-secret-key"))?,
        totp_secret_key: secret_key(&data.join("totp-secret-key"))?,
        statement_key: secret_key(&data.join("statement-key"))?,
    };
    if config.database_url_prefix.is_some() {
        for service in ["merchants", "sessions", "charges", "webhooks"] {
            db::create_database_if_missing(&start.database_url(service))
                .await
                .with_context(|| format!("the database of {service} cannot be made"))?;
        }
    }
    let running = start.spawn_all(listeners)?;
    let mut services = Services {
        merchants: connect(start.addresses.merchants)?,
        merchants_operators: connect(start.addresses.merchants_operators)?,
        webhooks_operators: connect(start.addresses.webhooks_operators)?,
        addresses: start.addresses,
        running,
    };
    services.wait_until_ready().await?;
    Ok(services)
}

fn connect(address: SocketAddr) -> anyhow::Result<grpc::Channel> {
    grpc::connect(&url(address), &Tls::default(), Duration::from_secs(10))
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// The key stored in `file`, or a new one, which is then stored there.
fn secret_key(file: &Path) -> anyhow::Result<String> {
    match std::fs::read_to_string(file) {
        Ok(key) => Ok(key.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let bytes = [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat();
            let key = base64::engine::general_purpose::STANDARD.encode(bytes);
            write_private(file, key.as_bytes())?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}

impl Listeners {
    async fn bind(config: &Config) -> anyhow::Result<Self> {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let bind = async |name, address: SocketAddr| {
            TcpListener::bind(address)
                .await
                .with_context(|| format!("--{name} {address} cannot be listened on"))
        };
        let service = async |name| {
            anyhow::Ok(grpc::Sockets {
                grpc: bind(name, free).await?,
                operators: None,
                admin: None,
            })
        };
        let operated = async |name| {
            anyhow::Ok(grpc::Sockets {
                operators: Some(bind(name, free).await?),
                ..service(name).await?
            })
        };
        Ok(Self {
            merchants: operated("merchants").await?,
            sessions: service("sessions").await?,
            charges: operated("charges").await?,
            webhooks: operated("webhooks").await?,
            ratelimit: service("ratelimit").await?,
            api: bind("api", config.api).await?,
            checkout: bind("checkout", config.checkout).await?,
            dashboard: bind("dashboard", config.dashboard).await?,
            handset: bind("handset", config.handset).await?,
            mail: bind("mail", free).await?,
            clock: bind("clock", free).await?,
        })
    }

    fn addresses(&self) -> anyhow::Result<Addresses> {
        let operators = |sockets: &grpc::Sockets| {
            let socket = sockets.operators.as_ref().context("it is bound")?;
            anyhow::Ok(socket.local_addr()?)
        };
        Ok(Addresses {
            merchants: self.merchants.grpc.local_addr()?,
            sessions: self.sessions.grpc.local_addr()?,
            charges: self.charges.grpc.local_addr()?,
            webhooks: self.webhooks.grpc.local_addr()?,
            ratelimit: self.ratelimit.grpc.local_addr()?,
            merchants_operators: operators(&self.merchants)?,
            charges_operators: operators(&self.charges)?,
            webhooks_operators: operators(&self.webhooks)?,
            api: self.api.local_addr()?,
            checkout: self.checkout.local_addr()?,
            dashboard: self.dashboard.local_addr()?,
            handset: self.handset.local_addr()?,
            mail: self.mail.local_addr()?,
            clock: self.clock.local_addr()?,
        })
    }
}

impl Start<'_> {
    fn database_url(&self, service: &str) -> String {
        match &self.config.database_url_prefix {
            Some(prefix) => format!("{prefix}{service}"),
            None => format!(
                "sqlite://{}",
                self.data.join(format!("{service}.db")).display()
            ),
        }
    }

    /// Parses a service's settings: our flags, then a test's flags, which win, and the environment
    /// for the rest.
    fn parse<C: Parser>(&self, service: &'static str, flags: &[String]) -> anyhow::Result<C> {
        let more = self.config.flags.iter();
        let more = more
            .filter(|(name, _)| *name == service)
            .map(|(_, flag)| flag);
        let words = std::iter::once(service.to_owned());
        let words = words.chain(flags.iter().cloned()).chain(more.cloned());
        let matches = C::command()
            .args_override_self(true)
            .try_get_matches_from(words);
        matches
            .and_then(|matches| C::from_arg_matches(&matches))
            .with_context(|| format!("the settings of {service}"))
    }

    fn spawn_all(
        &self,
        listeners: Listeners,
    ) -> anyhow::Result<JoinSet<(&'static str, anyhow::Result<()>)>> {
        let mut running = JoinSet::new();
        let at = &self.addresses;
        let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        let (clock, shutdown) = (|| self.clock.clone(), || self.shutdown.clone());

        let merchants = self.parse("merchants-svc", &self.merchants_flags())?;
        let served = merchants_svc::serve(merchants, listeners.merchants, clock(), shutdown());
        running.spawn(async { ("merchants-svc", served.await) });

        let sessions = self.parse(
            "sessions-svc",
            &[
                flag("database-url", &self.database_url("sessions")),
                flag("webhooks-url", &url(at.webhooks)),
            ],
        )?;
        let served = sessions_svc::serve(sessions, listeners.sessions, clock(), shutdown());
        running.spawn(async { ("sessions-svc", served.await) });

        let charges = self.parse("charges-svc", &self.charges_flags())?;
        let served = charges_svc::serve(charges, listeners.charges, clock(), shutdown());
        running.spawn(async { ("charges-svc", served.await) });

        let webhooks = self.parse("webhooks-svc", &self.webhooks_flags())?;
        let served = webhooks_svc::serve(webhooks, listeners.webhooks, clock(), shutdown());
        running.spawn(async { ("webhooks-svc", served.await) });

        let redis = self
            .config
            .redis_url
            .iter()
            .map(|url| flag("redis-url", url));
        let ratelimit = self.parse("ratelimit-svc", &redis.collect::<Vec<_>>())?;
        let served = ratelimit_svc::serve(ratelimit, listeners.ratelimit, clock(), shutdown());
        running.spawn(async { ("ratelimit-svc", served.await) });

        let gateway = self.parse("gateway", &self.gateway_flags())?;
        let edge = gateway::Sockets {
            api: listeners.api,
            checkout: listeners.checkout,
            dashboard: listeners.dashboard,
            admin: None,
        };
        let served = gateway::serve(gateway, edge, clock(), shutdown());
        running.spawn(async { ("gateway", served.await) });

        let railsim = self.parse("railsim", &self.railsim_flags())?;
        let outside = railsim::Sockets {
            web: listeners.handset,
            mail: listeners.mail,
        };
        let served = railsim::serve(railsim, outside, clock(), shutdown());
        running.spawn(async { ("railsim", served.await) });

        let router = crate::clock::router(clock());
        let served = http::serve(router, listeners.clock, http::Limits::default(), shutdown());
        running.spawn(async { ("clock", served.await) });
        Ok(running)
    }

    fn merchants_flags(&self) -> Vec<String> {
        let at = &self.addresses;
        vec![
            format!("--database-url={}", self.database_url("merchants")),
            format!("--smtp-url=smtp://{}", at.mail),
            "--mail-from=Payments <no-reply@payments.example.com>".to_owned(),
            format!("--dashboard-url={}", url(at.dashboard)),
            format!("--totp-secret-key={}", self.totp_secret_key),
        ]
    }

    fn charges_flags(&self) -> Vec<String> {
        let at = &self.addresses;
        let schedule = self.config.reconcile_schedule.iter();
        let schedule: Vec<String> = schedule.map(|d| format!("{}ms", d.as_millis())).collect();
        let flags = [
            format!("--database-url={}", self.database_url("charges")),
            format!("--sessions-url={}", url(at.sessions)),
            format!("--webhooks-url={}", url(at.webhooks)),
            format!("--merchants-url={}", url(at.merchants)),
            format!("--callback-base-url={}", url(at.api)),
            // Nobody waits a day to try out a first payout.
            "--first-payout-account-hold=0s".to_owned(),
            format!("--reconcile-schedule={}", schedule.join(",")),
            format!("--momo-queries-per-second={QUERIES_PER_SECOND}"),
            format!("--paystack-queries-per-second={QUERIES_PER_SECOND}"),
            format!("--hubtel-queries-per-second={QUERIES_PER_SECOND}"),
            format!("--momo-base-url={}", url(at.handset)),
            format!("--paystack-base-url={}", url(at.handset)),
            format!("--hubtel-base-url={}", url(at.handset)),
            "--paystack-email-domain=payers.example.com".to_owned(),
            format!("--paystack-callback-token={}", self.paystack_token),
            format!("--statement-key={}", self.statement_key),
        ];
        [&flags[..], &RAIL_CREDENTIALS.map(str::to_owned)[..]].concat()
    }

    fn webhooks_flags(&self) -> Vec<String> {
        vec![
            format!("--database-url={}", self.database_url("webhooks")),
            format!("--merchants-url={}", url(self.addresses.merchants)),
            format!("--webhook-secret-key={}", self.webhook_secret_key),
            "--webhook-allow-http=true".to_owned(),
            "--webhook-allow-nets=127.0.0.0/8,::1/128".to_owned(),
        ]
    }

    fn gateway_flags(&self) -> Vec<String> {
        let at = &self.addresses;
        vec![
            format!("--merchants-url={}", url(at.merchants)),
            format!("--sessions-url={}", url(at.sessions)),
            format!("--charges-url={}", url(at.charges)),
            format!("--webhooks-url={}", url(at.webhooks)),
            format!("--ratelimit-url={}", url(at.ratelimit)),
            format!("--checkout-url={}", url(at.checkout)),
            format!("--dashboard-url={}", url(at.dashboard)),
            format!("--api-url={}", url(at.api)),
            "--support-email=help@example.com".to_owned(),
            "--auth-failures-per-minute=0".to_owned(),
            "--checkout-rates=USD=12.50".to_owned(),
            "--checkout-tries-per-session=0".to_owned(),
            "--checkout-tries-per-address=0".to_owned(),
            "--checkout-tries-per-number=0".to_owned(),
            "--checkout-unknown-per-address=0".to_owned(),
            "--dashboard-tries-per-address=0".to_owned(),
        ]
    }

    fn railsim_flags(&self) -> Vec<String> {
        let at = &self.addresses;
        let api = url(at.api);
        let flags = [
            format!("--data={}", self.data.join("railsim").display()),
            format!("--mail-links={},{}", url(at.dashboard), url(at.checkout)),
            format!(
                "--prompt-timeout={}ms",
                self.config.railsim_prompt_timeout.as_millis()
            ),
            format!(
                "--paystack-callback-url={api}/rails/paystack/{}",
                self.paystack_token
            ),
        ];
        [&flags[..], &RAIL_CREDENTIALS.map(str::to_owned)[..]].concat()
    }
}

impl Services {
    pub fn ready(&self, demo: DemoMerchant) -> Ready {
        let at = &self.addresses;
        Ready {
            api: url(at.api),
            checkout: url(at.checkout),
            dashboard: url(at.dashboard),
            handset: url(at.handset),
            mail: format!("{}/mail", url(at.handset)),
            smtp: at.mail.to_string(),
            clock: url(at.clock),
            grpc: GrpcAddresses {
                merchants: url(at.merchants),
                sessions: url(at.sessions),
                charges: url(at.charges),
                webhooks: url(at.webhooks),
                ratelimit: url(at.ratelimit),
                merchants_operators: url(at.merchants_operators),
                charges_operators: url(at.charges_operators),
                webhooks_operators: url(at.webhooks_operators),
            },
            demo,
        }
    }

    /// Returns once every address answers, or as soon as a service ends.
    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let at = &self.addresses;
        let grpc = [
            at.merchants,
            at.sessions,
            at.charges,
            at.webhooks,
            at.ratelimit,
            at.merchants_operators,
            at.charges_operators,
            at.webhooks_operators,
        ];
        let http = [at.api, at.checkout, at.dashboard, at.handset, at.clock];
        let ready = async {
            for address in grpc {
                until(async || grpc::is_serving(&url(address)).await).await;
            }
            let client = http::client(Duration::from_secs(1))?;
            for address in http {
                until(async || client.get(url(address)).send().await.is_ok()).await;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            ready = tokio::time::timeout(START_MAX, ready) => {
                ready.context("not everything answered in time")?
            }
            Some(ended) = self.running.join_next() => Err(unexpected(ended)),
        }
    }

    /// Returns if a service ends by itself.
    pub async fn failed(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(ended) => unexpected(ended),
            None => anyhow!("nothing runs"),
        }
    }

    /// Waits until every service has ended.
    pub async fn wait(mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.running.join_next().await {
            let (name, result) = ended.context("a service panicked")?;
            result.with_context(|| format!("{name} failed"))?;
        }
        Ok(())
    }
}

async fn until(mut is_true: impl AsyncFnMut() -> bool) {
    while !is_true().await {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn unexpected(
    ended: Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>,
) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow!("{name} ended by itself"),
        Ok((name, Err(error))) => error.context(format!("{name} failed")),
        Err(error) => anyhow::Error::new(error).context("a service panicked"),
    }
}
