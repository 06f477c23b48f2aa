//! The service under test, and the charges that are reported to it.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    grpc::Channel,
    ids::{ChargeId, MerchantId, SessionId, TxIdDisplay},
    testing::ServedService,
};
use clap::Parser as _;
use db::{Db, Tx, testing::TestDb};
use proto::{
    money::Money,
    sessions::{
        CreateSessionRequest, CreateSessionResponse, Customer, DirectSession, GetSessionRequest,
        ListCustomersRequest, Open, Payer, ReadSessionRequest, RecordTransactionRequest,
        RecordTransactionResponse, Session, SessionStatus, Transaction, TransactionStatus, Update,
        Wallet, Withdraw, checkout_sessions_client::CheckoutSessionsClient,
        record_transaction_request::Step, record_transaction_response::Outcome,
        session_operations_client::SessionOperationsClient, sessions_client::SessionsClient,
    },
};
use sessions_svc::config::Config;
use tempfile::TempDir;
use tonic::{Code, Status};

use crate::webhooks::Webhooks;

pub const HOUR: Duration = Duration::from_secs(3_600);
pub const DAY: Duration = Duration::from_secs(24 * 3_600);

pub type Client = SessionsClient<Channel>;

pub struct World {
    pub merchant: String,
    pub clock: Clock,
    pub db: Db,
    pub webhooks: Webhooks,
    pub client: Client,
    pub operations: SessionOperationsClient<Channel>,
    service: ServedService,
    // Dropped after the fields that use them.
    pub database: TestDb,
    /// The clock's folder.
    _folder: TempDir,
}

impl World {
    pub async fn start() -> Self {
        let database = TestDb::new("sessions-svc").await;
        let url = database.url.clone();
        Self::start_through(database, &url).await
    }

    /// Starts a service that reaches this database by another URL.
    pub async fn start_through(database: TestDb, url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::travelling(folder.path().join("clock")).unwrap();
        let webhooks = Webhooks::start().await;
        let service = serve(url, &clock, &webhooks.url).await;
        let db = database.connect().await;
        Self {
            merchant: MerchantId::new().to_string(),
            clock,
            db,
            webhooks,
            client: SessionsClient::new(service.channel()),
            operations: SessionOperationsClient::new(service.channel()),
            service,
            database,
            _folder: folder,
        }
    }

    /// Stops the service and starts another on the same database.
    pub async fn restart(&mut self) {
        self.service.stop().await;
        self.service = serve(&self.database.url, &self.clock, &self.webhooks.url).await;
        self.client = SessionsClient::new(self.service.channel());
        self.operations = SessionOperationsClient::new(self.service.channel());
    }

    /// Stops the service and starts another on a host with another clock.
    pub async fn restart_by(&mut self, clock: Clock) {
        self.clock = clock;
        self.restart().await;
    }

    pub fn channel(&self) -> Channel {
        self.service.channel()
    }

    /// Another process on the same database, until it is dropped.
    pub async fn replica(&self) -> ServedService {
        serve(&self.database.url, &self.clock, &self.webhooks.url).await
    }

    /// Stops everything once the outbox is empty.
    pub async fn end(self) {
        self.database.until_relayed().await;
        self.service.stop().await;
        self.db.close().await;
    }

    pub async fn create(
        &self,
        request: CreateSessionRequest,
    ) -> Result<CreateSessionResponse, Status> {
        let answer = self.client.clone().create_session(request).await;
        answer.map(tonic::Response::into_inner)
    }

    /// A hosted session for 25.50 USD.
    pub async fn hosted(&self) -> Session {
        let request = self.request("USD", 2_550);
        self.create(request).await.unwrap().session.unwrap()
    }

    /// A request with its own key.
    pub fn request(&self, currency: &str, minor_units: i64) -> CreateSessionRequest {
        CreateSessionRequest {
            merchant_id: self.merchant.clone(),
            amount: Some(money(currency, minor_units)),
            description: None,
            redirect_url: None,
            payer: None,
            idempotency_key: format!("g:{}", SessionId::new()),
        }
    }

