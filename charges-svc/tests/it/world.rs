//! A running charges-svc on a fresh database. Unless a test says otherwise, its rails cannot be
//! reached, and its neighbours take what they are told.
//!
//! A world that ends with work in its outbox fails its test, unless nobody is there to be told:
//! beside [`Neighbour::Away`] or [`Neighbour::Silent`].

use std::{collections::BTreeMap, time::Duration};

use charges_svc::{
    asked_by::AskedBy,
    charge::{Charge, Event, Lease, NewCharge},
    config::Config,
    schedule::Timing,
    store::{
        self,
        steps::{Step, Written},
    },
};
use chassis::{
    clock::{Clock, Timestamp},
    config::Mode,
    grpc::{Channel, Connection},
    ids::{MerchantId, Reference},
    money::{Currency, Money},
    provider::Provider,
    testing::{ServedService, address, listen},
};
use clap::Parser as _;
use db::{Db, Insert, Tx, config::Database, testing::TestDb};
use proto::{
    charges::{
        CreateChargeRequest, Provider as ProtoProvider,
        charge_operations_client::ChargeOperationsClient, charges_client::ChargesClient,
        disbursement_operations_client::DisbursementOperationsClient,
        disbursements_client::DisbursementsClient, merchant_figures_client::MerchantFiguresClient,
        payout_accounts_client::PayoutAccountsClient, rail_reports_client::RailReportsClient,
        statement_operations_client::StatementOperationsClient,
        statements_client::StatementsClient,
    },
    sessions::record_transaction_response::Outcome,
};
use rails::RailName;
use tokio::net::TcpListener;

use crate::neighbour::{self, Updates};

pub const CALLBACK_TOKEN: &str = "callback-token-configured";
pub const PAYSTACK_SECRET_KEY: &str = "sk_test_abcdef";

/// How sessions-svc and webhooks-svc behave.
#[derive(Clone, Copy)]
pub enum Neighbour {
    /// Nobody listens.
    Away,
    /// Takes every charge.
    Open,
    /// Refuses every charge, because its session cannot be paid.
    Refusing,
    /// Accepts connections and never answers.
    Silent,
    /// Takes every charge, once this whole machine has stood still for this long.
    Stalling(Duration),
}

impl Neighbour {
    /// The neighbour, if it answers.
    async fn start(self, updates: Updates) -> Option<ServedService> {
        let (outcome, stall) = match self {
            Self::Away | Self::Silent => return None,
            Self::Open => (Outcome::Recorded, Duration::ZERO),
            Self::Refusing => (Outcome::Refused, Duration::ZERO),
            Self::Stalling(length) => (Outcome::Recorded, length),
        };
        Some(neighbour::start(outcome, stall, updates).await)
    }
}

pub struct World {
    pub charges: ChargesClient<Channel>,
    pub operations: ChargeOperationsClient<Channel>,
    pub disbursements: DisbursementsClient<Channel>,
    pub treasury: DisbursementOperationsClient<Channel>,
    pub accounts: PayoutAccountsClient<Channel>,
    pub statements: StatementsClient<Channel>,
    pub statement_operations: StatementOperationsClient<Channel>,
    pub reports: RailReportsClient<Channel>,
    pub figures: MerchantFiguresClient<Channel>,
    pub db: Db,
    pub clock: Clock,
    /// What sessions-svc was told.
    pub updates: Updates,
    service: ServedService,
    neighbour: Option<ServedService>,
    /// The listener of a silent neighbour.
    _silent: Option<TcpListener>,
    database: (TestDb, Database),
    /// Holds the clock's file.
    folder: tempfile::TempDir,
    /// In addition to those that every test has.
    flags: Vec<(String, String)>,
}

impl World {
    pub async fn start() -> Self {
        Self::start_beside(Neighbour::Open).await
    }

    pub async fn start_beside(neighbour: Neighbour) -> Self {
        let database = TestDb::new("charges-svc").await;
        Self::start_through(database, neighbour, &[]).await
    }

    /// Starts a service with its rails at `rails_url`.
    pub async fn start_over(rails_url: &str, neighbour: Neighbour) -> Self {
        let database = TestDb::new("charges-svc").await;
        let rails = [
            ("momo-base-url", rails_url),
            ("paystack-base-url", rails_url),
        ];
        Self::start_through(database, neighbour, &rails).await
    }

    /// Starts a service with these flags, which replace or extend those that every test has.
    pub async fn start_with(flags: &[(&str, &str)]) -> Self {
        let database = TestDb::new("charges-svc").await;
        Self::start_through(database, Neighbour::Open, flags).await
    }

    /// Starts a service on this database, which a flag may reach in another way.
    pub async fn start_through(
        mut database: TestDb,
        neighbour: Neighbour,
        flags: &[(&str, &str)],
    ) -> Self {
        let settings = database.settings().await;
        db::migrate(&settings, Mode::Development, &charges_svc::SCHEMA)
            .await
            .unwrap();
        let flags = flags.iter();
        let flags = flags
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self::start_on(
            (database, settings),
            tempfile::tempdir().unwrap(),
            neighbour,
            flags,
        )
        .await
    }

