//! The service as operators run it: every service is a separate process, which a test may kill,
//! freeze and restart. No test kills the simulated networks' process.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use chassis::{config::Tls, grpc, testing::free_port};
use db::testing::TestDb;
use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{SetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::shop::redis_url;

/// Longest wait for a started process to answer.
const START_MAX: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Variables that a developer may have set for other purposes.
const NOT_INHERITED: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
    "RUST_LOG",
];

/// The key that signs statements.
pub const STATEMENT_KEY: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=";

/// The key that encrypts signing secrets.
pub const WEBHOOK_SECRET_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// One process: its settings, and the child while it runs.
pub struct Process {
    pub name: &'static str,
    /// Where it answers.
    pub url: String,
    /// Where it listens to operators, if it serves any.
    pub operators: Option<String>,
    /// Its admin address. The networks have none.
    pub admin: Option<String>,
    pub flags: Vec<String>,
    pub env: Vec<(&'static str, String)>,
    /// Where its log goes.
    pub log: PathBuf,
    /// The certificates to call it with.
    pub tls: Tls,
    /// The same for what it serves to operators.
    pub operators_tls: Tls,
    child: Option<Child>,
}

/// A verified merchant's credentials.
pub struct Merchant {
    pub merchant_id: String,
    pub api_key: String,
    pub signing_secret: String,
}

/// Every process of one service.
pub struct Processes {
    pub merchants: Process,
    pub sessions: Process,
    pub charges: Process,
    pub webhooks: Process,
    pub ratelimit: Process,
    pub gateway: Process,
    pub railsim: Process,
    pub sessions_db: TestDb,
    pub charges_db: TestDb,
    pub webhooks_db: TestDb,
    _merchants_db: TestDb,
    _data: TempDir,
}

impl Process {
    fn new(name: &'static str, port: u16, flags: Vec<String>) -> Self {
        Self {
            name,
            url: url(port),
            operators: None,
            admin: None,
            flags,
            env: Vec::new(),
            log: std::env::temp_dir().join(format!("{name}-{}.log", std::process::id())),
            tls: Tls::default(),
            operators_tls: Tls::default(),
            child: None,
        }
    }

    /// Starts it and waits until it answers.
    pub async fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap();
        let mut command = Command::new(binary(self.name));
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        let child = command
            .args(&self.flags)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let answers = async {
            while !self.answers().await {
                let ended = self.child.as_mut().unwrap().try_wait().unwrap();
                assert!(ended.is_none(), "{} ended: {ended:?}", self.name);
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let answers = tokio::time::timeout(START_MAX, answers).await;
        assert!(answers.is_ok(), "{} does not answer", self.name);
    }

    async fn answers(&self) -> bool {
        if matches!(self.name, "gateway" | "railsim") {
            let client = chassis::http::client(Duration::from_secs(1)).unwrap();
            return client.get(&self.url).send().await.is_ok();
        }
        self.channel().is_serving().await
    }

    /// Asks it to stop, as an orchestrator does (SIGTERM).
    pub async fn terminate(&self) {
        self.signal("-TERM").await;
    }

    /// Waits for its end and returns its exit status.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = self.child.as_mut().unwrap().wait();
        let ended = tokio::time::timeout(START_MAX, ended).await;
        ended.expect("it ends").unwrap()
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    pub async fn kill_and_start(&mut self) {
        self.kill().await;
        self.start().await;
    }

    /// Suspends it: connections stay open and nothing answers.
    pub async fn freeze(&self) {
        self.signal("-STOP").await;
    }

    pub async fn thaw(&self) {
        self.signal("-CONT").await;
    }

    async fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().unwrap().to_string();
        let status = Command::new("kill")
            .args([signal, &id])
            .status()
            .await
            .unwrap();
        assert!(status.success());
    }

    pub fn channel(&self) -> grpc::Channel {
        grpc::connect(&self.url, &self.tls, Duration::from_secs(15)).unwrap()
    }

    pub fn operators_url(&self) -> &str {
        self.operators.as_deref().expect("it serves operators")
    }