    /// Takes the key of this request, in a transaction that has not ended.
    pub async fn take_key(&self, request: &CreateSessionRequest) -> Tx {
        let mut tx = self.db.begin().await.unwrap();
        tx.sql(
            "insert into idempotency_keys (merchant_id, key, fingerprint, session_id)
             values ($1, $2, '', $3)",
        )
        .bind(request.merchant_id.parse::<MerchantId>().unwrap())
        .bind(request.idempotency_key.clone())
        .bind(SessionId::new())
        .run()
        .await
        .unwrap();
        tx
    }

    pub async fn get(&self, session_id: &str) -> Result<Session, Status> {
        self.get_as(session_id, &self.merchant).await
    }

    pub async fn get_as(&self, session_id: &str, merchant_id: &str) -> Result<Session, Status> {
        let request = GetSessionRequest {
            session_id: session_id.to_owned(),
            merchant_id: merchant_id.to_owned(),
        };
        let answer = self.client.clone().get_session(request).await;
        answer.map(tonic::Response::into_inner)
    }

    /// As its payer.
    pub async fn read(&self, session_id: &str) -> Result<Session, Status> {
        let request = ReadSessionRequest {
            session_id: session_id.to_owned(),
        };
        let answer = CheckoutSessionsClient::new(self.service.channel())
            .read_session(request)
            .await;
        answer.map(tonic::Response::into_inner)
    }

    pub async fn status(&self, session_id: &str) -> SessionStatus {
        self.get(session_id).await.unwrap().status()
    }

    pub async fn record(
        &self,
        report: RecordTransactionRequest,
    ) -> Result<RecordTransactionResponse, Status> {
        let answer = self.client.clone().record_transaction(report).await;
        answer.map(tonic::Response::into_inner)
    }

    /// Reports, and expects it to be recorded.
    pub async fn recorded(&self, report: RecordTransactionRequest) -> SessionStatus {
        let answer = self.record(report).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Recorded);
        answer.session_status()
    }

    /// Reports, and expects a refusal.
    pub async fn refused(&self, report: RecordTransactionRequest) -> SessionStatus {
        let answer = self.record(report).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Refused);
        answer.session_status()
    }

    /// The newest hundred customers.
    pub async fn customers(&mut self) -> Vec<Customer> {
        let request = ListCustomersRequest {
            merchant_id: self.merchant.clone(),
            page_size: 100,
            ..ListCustomersRequest::default()
        };
        let answer = self.client.list_customers(request).await.unwrap();
        answer.into_inner().customers
    }

    pub async fn admin(&self, path: &str) -> String {
        self.service.ask_admin(path).await
    }

    pub async fn advance(&self, by: Duration) {
        self.clock.advance(by).await.unwrap();
    }

    /// The first charge of its own session, for 12.34 GHS.
    pub fn direct_charge(&self) -> Charge {
        let amount = money("GHS", 1_234);
        let direct = DirectSession {
            amount: Some(amount.clone()),
            description: Some("two cups".to_owned()),
            created_at: self.clock.now().to_string(),
            payer: None,
        };
        let session_id = SessionId::new().to_string();
        self.charge(session_id, 1, amount, Some(direct))
    }

    pub fn hosted_charge(&self, session: &Session, number: u32) -> Charge {
        let amount = session.amount.clone().unwrap();
        self.charge(session.session_id.clone(), number, amount, None)
    }

    fn charge(
        &self,
        session_id: String,
        number: u32,
        amount: Money,
        direct: Option<DirectSession>,
    ) -> Charge {
        let at = match &direct {
            Some(direct) => direct.created_at.parse().unwrap(),
            None => self.clock.now(),
        };
        Charge {
            merchant_id: self.merchant.clone(),
            session_id,
            number,
            transaction_id: ChargeId::new().to_string(),
            tx_id_display: TxIdDisplay::new().to_string(),
            amount,
            direct,
            payer: None,
            at,
            wallet: Some(Wallet {
                provider: "MTN".to_owned(),
                last_four: "4567".to_owned(),
            }),
        }
    }
}

