//! A set means what its requests mean one after the other.

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, MerchantId, SessionId, TxIdDisplay},
    money::{Currency, Money},
};
use db::testing::TestDb;
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::runtime::Runtime;

use super::*;
use crate::{
    SCHEMA,
    creation::{Creation, CreationOutcome},
    customer::Payer,
    report::{ReportOutcome, Step},
    session::{DirectSession, Origin, Session, SessionStatus},
    transaction::Transaction,
};

const AMA: &str = "+233241234567";
const KOFI: &str = "+233201234567";

/// Some payers that are partly the same.
const PAYERS: [[&str; 3]; 7] = [
    ["", "", ""],
    [AMA, "", "Ama"],
    ["", "ama@example.com", ""],
    [AMA, "AMA@example.com", "Ama Mensah"],
    [KOFI, "ama@example.com", ""],
    [KOFI, "", "Kofi"],
    ["", "", "nobody"],
];

fn payer(number: usize) -> Payer {
    let [phone, email, name] = PAYERS[number];
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Payer {
        phone: given(phone).map(|phone| phone.parse().unwrap()),
        email: given(email),
        name: given(name),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_800_000_000_000 + seconds * 1_000).unwrap()
}

/// A request in a world of a few sessions.
#[derive(Clone, Debug)]
enum Given {
    Create {
        key: u8,
        amount: i64,
        payer: usize,
    },
    Report {
        /// Of four; the last two are brought by direct charges.
        session: usize,
        number: u32,
        version: u32,
        /// `None`: withdrawn.
        status: Option<ChargeStatus>,
        is_open: bool,
        amount: i64,
        payer: usize,
    },
}

fn any_given() -> impl Strategy<Value = Given> {
    let create = (0..3_u8, 1..3_i64, 0..PAYERS.len())
        .prop_map(|(key, amount, payer)| Given::Create { key, amount, payer });
    let status = prop::option::weighted(
        0.8,
        prop::sample::select(vec![
            ChargeStatus::Initiated,
            ChargeStatus::OtpRequired,
            ChargeStatus::Settled,
            ChargeStatus::Failed,
        ]),
    );
    let amount = prop_oneof![9 => Just(25_i64), 1 => Just(26_i64)];
    let report = (
        0..4_usize,
        1..3_u32,
        1..5_u32,
        status,
        any::<bool>(),
        amount,
        0..PAYERS.len(),
    )
        .prop_map(
            |(session, number, version, status, is_open, amount, payer)| Given::Report {
                session,
                number,
                version,
                status,
                is_open,
                amount,
                payer,
            },
        );
    prop_oneof![1 => create, 2 => report]
}

/// One world: the same requests mean the same in each, but their ids differ.
struct World {
    merchant: MerchantId,
    sessions: [SessionId; 4],
    charges: [[ChargeId; 2]; 4],
    /// Of the requests, by their places.
    created: Vec<SessionId>,
}

impl World {
    async fn new(db: &Db, requests: usize) -> Self {
        let world = Self {
            merchant: MerchantId::new(),
            sessions: std::array::from_fn(|_| SessionId::new()),
            charges: std::array::from_fn(|_| std::array::from_fn(|_| ChargeId::new())),
            created: (0..requests).map(|_| SessionId::new()).collect(),
        };
        for session in 0..2 {
            let hosted = Creation {
                key: world.key(&format!("hosted {session}"), 25),
                session: world.session(world.sessions[session], 25, payer(0)),
            };
            let created = Creation::run_set(db, &[hosted]).await.unwrap();
            assert!(matches!(created[..], [CreationOutcome::Created]));
        }
        world
    }

    fn key(&self, name: &str, amount: i64) -> db::idempotency::IdempotencyKey {
        db::idempotency::IdempotencyKey {
            merchant_id: self.merchant,
            key: name.to_owned(),
            fingerprint: amount.to_string(),
        }
    }

    fn session(&self, session_id: SessionId, amount_minor: i64, payer: Payer) -> Session {
        Session {
            session_id,
            merchant_id: self.merchant,
            origin: Origin::Hosted,
            amount_minor,
            currency: Currency::GHS,
            description: None,
            redirect_url: None,
            payer,
            customer_id: None,
            status: SessionStatus::Pending,
            created_at: at(0),
            expires_at: at(3_600),
        }
    }

    fn creation(&self, place: usize, given: &Given) -> Option<Creation> {
        let Given::Create { key, amount, payer } = given else {
            return None;
        };
        Some(Creation {
            key: self.key(&key.to_string(), *amount),
            session: self.session(self.created[place], *amount, self::payer(*payer)),
        })
    }

    fn recording(&self, place: usize, given: &Given) -> Option<Recording> {
        let Given::Report {
            session,
            number,
            version,
            status,
            is_open,
            amount,
            payer,
        } = given
        else {
            return None;
        };
        let is_direct = *session >= 2;
        let amount = Money::new(*amount, Currency::GHS);
        let number = if is_direct { 1 } else { *number };
        let transaction = status.map(|status| Transaction {
            transaction_id: self.charges[*session][number as usize - 1],
            tx_id_display: "TX-0123456789".parse::<TxIdDisplay>().unwrap(),
            status,
            method: "MOBILE_MONEY".to_owned(),
            failure_reason: (status == ChargeStatus::Failed).then(|| "RAIL_ERROR".to_owned()),
            failure_message: None,
            settlement: None,
            wallet: None,
            created_at: at(1),
            updated_at: at(i64::try_from(place).unwrap()),
        });
        let step = match (transaction, is_open) {
            (None, _) => Step::Withdraw,
            (Some(transaction), true) => Step::Open {
                transaction,
                amount,
            },
            (Some(transaction), false) => Step::Update {
                transaction,
                amount,
                payer: self::payer(*payer),
            },
        };
        Some(Recording {
            report: Report {
                merchant_id: self.merchant,
                session_id: self.sessions[*session],
                charge_number: number,
                version: *version,
                step,
                direct: is_direct.then(|| DirectSession {
                    amount: Money::new(25, Currency::GHS),
                    description: None,
                    payer: Payer::default(),
                    created_at: at(0),
                }),
            },
            now: at(2),
            session_lifetime: Duration::from_secs(3_600),
        })
    }