    async fn start_on(
        (mut database, settings): (TestDb, Database),
        folder: tempfile::TempDir,
        neighbour: Neighbour,
        flags: Vec<(String, String)>,
    ) -> Self {
        match neighbour {
            // Nobody takes what there is to tell.
            Neighbour::Away | Neighbour::Silent => database.leave_work(),
            Neighbour::Open | Neighbour::Refusing | Neighbour::Stalling(_) => {
                database.leave_no_work();
            }
        }
        let updates = Updates::default();
        let (running, nobody) = (neighbour.start(updates.clone()).await, listen().await);
        let sessions_url = match &running {
            Some(running) => running.url(),
            None => format!("http://{}", address(&nobody)),
        };
        // A listener on which nothing is accepted is silent; without one, nobody is there.
        let silent = matches!(neighbour, Neighbour::Silent).then_some(nobody);
        let mut config = config_with(&database.url, &sessions_url, &borrowed(&flags));
        if config.service.database.database_url == database.url {
            // It serves as a role that may do nothing but serve.
            config.service.database = settings.clone();
        }
        let clock = Clock::travelling(folder.path().join("clock")).unwrap();
        let service = ServedService::start(|sockets, shutdown| {
            charges_svc::serve(config, sockets, clock.clone(), shutdown)
        })
        .await;
        Self {
            charges: ChargesClient::new(service.channel()),
            operations: ChargeOperationsClient::new(service.operators()),
            disbursements: DisbursementsClient::new(service.channel()),
            treasury: DisbursementOperationsClient::new(service.operators()),
            accounts: PayoutAccountsClient::new(service.channel()),
            statements: StatementsClient::new(service.channel()),
            statement_operations: StatementOperationsClient::new(service.operators()),
            reports: RailReportsClient::new(service.operators()),
            figures: MerchantFiguresClient::new(service.channel()),
            db: database.connect().await,
            clock,
            updates,
            service,
            neighbour: running,
            _silent: silent,
            database: (database, settings),
            folder,
            flags,
        }
    }

    /// A client for streams.
    pub async fn streams(&self) -> ChargesClient<Connection> {
        let mut replicas = self.service.channel().replicas();
        let (_, connection) = replicas.next().await.unwrap().pop_first().unwrap();
        ChargesClient::new(connection)
    }

    /// Another process on the same database, until it is dropped.
    pub async fn replica(&self) -> ServedService {
        let (database, settings) = &self.database;
        let neighbour = self.neighbour.as_ref().expect("somebody to tell");
        let more = borrowed(&self.flags);
        let mut config = config_with(&database.url, &neighbour.url(), &more);
        config.service.database = settings.clone();
        ServedService::start(|sockets, shutdown| {
            charges_svc::serve(config, sockets, self.clock.clone(), shutdown)
        })
        .await
    }

    /// Stops the service, so that nobody takes up what a test writes until another starts.
    pub async fn stop(&self) {
        self.service.stop().await;
    }

    /// Ends the test once the neighbour has been told everything, and checks the books.
    pub async fn end(self) {
        self.database.0.until_relayed().await;
        self.check_books().await;
        self.stop().await;
        self.db.close().await;
    }

    /// Stops the service and starts another on the same database, beside neighbours that take what
    /// they are told.
    pub async fn restart(self) -> Self {
        self.restart_beside(Neighbour::Open).await
    }

    /// The same with other settings.
    pub async fn restart_with(mut self, flags: &[(&str, &str)]) -> Self {
        let flags = flags.iter();
        let flags = flags.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.flags.extend(flags);
        self.restart().await
    }

    pub async fn restart_beside(self, neighbour: Neighbour) -> Self {
        self.stop().await;
        self.db.close().await;
        Self::start_on(self.database, self.folder, neighbour, self.flags).await
    }

    /// Writes a charge that has gone through these events, as if led by a rail.
    pub async fn given_charge(&self, events: &[Event]) -> Charge {
        self.given_old_charge(events, Duration::ZERO).await
    }

    /// Like [`World::given_charge`], with everything this long ago.
    pub async fn given_old_charge(&self, events: &[Event], age: Duration) -> Charge {
        let charge = new_charge(self.clock.now() - age);
        self.given(charge, events).await
    }

    /// Writes the next charge of the session of `first`.
    pub async fn given_next_charge(&self, first: &Charge, events: &[Event]) -> Charge {
        let mut charge = new_charge(self.clock.now());
        let (facts, before) = (charge.facts_mut(), &first.facts);
        (facts.session_id, facts.merchant_id) = (before.session_id, before.merchant_id);
        facts.charge_number = before.charge_number + 1;
        self.given(charge, events).await
    }