async fn serve(database_url: &str, clock: &Clock, webhooks: &str) -> ServedService {
    let config = Config::parse_from([
        "sessions-svc",
        "--database-url",
        database_url,
        "--webhooks-url",
        webhooks,
    ]);
    ServedService::start(|sockets, shutdown| {
        sessions_svc::serve(config, sockets, clock.clone(), shutdown)
    })
    .await
}

/// A charge as charges-svc reports it.
#[derive(Clone)]
pub struct Charge {
    pub merchant_id: String,
    pub session_id: String,
    pub number: u32,
    pub transaction_id: String,
    pub tx_id_display: String,
    pub amount: Money,
    pub direct: Option<DirectSession>,
    pub payer: Option<Payer>,
    pub at: Timestamp,
    /// What only a version tells that knows of wallets.
    pub wallet: Option<Wallet>,
}

impl Charge {
    pub fn open(&self) -> RecordTransactionRequest {
        let transaction = Some(self.transaction(TransactionStatus::Initiated));
        self.report(1, Step::Open(Open { transaction }))
    }

    pub fn update(&self, version: u32, status: TransactionStatus) -> RecordTransactionRequest {
        let update = Update {
            transaction: Some(self.transaction(status)),
            payer: self.payer.clone(),
        };
        self.report(version, Step::Update(update))
    }

    pub fn settled(&self, version: u32) -> RecordTransactionRequest {
        self.update(version, TransactionStatus::Settled)
    }

    pub fn failed(&self, version: u32) -> RecordTransactionRequest {
        self.update(version, TransactionStatus::Failed)
    }

    pub fn withdraw(&self, version: u32) -> RecordTransactionRequest {
        self.report(version, Step::Withdraw(Withdraw {}))
    }

    fn report(&self, version: u32, step: Step) -> RecordTransactionRequest {
        RecordTransactionRequest {
            merchant_id: self.merchant_id.clone(),
            session_id: self.session_id.clone(),
            charge_number: self.number,
            version,
            step: Some(step),
            direct: self.direct.clone(),
        }
    }

    pub fn transaction(&self, status: TransactionStatus) -> Transaction {
        let failed = status == TransactionStatus::Failed;
        Transaction {
            transaction_id: self.transaction_id.clone(),
            tx_id_display: self.tx_id_display.clone(),
            status: status.into(),
            method: "MOBILE_MONEY".to_owned(),
            amount: Some(self.amount.clone()),
            failure_reason: failed.then(|| "PAYER_DECLINED".to_owned()),
            failure_message: failed.then(|| "The payer declined.".to_owned()),
            settlement: None,
            created_at: self.at.to_string(),
            updated_at: (self.at + Duration::from_secs(2)).to_string(),
            wallet: self.wallet.clone(),
        }
    }
}

pub fn money(currency: &str, minor_units: i64) -> Money {
    Money {
        minor_units,
        currency: currency.to_owned(),
    }
}

/// Retries for as long as the service is too busy to answer, as its callers do.
pub async fn create_persistently(
    mut client: Client,
    request: CreateSessionRequest,
) -> CreateSessionResponse {
    loop {
        match client.create_session(request.clone()).await {
            Ok(answer) => return answer.into_inner(),
            Err(status) => check_busy(&status),
        }
    }
}

/// Like [`create_persistently`].
pub async fn record_persistently(
    mut client: Client,
    report: RecordTransactionRequest,
) -> RecordTransactionResponse {
    loop {
        match client.record_transaction(report.clone()).await {
            Ok(answer) => return answer.into_inner(),
            Err(status) => check_busy(&status),
        }
    }
}

fn check_busy(status: &Status) {
    let is_busy = matches!(status.code(), Code::Unavailable | Code::Aborted);
    assert!(is_busy, "{status}");
}