    /// For what it serves to operators.
    pub fn operators(&self) -> grpc::Channel {
        let tls = &self.operators_tls;
        grpc::connect(self.operators_url(), tls, Duration::from_secs(15)).unwrap()
    }
}

impl Processes {
    /// Starts everything with more flags: (process, flag).
    pub async fn start(more: &[(&'static str, &str)]) -> Self {
        let mut processes = Self::plan().await;
        for process in processes.all() {
            let flags = more.iter().filter(|(name, _)| *name == process.name);
            process
                .flags
                .extend(flags.map(|(_, flag)| (*flag).to_owned()));
        }
        processes.start_all().await;
        processes
    }

    pub async fn start_all(&mut self) {
        for process in self.all() {
            process.start().await;
        }
    }

    /// Adds a verified merchant with a key and a webhook endpoint.
    pub async fn merchant(&self, webhook_url: &str) -> Merchant {
        let mut merchants = MerchantOperationsClient::new(self.merchants.operators());
        let new = CreateMerchantRequest {
            name: "Test Shop".to_owned(),
            email: "shop@example.com".to_owned(),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        let created = merchants.create_merchant(new).await.unwrap();
        let merchant_id = created.into_inner().merchant_id;
        let request = CreateKeyRequest {
            merchant_id: merchant_id.clone(),
            label: String::new(),
        };
        let key = merchants.create_key(request).await.unwrap();
        let mut webhooks = WebhookOperationsClient::new(self.webhooks.operators());
        let request = SetEndpointRequest {
            merchant_id: merchant_id.clone(),
            url: webhook_url.to_owned(),
            events: Vec::new(),
        };
        let endpoint = webhooks.set_endpoint(request).await.unwrap();
        Merchant {
            merchant_id,
            api_key: key.into_inner().api_key,
            signing_secret: endpoint.into_inner().signing_secret,
        }
    }

    pub fn all(&mut self) -> [&mut Process; 7] {
        [
            &mut self.railsim,
            &mut self.merchants,
            &mut self.sessions,
            &mut self.charges,
            &mut self.webhooks,
            &mut self.ratelimit,
            &mut self.gateway,
        ]
    }

    /// Prepares everything without starting it, so that a test can change the settings.
    pub async fn plan() -> Self {
        let data = TempDir::new().unwrap();
        let ports = Ports::free();
        let merchants_db = TestDb::new("merchants-svc").await;
        let sessions_db = TestDb::new("sessions-svc").await;
        let charges_db = TestDb::new("charges-svc").await;
        let webhooks_db = TestDb::new("webhooks-svc").await;
        let service = |name, port: u16, more: [Vec<String>; 2]| {
            let listen = vec![format!("--listen=127.0.0.1:{port}")];
            Process::new(name, port, [listen, more.concat()].concat())
        };
        let database = |db: &TestDb| vec![format!("--database-url={}", db.url)];
        let gateway = vec![format!("--api-listen=127.0.0.1:{}", ports.gateway)];
        let gateway = [gateway, gateway_flags(&ports)].concat();
        let mut processes = Self {
            railsim: Process::new("railsim", ports.railsim, railsim_flags(&ports, &data)),
            merchants: service(
                "merchants-svc",
                ports.merchants,
                [database(&merchants_db), Vec::new()],
            ),
            sessions: service(
                "sessions-svc",
                ports.sessions,
                [
                    database(&sessions_db),
                    vec![format!("--webhooks-url={}", url(ports.webhooks))],
                ],
            ),
            charges: service(
                "charges-svc",
                ports.charges,
                [database(&charges_db), charges_flags(&ports)],
            ),
            webhooks: service(
                "webhooks-svc",
                ports.webhooks,
                [database(&webhooks_db), webhooks_flags(&ports)],
            ),
            ratelimit: service(
                "ratelimit-svc",
                ports.ratelimit,
                [ratelimit_flags(), Vec::new()],
            ),
            gateway: Process::new("gateway", ports.gateway, gateway),
            sessions_db,
            charges_db,
            _merchants_db: merchants_db,
            webhooks_db,
            _data: data,
        };
        for pages in ["CHECKOUT_LISTEN", "DASHBOARD_LISTEN"] {
            let free = (pages, "127.0.0.1:0".to_owned());
            processes.gateway.env.push(free);
        }
        for (process, port) in processes.all().into_iter().skip(1).zip(ports.admin) {
            process
                .flags
                .push(format!("--admin-listen=127.0.0.1:{port}"));
            process.admin = Some(url(port));
        }
        processes.listen_to_operators(ports.operators);
        processes
    }

    fn listen_to_operators(&mut self, ports: [u16; 3]) {
        let serving = [&mut self.merchants, &mut self.charges, &mut self.webhooks];
        for (process, port) in serving.into_iter().zip(ports) {
            let listen = format!("--operators-listen=127.0.0.1:{port}");
            process.flags.push(listen);
            process.operators = Some(url(port));
        }
    }
}

/// Ports on which nothing listens now, and which no connection uses as its own end: they are below
/// the system's ephemeral ports.
struct Ports {
    railsim: u16,
    merchants: u16,
    sessions: u16,
    charges: u16,
    webhooks: u16,
    ratelimit: u16,
    gateway: u16,
    operators: [u16; 3],
    admin: [u16; 6],
}

impl Ports {
    fn free() -> Self {
        let operators = [(); 3].map(|()| free_port());
        let ports = [(); 13].map(|()| free_port());
        let [
            railsim,
            merchants,
            sessions,
            charges,
            webhooks,
            ratelimit,
            gateway,
            admin @ ..,
        ] = ports;
        Self {
            railsim,
            merchants,
            sessions,
            charges,
            webhooks,
            ratelimit,
            gateway,
            operators,
            admin,
        }
    }
}

const CREDENTIALS: [&str; 11] = [
    "--momo-subscription-key=subscription",
    "--momo-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11",
    "--momo-api-key=api-key",
    "--momo-disbursement-subscription-key=disbursement-subscription",
    "--momo-disbursement-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a12",
    "--momo-disbursement-api-key=disbursement-api-key",
    "--paystack-secret-key=sk_test_processes",
    "--hubtel-api-id=hubtel-id",
    "--hubtel-api-key=hubtel-api-key",
    "--hubtel-pos-sales-id=2000001",
    "--hubtel-prepaid-deposit-id=3000001",
];

fn charges_flags(ports: &Ports) -> Vec<String> {
    let mut flags = CREDENTIALS.map(ToOwned::to_owned).to_vec();
    flags.extend([
        format!("--sessions-url={}", url(ports.sessions)),
        format!("--webhooks-url={}", url(ports.webhooks)),
        format!("--merchants-url={}", url(ports.merchants)),
        "--lease=15s".to_owned(),
        format!("--callback-base-url={}", url(ports.gateway)),
        format!("--momo-base-url={}", url(ports.railsim)),
        "--momo-target-environment=mtnghana".to_owned(),
        format!("--paystack-base-url={}", url(ports.railsim)),
        "--paystack-email-domain=payers.example.com".to_owned(),
        "--paystack-callback-token=paystack-token".to_owned(),
        format!("--hubtel-base-url={}", url(ports.railsim)),
        format!("--statement-key={STATEMENT_KEY}"),
        "--reconcile-schedule=1s,2s,4s,8s,16s".to_owned(),
        "--approval-window=20s".to_owned(),
    ]);
    flags
}

fn webhooks_flags(ports: &Ports) -> Vec<String> {
    vec![
        format!("--merchants-url={}", url(ports.merchants)),
        format!("--webhook-secret-key={WEBHOOK_SECRET_KEY}"),
        "--webhook-allow-http=true".to_owned(),
        "--webhook-allow-nets=127.0.0.0/8".to_owned(),
        "--webhook-retry-schedule=1s,1s,2s,2s,4s,8s".to_owned(),
        "--lease=15s".to_owned(),
    ]
}

fn ratelimit_flags() -> Vec<String> {
    let many = [
        "--limit-payments",
        "--limit-charge",
        "--limit-charge-status",
    ];
    let many = many.map(|flag| format!("{flag}=1000000"));
    let redis = redis_url().map(|url| format!("--redis-url={url}"));
    redis.into_iter().chain(many).collect()
}

fn gateway_flags(ports: &Ports) -> Vec<String> {
    vec![
        format!("--merchants-url={}", url(ports.merchants)),
        format!("--sessions-url={}", url(ports.sessions)),
        format!("--charges-url={}", url(ports.charges)),
        format!("--webhooks-url={}", url(ports.webhooks)),
        format!("--ratelimit-url={}", url(ports.ratelimit)),
        "--checkout-url=http://127.0.0.1:1".to_owned(),
        "--auth-failures-per-minute=0".to_owned(),
    ]
}

fn railsim_flags(ports: &Ports, data: &TempDir) -> Vec<String> {
    let mut flags = CREDENTIALS.map(ToOwned::to_owned).to_vec();
    flags.extend([
        format!("--listen=127.0.0.1:{}", ports.railsim),
        "--mail-listen=127.0.0.1:0".to_owned(),
        format!("--data={}", data.path().join("railsim").display()),
        "--prompt-timeout=10s".to_owned(),
        format!(
            "--paystack-callback-url={}/rails/paystack/paystack-token",
            url(ports.gateway)
        ),
    ]);
    flags
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// The path of a binary beside the stack's own, which cargo builds for this test.
pub fn binary(name: &str) -> PathBuf {
    let stack = PathBuf::from(env!("CARGO_BIN_EXE_stack"));
    let binary = stack.with_file_name(name);
    assert!(
        binary.exists(),
        "{} is not built: cargo build --workspace",
        binary.display()
    );
    binary
}