    /// What is known at the end, without ids.
    async fn end(&self, db: &Db) -> String {
        let mut conn = db.read().await.unwrap();
        let mut known = String::new();
        for session in self.sessions.iter().chain(&self.created) {
            let shown = crate::store::find_shown(db, &[(*session, at(2))]).await;
            let shown = shown.unwrap().pop().unwrap();
            let shown = shown.map(|shown| {
                let charge = shown.transaction.map(|charge| {
                    let place = self.charges.as_flattened().iter();
                    let place = place.clone().position(|id| *id == charge.transaction_id);
                    (
                        place,
                        charge.status,
                        charge.failure_reason,
                        charge.updated_at,
                    )
                });
                (
                    shown.status,
                    shown.session.payer,
                    shown.session.customer_id.is_some(),
                    charge,
                )
            });
            let charges: Vec<(i64, i64, String)> = conn
                .sql(
                    "select charge_number, version, status from transactions
                     where session_id = $1 order by charge_number",
                )
                .bind(*session)
                .all()
                .await
                .unwrap();
            let kept: Vec<(String, bool)> = conn
                .sql("select key, keep_until is null from idempotency_keys where session_id = $1")
                .bind(*session)
                .all()
                .await
                .unwrap();
            known += &format!("{shown:?} {charges:?} {kept:?}\n");
        }
        let customers: Vec<KnownCustomer> = conn
            .sql(
                "select phone, email, name, payments_count, last_payment_at from customers
                 where merchant_id = $1 order by phone, email_key",
            )
            .bind(self.merchant)
            .all()
            .await
            .unwrap();
        known + &format!("{customers:?}")
    }
}

/// A customer's phone, e-mail and name, its payments, and when it last paid.
type KnownCustomer = (
    Option<String>,
    Option<String>,
    Option<String>,
    i64,
    Option<Timestamp>,
);

fn answers(outcomes: Vec<Outcome>) -> Vec<String> {
    let answer = |outcome: Outcome| match outcome {
        Ok(Recorded { reply, due }) => {
            let is_recorded = reply.outcome == ReportOutcome::Recorded;
            format!("{is_recorded} {:?} {due:?}", reply.session_status)
        }
        Err(error) => error.to_string(),
    };
    outcomes.into_iter().map(answer).collect()
}

fn creations(world: &World, outcomes: Vec<CreationOutcome>) -> Vec<String> {
    let outcome = |outcome| match outcome {
        CreationOutcome::Replayed(session) => {
            let place = world
                .created
                .iter()
                .position(|id| *id == session.session_id);
            format!(
                "replayed {place:?} {:?} {}",
                session.status, session.amount_minor
            )
        }
        outcome => format!("{outcome:?}"),
    };
    outcomes.into_iter().map(outcome).collect()
}

async fn check(db: &Db, given: &[Given]) -> Result<(), TestCaseError> {
    let (set, alone) = (
        World::new(db, given.len()).await,
        World::new(db, given.len()).await,
    );
    let all = |world: &World| -> (Vec<Creation>, Vec<Recording>) {
        let given = || given.iter().enumerate();
        (
            given()
                .filter_map(|(place, given)| world.creation(place, given))
                .collect(),
            given()
                .filter_map(|(place, given)| world.recording(place, given))
                .collect(),
        )
    };
    let (to_create, to_record) = all(&set);
    let turns: Vec<usize> = turns(&to_record).concat();
    let created = match to_create[..] {
        [] => Vec::new(),
        _ => creations(&set, Creation::run_set(db, &to_create).await.unwrap()),
    };
    let recorded = match to_record[..] {
        [] => Vec::new(),
        _ => answers(Recording::run_set(db, &to_record).await.unwrap()),
    };
    let (to_create, to_record) = all(&alone);
    let mut created_alone = Vec::new();
    for creation in to_create.chunks(1) {
        created_alone.extend(creations(
            &alone,
            Creation::run_set(db, creation).await.unwrap(),
        ));
    }
    let mut recorded_alone = vec![String::new(); to_record.len()];
    for place in turns {
        let outcome = Recording::run_set(db, &to_record[place..=place])
            .await
            .unwrap();
        recorded_alone[place] = answers(outcome).concat();
    }
    prop_assert_eq!(created, created_alone);
    prop_assert_eq!(recorded, recorded_alone);
    prop_assert_eq!(set.end(db).await, alone.end(db).await);
    Ok(())
}

#[test]
fn a_set_of_requests_is_as_one_after_the_other() {
    let runtime = Runtime::new().unwrap();
    let (database, db) = runtime.block_on(async {
        let database = TestDb::new("sessions-svc").await;
        let db = database.connect().await;
        db.migrate(&SCHEMA.migrations).await.unwrap();
        (database, db)
    });
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(96)
    });
    let many = prop::collection::vec(any_given(), 1..24);
    let result = runner.run(&many, |given| runtime.block_on(check(&db, &given)));
    runtime.block_on(db.close());
    drop(database);
    result.unwrap_or_else(|error| panic!("{error}"));
}