    /// Writes this charge, which has gone through these events at the time of its creation.
    pub async fn given(&self, mut charge: Charge, events: &[Event]) -> Charge {
        let then = charge.facts.created_at;
        let mut tx = self.db.begin().await.unwrap();
        assert_eq!(
            store::charges::insert(&mut tx, &charge).await.unwrap(),
            Insert::Inserted
        );
        for event in events {
            let after = charge.after(*event, then, timing()).unwrap();
            assert_eq!(
                change(&mut tx, &charge, &after).await.unwrap(),
                Written::All
            );
            charge = after;
        }
        tx.commit().await.unwrap();
        charge
    }

    pub async fn charge(&self, reference: &Reference) -> Charge {
        let mut conn = self.db.read().await.unwrap();
        let found = store::charges::find_by_reference(&mut conn, reference)
            .await
            .unwrap();
        found.unwrap()
    }

    /// Checks what holds in every test: the books balance.
    async fn check_books(&self) {
        let mut conn = self.db.read().await.unwrap();
        assert_eq!(store::postings::imbalances(&mut conn).await.unwrap(), []);
        assert!(
            store::postings::false_balances(&mut conn)
                .await
                .unwrap()
                .is_empty()
        );
    }
}

pub fn config(database_url: &str, neighbour_url: &str) -> Config {
    config_with(database_url, neighbour_url, &[])
}

fn borrowed(flags: &[(String, String)]) -> Vec<(&str, &str)> {
    let flags = flags.iter();
    flags
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// A configuration with these flags, which replace or extend those that every test has.
pub fn config_with(database_url: &str, neighbour_url: &str, more: &[(&str, &str)]) -> Config {
    let mut flags = BTreeMap::from([
        ("database-url", database_url),
        ("sessions-url", neighbour_url),
        ("webhooks-url", neighbour_url),
        ("merchants-url", neighbour_url),
        ("first-payout-account-hold", "0s"),
        // Nobody listens on port 1.
        ("momo-base-url", "http://127.0.0.1:1"),
        ("momo-subscription-key", "subscription-key"),
        ("momo-api-user", "6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11"),
        ("momo-api-key", "api-key"),
        ("momo-disbursement-subscription-key", "disbursement-key"),
        (
            "momo-disbursement-api-user",
            "0b6a6b3c-7a0e-4f43-8f4d-5d3f6f0f1b77",
        ),
        ("momo-disbursement-api-key", "disbursement-api-key"),
        ("momo-target-environment", "mtnghana"),
        ("paystack-base-url", "http://127.0.0.1:1"),
        ("paystack-secret-key", PAYSTACK_SECRET_KEY),
        ("paystack-email-domain", "payers.example.com"),
        ("paystack-callback-token", CALLBACK_TOKEN),
    ]);
    flags.extend(more.iter().copied());
    let flags = flags
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"));
    Config::parse_from(std::iter::once("charges-svc".to_owned()).chain(flags))
}

/// Writes what a charge has become.
pub async fn change(tx: &mut Tx, before: &Charge, after: &Charge) -> db::Result<Written> {
    let step = Step::new(before, after.clone(), after.progress.updated_at);
    store::steps::write(tx, &[&step]).await
}

pub fn timing() -> Timing<'static> {
    const SCHEDULE: [Duration; 1] = [Duration::from_secs(15)];
    Timing {
        schedule: &SCHEDULE,
        approval_window: Duration::from_secs(180),
        otp_lifetime: Duration::from_secs(600),
        resend_within: None,
    }
}

/// A charge of a Telecel payer.
pub fn new_charge(now: Timestamp) -> Charge {
    charge_of(Provider::Telecel, RailName::Paystack, now)
}

pub fn charge_of(provider: Provider, rail: RailName, now: Timestamp) -> Charge {
    let new = NewCharge {
        merchant_id: MerchantId::new(),
        merchant_name: "Ama's Shop".to_owned(),
        amount: Money::new(2550, Currency::GHS),
        phone: "+233201234002".parse().unwrap(),
        provider,
        description: None,
        payer_email: None,
        payer_name: None,
        hosted: None,
        asked_by: AskedBy::default(),
    };
    Charge::new(&new, rail, now, timing())
}

/// The same for an MTN payer, at the rail that debits MTN wallets.
pub fn new_momo_charge(now: Timestamp) -> Charge {
    charge_of(Provider::Mtn, RailName::Momo, now)
}

pub fn lease(clock: &Clock) -> Lease {
    Lease::new(clock, Duration::from_secs(30))
}

/// A valid request, each with a key of its own.
pub fn request() -> CreateChargeRequest {
    let key = format!("c:{}", MerchantId::new());
    CreateChargeRequest {
        merchant_id: MerchantId::new().to_string(),
        merchant_name: "Ama's Shop".to_owned(),
        amount: Some(ghs(2550)),
        mobile_number: "+233241234001".to_owned(),
        provider: ProtoProvider::Mtn.into(),
        description: Some("Order 17".to_owned()),
        payer_email: None,
        payer_name: None,
        idempotency_key: key,
        hosted: None,
        asked_by: None,
    }
}

pub fn ghs(minor_units: i64) -> proto::money::Money {
    Money::new(minor_units, Currency::GHS).into()
}
