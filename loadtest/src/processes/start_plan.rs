//! Where each process listens, and with which flags it is started.

use std::{
    collections::BTreeMap,
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use uuid::Uuid;

use super::{
    Service,
    ground::{Ground, loopback},
};
use crate::store::Server;

/// High enough to limit nobody.
const UNLIMITED: u32 = 1_000_000_000;

/// Encrypts the signing secrets of databases that are dropped at the end.
const WEBHOOK_SECRET_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Between charges-svc and the simulated networks, which listen on loopback only.
const RAIL_CREDENTIALS: [&str; 12] = [
    "--momo-subscription-key=loadtest",
    "--momo-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11",
    "--momo-api-key=loadtest",
    "--momo-disbursement-subscription-key=loadtest",
    "--momo-disbursement-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a12",
    "--momo-disbursement-api-key=loadtest",
    "--momo-target-environment=mtnghana",
    "--paystack-secret-key=sk_test_loadtest",
    "--hubtel-api-id=loadtest",
    "--hubtel-api-key=loadtest",
    "--hubtel-pos-sales-id=2000001",
    "--hubtel-prepaid-deposit-id=3000001",
];

/// More than any rail allows, from all replicas together: what is measured is ours.
const RAIL_QUERIES_PER_SECOND: u32 = 10_000;

/// Most connections to a service's database, from all its replicas together.
const CONNECTIONS_MAX: u32 = 16;

/// Where everything is, also what does not run.
pub struct StartPlan {
    ports: BTreeMap<Service, Ports>,
    pub server: Option<Server>,
    /// The databases' names begin with this.
    prefix: String,
    pub ground: Ground,
    /// SQLite files and logs.
    data: TempDir,
}

/// One process of a service.
#[derive(Clone, Copy)]
pub struct Replica {
    pub service: Service,
    /// From one.
    number: u8,
}

#[derive(Clone, Copy)]
struct Ports {
    serving: u16,
    operators: u16,
    admin: u16,
}

impl StartPlan {
    pub fn new(ground: &Ground) -> anyhow::Result<Self> {
        let free = free_ports::<{ 3 * Service::ALL.len() }>()?;
        let (triples, _) = free.as_chunks::<3>();
        let ports = Service::ALL.into_iter().zip(triples);
        let ports = ports.map(|(service, &[serving, operators, admin])| {
            let ports = Ports {
                serving,
                operators,
                admin,
            };
            (service, ports)
        });
        let server = ground.database_url.as_deref().map(Server::new);
        Ok(Self {
            ports: ports.collect(),
            server: server.transpose()?,
            prefix: format!("loadtest_{}", Uuid::new_v4().simple()),
            ground: ground.clone(),
            data: TempDir::new()?,
        })
    }

    /// The processes of a service. The networks are one, because they keep their payments in memory.
    pub fn replicas(&self, service: Service) -> impl Iterator<Item = Replica> + use<> {
        let count = match service {
            Service::Railsim => 1,
            _ => self.ground.host.replicas,
        };
        (1..=count).map(move |number| Replica { service, number })
    }

    /// What a process is called: like its service, if that has only one.
    pub fn name(&self, Replica { service, number }: Replica) -> String {
        match self.replicas(service).count() {
            1 => service.to_string(),
            _ => format!("{service} {number}"),
        }
    }

    pub fn spawn(&self, replica: Replica) -> anyhow::Result<Child> {
        let service = replica.service;
        let binary = self.ground.binary(service.name())?;
        // A process that is started again goes on in it.
        let log = self.log(replica);
        let log = File::options().create(true).append(true).open(log)?;
        let more = self.ground.flags.iter().filter(|(of, _)| *of == service);
        let more: Vec<&String> = more.map(|(_, flag)| flag).collect();
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let mut own = self.flags(replica);
        own.retain(|flag| more.iter().all(|more| name(more) != name(flag)));
        let spawned = Command::new(&binary)
            .args(own)
            .args(more)
            // Settings come from here alone.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        spawned.with_context(|| {
            let binary = binary.display();
            format!("{binary} does not start; cargo build --release --workspace makes it")
        })
    }

    fn flags(&self, replica: Replica) -> Vec<String> {
        let Replica { service, number } = replica;
        let own = match service {
            Service::Railsim => self.railsim(),
            Service::Merchants => Vec::new(),
            Service::Webhooks => self.webhooks(),
            Service::Sessions => vec![self.flag("webhooks-url", Service::Webhooks)],
            Service::Charges => self.charges(number),
            Service::Ratelimit => self.ratelimit(),
            Service::Gateway => self.gateway(),
        };
        let listen = match service {
            Service::Gateway => "api-listen",
            _ => "listen",
        };
        let Ports {
            serving,
            operators,
            admin,
        } = self.ports(service);
        let address = loopback(number);
        let mut flags = vec![
            "--log=warn".to_owned(),
            format!("--{listen}={address}:{serving}"),
        ];
        if service != Service::Railsim {
            flags.push(format!("--admin-listen={address}:{admin}"));
        }
        if service.has_operators() {
            flags.push(format!("--operators-listen={address}:{operators}"));
        }
        if service.has_database() {
            let connections = self.share(CONNECTIONS_MAX);
            flags.push(format!("--database-url={}", self.database_url(service)));
            flags.push(format!("--database-max-connections={connections}"));
        }
        [flags, own].concat()
    }

    fn railsim(&self) -> Vec<String> {
        let gateway = self.gateway_url(1);
        let own = [
            // Its fastest: a payer approves at once, and the callback follows.
            "--approve-delay=0s".to_owned(),
            // Nobody sends mail.
            "--mail-listen=127.0.0.1:0".to_owned(),
            // The gateway limits each address. Callbacks come from another one than merchants'
            // requests do, as in reality.
            "--callbacks-from=127.0.0.2".to_owned(),
            format!("--paystack-callback-url={gateway}/rails/paystack/loadtest"),
        ];
        with_credentials(&own)
    }

    fn charges(&self, number: u8) -> Vec<String> {
        let queries = self.share(RAIL_QUERIES_PER_SECOND);
        let own = [
            self.flag("sessions-url", Service::Sessions),
            self.flag("webhooks-url", Service::Webhooks),
            self.flag("merchants-url", Service::Merchants),
            // The networks do not spread their calls over a name's addresses.
            format!("--callback-base-url={}", self.gateway_url(number)),
            self.flag("momo-base-url", Service::Railsim),
            self.flag("paystack-base-url", Service::Railsim),
            self.flag("hubtel-base-url", Service::Railsim),
            format!("--momo-queries-per-second={queries}"),
            format!("--paystack-queries-per-second={queries}"),
            format!("--hubtel-queries-per-second={queries}"),
            "--paystack-email-domain=payers.example.com".to_owned(),
            "--paystack-callback-token=loadtest".to_owned(),
        ];
        with_credentials(&own)
    }

    fn ratelimit(&self) -> Vec<String> {
        let limits = ["payments", "charge", "charge-status", "read", "write"];
        let limits = limits.map(|bucket| format!("--limit-{bucket}={UNLIMITED}"));
        let redis = self
            .ground
            .redis_url
            .iter()
            .map(|url| format!("--redis-url={url}"));
        limits.into_iter().chain(redis).collect()
    }

    fn gateway(&self) -> Vec<String> {
        vec![
            self.flag("merchants-url", Service::Merchants),
            self.flag("sessions-url", Service::Sessions),
            self.flag("charges-url", Service::Charges),
            self.flag("webhooks-url", Service::Webhooks),
            self.flag("ratelimit-url", Service::Ratelimit),
            "--checkout-listen=127.0.0.1:0".to_owned(),
            "--dashboard-listen=127.0.0.1:0".to_owned(),
            "--checkout-url=http://127.0.0.1:1".to_owned(),
            "--auth-failures-per-minute=0".to_owned(),
        ]
    }

    fn webhooks(&self) -> Vec<String> {
        vec![
            self.flag("merchants-url", Service::Merchants),
            format!("--webhook-secret-key={WEBHOOK_SECRET_KEY}"),
            "--webhook-allow-http=true".to_owned(),
            "--webhook-allow-nets=127.0.0.0/8".to_owned(),
        ]
    }

    fn flag(&self, name: &str, service: Service) -> String {
        format!("--{name}={}", self.url(service))
    }

    /// What each replica gets of what all have together.
    fn share(&self, of_all: u32) -> u32 {
        of_all / u32::from(self.ground.host.replicas)
    }

    pub fn url(&self, service: Service) -> String {
        if let Some(url) = self.ground.elsewhere.get(&service) {
            return url.trim_end_matches('/').to_owned();
        }
        let port = self.ports(service).serving;
        match service {
            Service::Railsim => format!("http://{}:{port}", loopback(1)),
            _ => format!("http://{}:{port}", self.ground.host.name),
        }
    }

    /// Where a service listens to operators.
    pub fn operators_url(&self, service: Service) -> anyhow::Result<String> {
        if let Some(url) = self.ground.operators_elsewhere.get(&service) {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        let is_started = self.ground.elsewhere.is_empty();
        ensure!(
            is_started,
            "the address of {service} for operators is needed too"
        );
        let port = self.ports(service).operators;
        Ok(format!("http://{}:{port}", self.ground.host.name))
    }

    pub fn gateway_urls(&self) -> Vec<String> {
        if self.ground.elsewhere.contains_key(&Service::Gateway) {
            return vec![self.url(Service::Gateway)];
        }
        let replicas = self.replicas(Service::Gateway);
        replicas.map(|replica| self.replica_url(replica)).collect()
    }

    fn gateway_url(&self, number: u8) -> String {
        let service = Service::Gateway;
        self.replica_url(Replica { service, number })
    }

    fn replica_url(&self, Replica { service, number }: Replica) -> String {
        format!(
            "http://{}:{}",
            loopback(number),
            self.ports(service).serving
        )
    }

    /// Leaves files and logs behind, in this folder.
    pub fn keep(&mut self) -> PathBuf {
        self.data.disable_cleanup(true);
        self.data.path().to_owned()
    }

    /// The networks have none.
    pub fn admin_url(&self, Replica { service, number }: Replica) -> Option<String> {
        let admin = || format!("http://{}:{}", loopback(number), self.ports(service).admin);
        (service != Service::Railsim).then(admin)
    }

    fn ports(&self, service: Service) -> Ports {
        self.ports[&service]
    }

    pub fn database_url(&self, service: Service) -> String {
        let database = self.database(service);
        match &self.server {
            Some(server) => server.database(&database),
            None => format!("sqlite://{}/{database}.db", self.data.path().display()),
        }
    }

    pub fn database(&self, service: Service) -> String {
        let service = service.name().trim_end_matches("-svc");
        format!("{}_{service}", self.prefix)
    }

    pub fn log(&self, replica: Replica) -> PathBuf {
        self.data.path().join(format!("{}.log", self.name(replica)))
    }
}

fn with_credentials(own: &[String]) -> Vec<String> {
    let credentials = RAIL_CREDENTIALS.iter().map(|flag| (*flag).to_owned());
    own.iter().cloned().chain(credentials).collect()
}

/// Ports on which nothing listens now, below those that the system gives to connections. They
/// differ, because each is held until all are found.
pub fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    const FROM: u16 = 10_000;
    const PORTS: u16 = 20_000;
    const TRIES: usize = 1_000;
    let mut ports = [0; N];
    let mut held = Vec::new();
    for _ in 0..TRIES {
        let Some(next) = ports.get_mut(held.len()) else {
            return Ok(ports);
        };
        let [high, low, ..] = *Uuid::new_v4().as_bytes();
        *next = FROM + u16::from_be_bytes([high, low]) % PORTS;
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, *next)));
    }
    bail!("too few ports are free")
}
