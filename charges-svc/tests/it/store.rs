//! Leases, timers, keys and the ledger, when several processes use them.

use std::{collections::BTreeSet, time::Duration};

use charges_svc::{
    SCHEMA,
    charge::{Charge, Event, Timer},
    ledger,
    store::{
        self,
        evidence::Action,
        hints::About,
        idempotency::{self, FirstRequest, KEYS},
        steps::Written,
    },
};
use chassis::{
    charge_status::ChargeStatus,
    clock::{Clock, Timestamp},
    money::{Currency, Money},
    shutdown::Shutdown,
};
use db::{
    Db, Insert, KnownRows, Tx, Update,
    idempotency::{IdempotencyKey, KeyUse},
    testing::TestDb,
};
use futures::future::join_all;
use rails::RailName;
use sqlx::migrate::Migrator;

use crate::world::{change, lease, new_charge, timing};

/// A database on which no service works.
pub struct Bare {
    pub db: Db,
    pub clock: Clock,
    _database: TestDb,
    _folder: tempfile::TempDir,
}

impl Bare {
    pub async fn new() -> Self {
        let database = TestDb::new("charges-svc").await;
        let config = crate::world::config(&database.url, "http://127.0.0.1:1");
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::travelling(folder.path().join("clock")).unwrap();
        let shutdown = Shutdown::new();
        let service = &config.service;
        let opening = Db::open(&service.database, service.mode, &SCHEMA, &clock, &shutdown);
        let db = opening.await.unwrap();
        Self {
            db,
            clock,
            _database: database,
            _folder: folder,
        }
    }

    async fn given(&self, charge: &Charge) {
        let mut tx = self.db.begin().await.unwrap();
        assert_eq!(
            store::charges::insert(&mut tx, charge).await.unwrap(),
            Insert::Inserted
        );
        tx.commit().await.unwrap();
    }

    async fn claim(&self, length: Duration) -> Vec<Charge> {
        self.claim_up_to(8, length).await.rows
    }

    async fn claim_up_to(&self, limit: i64, length: Duration) -> KnownRows<Charge> {
        let mut tx = self.db.begin().await.unwrap();
        let claimed =
            store::charges::claim_due(&mut tx, &self.clock, RailName::Paystack, limit, length)
                .await
                .unwrap();
        tx.commit().await.unwrap();
        claimed
    }

    async fn find(&self, charge: &Charge) -> Charge {
        let mut conn = self.db.read().await.unwrap();
        let found = store::charges::find(&mut conn, charge.facts.transaction_id)
            .await
            .unwrap();
        found.unwrap()
    }
}

/// Releases a charge as its claimant does when the rail's answer changes nothing.
async fn release_until(tx: &mut Tx, claimed: &Charge, next_query_at: Option<Timestamp>) -> Update {
    let (id, fence) = (claimed.facts.transaction_id, claimed.claim.fence);
    let timer = Timer {
        next_query_at,
        ..claimed.timer
    };
    let released = store::charges::release_until(tx, id, fence, &timer).await;
    released.unwrap()
}

/// A charge that was created a minute ago, so that it is due.
fn due(clock: &Clock) -> Charge {
    new_charge(clock.now() - Duration::from_secs(60))
}

#[tokio::test]
async fn a_charge_reads_as_it_was_written() {
    let bare = Bare::new().await;
    let mut charge = new_charge(bare.clock.now());
    charge.facts_mut().rate = Some("12.345".to_owned());
    charge.facts_mut().description = Some("two \u{1f34b} lemons".to_owned());
    charge.timer.otp_expires_at = Some(bare.clock.now());
    charge.timer.resent_at = Some(bare.clock.now());
    let held = lease(&bare.clock);
    charge.claim = held.into();
    bare.given(&charge).await;
    assert_eq!(
        format!("{:?}", bare.find(&charge).await),
        format!("{charge:?}")
    );
}

#[tokio::test]
async fn a_charge_of_a_newer_version_holds_up_no_other() {
    let bare = Bare::new().await;
    let charges: Vec<_> = (0..4).map(|_| due(&bare.clock)).collect();
    for charge in &charges {
        bare.given(charge).await;
    }
    let mut tx = bare.db.begin().await.unwrap();
    for (newer, charge) in [
        (
            "update charges set provider = 'NEWER' where transaction_id = $1",
            &charges[0],
        ),
        (
            "update charges set rail = 'newer' where transaction_id = $1",
            &charges[1],
        ),
    ] {
        let written = tx.sql(newer).bind(charge.facts.transaction_id);
        assert_eq!(written.update().await.unwrap(), Update::Updated);
    }
    tx.commit().await.unwrap();
    let mut claimed = Vec::new();
    let mut unknown = 0;
    for _ in 0..3 {
        // One at a time: what is left out counts as claimed, and is not claimed again.
        let one = bare.claim_up_to(1, Duration::from_secs(30)).await;
        assert_eq!(one.rows.len() + one.unknown, 1);
        claimed.extend(one.rows.iter().map(|one| one.facts.transaction_id));
        unknown += one.unknown;
    }
    assert_eq!(unknown, 1);
    let mut known: Vec<_> = charges[2..]
        .iter()
        .map(|one| one.facts.transaction_id)
        .collect();
    claimed.sort();
    known.sort();
    assert_eq!(claimed, known);
}

#[tokio::test]
async fn due_charges_are_claimed_once_by_however_many() {
    let bare = Bare::new().await;
    for _ in 0..40 {
        bare.given(&due(&bare.clock)).await;
    }
    let claims = join_all((0..8).map(|_| bare.claim(Duration::from_secs(30)))).await;
    let mut claimed: Vec<_> = claims
        .into_iter()
        .flatten()
        .map(|one| one.facts.transaction_id)
        .collect();
    claimed.sort();
    let all = claimed.len();
    claimed.dedup();
    assert_eq!(claimed.len(), all, "none was claimed twice");
    while !bare.claim(Duration::from_secs(30)).await.is_empty() {}
    let mut conn = bare.db.read().await.unwrap();
    let next = store::charges::next_due(&mut conn, RailName::Paystack, bare.clock.real_now())
        .await
        .unwrap();
    assert_eq!(next, None, "what is held is waited for by nobody");
}

#[tokio::test]
async fn who_lost_the_lease_cannot_set_the_timer() {
    let bare = Bare::new().await;
    let charge = due(&bare.clock);
    bare.given(&charge).await;
    let slow = bare.claim(Duration::ZERO).await.remove(0);
    let quick = bare.claim(Duration::from_secs(30)).await.remove(0);
    assert_ne!(slow.claim.fence, quick.claim.fence);
    let now = bare.clock.now();
    let mut tx = bare.db.begin().await.unwrap();
    assert_eq!(release_until(&mut tx, &slow, None).await, Update::NotThere);
    tx.commit().await.unwrap();
    assert_eq!(bare.find(&charge).await.claim.fence, quick.claim.fence);
    let mut tx = bare.db.begin().await.unwrap();
    let next = Some(now + Duration::from_secs(60));
    assert_eq!(release_until(&mut tx, &quick, next).await, Update::Updated);
    tx.commit().await.unwrap();
    assert_eq!(bare.find(&charge).await.timer.next_query_at, next);
}

/// Two processes have found that the rail has no such payment.
#[tokio::test]
async fn a_payment_request_goes_out_once_more_from_who_holds_the_charge_alone() {
    let bare = Bare::new().await;
    let charge = due(&bare.clock);
    bare.given(&charge).await;
    let slow = bare.claim(Duration::ZERO).await.remove(0);
    let quick = bare.claim(Duration::from_secs(30)).await.remove(0);
    let mark = async |held: &Charge| {
        let (id, fence, mut timer) = (held.facts.transaction_id, held.claim.fence, held.timer);
        timer.begin_resend(bare.clock.now());
        let mut tx = bare.db.begin().await.unwrap();
        let marked = store::charges::mark_resent(&mut tx, id, fence, &timer).await;
        let marked = marked.unwrap();
        tx.commit().await.unwrap();
        marked
    };
    assert_eq!(mark(&slow).await, Update::NotThere, "another holds it");
    assert_eq!(mark(&quick).await, Update::Updated);
    assert_eq!(mark(&quick).await, Update::NotThere, "once only");
}

#[tokio::test]
async fn a_change_of_the_charge_ends_no_callback() {
    let bare = Bare::new().await;
    let charge = new_charge(bare.clock.now());
    bare.given(&charge).await;
    let now = bare.clock.now();
    let about = About::Token(charge.facts.callback_token.clone());
    let mut conn = bare.db.read().await.unwrap();
    let found = store::hints::find(&mut conn, RailName::Paystack, &about).await;
    assert_eq!(found.unwrap(), Some(charge.facts.transaction_id));
    drop(conn);
    let mut tx = bare.db.begin().await.unwrap();
    let hinted = store::hints::put(&mut tx, charge.facts.transaction_id, now).await;
    assert_eq!(hinted.unwrap(), Update::Updated);
    tx.commit().await.unwrap();
    let before = bare.find(&charge).await;
    let after = before.after(Event::Accepted, now, timing()).unwrap();
    let mut tx = bare.db.begin().await.unwrap();
    assert_eq!(
        change(&mut tx, &before, &after).await.unwrap(),
        Written::All
    );
    assert_eq!(
        change(&mut tx, &before, &after).await.unwrap(),
        Written::NotAsBefore,
        "once only"
    );
    tx.commit().await.unwrap();
    assert_eq!(bare.claim(Duration::ZERO).await.len(), 1);
}

#[tokio::test]
async fn money_that_does_not_fit_keeps_a_settlement_out() {
    let bare = Bare::new().await;
    let charge = due(&bare.clock);
    bare.given(&charge).await;
    let before = bare.find(&charge).await;
    let mut tx = bare.db.begin().await.unwrap();
    store::charges::mark_mismatched(&mut tx, charge.facts.transaction_id)
        .await
        .unwrap();
    let after = before
        .after(Event::Settled, bare.clock.now(), timing())
        .unwrap();
    assert_eq!(
        change(&mut tx, &before, &after).await.unwrap(),
        Written::NotAsBefore
    );
}

#[tokio::test]
async fn a_posting_is_written_once_and_the_books_balance() {
    let bare = Bare::new().await;
    let charge = new_charge(bare.clock.now());
    let now = bare.clock.now();
    let posts = join_all((0..8).map(async |_| {
        let posting = ledger::settlement(&charge.facts).unwrap();
        let mut tx = bare.db.begin().await.unwrap();
        let posted = store::postings::post(&mut tx, &posting, now).await.unwrap();
        tx.commit().await.unwrap();
        posted
    }))
    .await;
    let posts = posts
        .into_iter()
        .filter(|posted| *posted == Insert::Inserted);
    assert_eq!(posts.count(), 1);
    let mut tx = bare.db.begin().await.unwrap();
    let fee = ledger::rail_fee(&charge.facts, Money::new(50, Currency::GHS), "rails").unwrap();
    assert_eq!(
        store::postings::post(&mut tx, &fee, now).await.unwrap(),
        Insert::Inserted
    );
    let dollars = ledger::suspense(&charge.facts, Money::new(9, Currency::USD)).unwrap();
    assert_eq!(
        store::postings::post(&mut tx, &dollars, now).await.unwrap(),
        Insert::Inserted
    );
    tx.commit().await.unwrap();
    let mut conn = bare.db.read().await.unwrap();
    let balances = store::postings::balances(&mut conn, charge.facts.merchant_id, false)
        .await
        .unwrap();
    assert_eq!(balances.available, [charge.facts.amount()]);
    assert_eq!(store::postings::imbalances(&mut conn).await.unwrap(), []);
    assert!(
        store::postings::false_balances(&mut conn)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn cooked_books_are_found() {
    let bare = Bare::new().await;
    let charge = new_charge(bare.clock.now());
    let mut tx = bare.db.begin().await.unwrap();
    let posting = ledger::settlement(&charge.facts).unwrap();
    assert_eq!(
        store::postings::post(&mut tx, &posting, bare.clock.now())
            .await
            .unwrap(),
        Insert::Inserted
    );
    if bare.db.is_postgres() {
        // As somebody whom no trigger stops.
        let unchecked = "set local session_replication_role = replica";
        tx.sql(unchecked).run().await.unwrap();
    }
    tx.sql("update balances set amount_minor = amount_minor + 1")
        .run()
        .await
        .unwrap();
    tx.sql(
        "insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
         select 'FORGED', subject, line, 'suspense', 7, currency, posted_at from postings
         where line = 1",
    )
    .run()
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let mut conn = bare.db.read().await.unwrap();
    let imbalances = store::postings::imbalances(&mut conn).await.unwrap();
    assert_eq!(imbalances, [Money::new(7, Currency::GHS)]);
    let merchant = format!("merchant:{}", charge.facts.merchant_id);
    assert_eq!(
        store::postings::false_balances(&mut conn).await.unwrap(),
        [merchant]
    );
}

#[tokio::test]
async fn an_account_without_its_balance_is_found() {
    let bare = Bare::new().await;
    let charge = new_charge(bare.clock.now());
    let posting = ledger::settlement(&charge.facts).unwrap();
    let mut tx = bare.db.begin().await.unwrap();
    let now = bare.clock.now();
    assert_eq!(
        store::postings::post(&mut tx, &posting, now).await.unwrap(),
        Insert::Inserted
    );
    tx.sql("delete from balances").run().await.unwrap();
    tx.commit().await.unwrap();
    let mut conn = bare.db.read().await.unwrap();
    let found = store::postings::false_balances(&mut conn).await.unwrap();
    assert_eq!(found, [format!("merchant:{}", charge.facts.merchant_id)]);
}

#[tokio::test]
async fn on_postgres_a_posting_that_does_not_balance_is_refused() {
    let bare = Bare::new().await;
    if !bare.db.is_postgres() {
        return;
    }
    let insert = "given (number bigint, minor bigint, of_currency text)
         insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
         select 'FORGED', $1, number, 'suspense', minor, of_currency, $2 from given";
    let subject = uuid::Uuid::now_v7();
    let now = bare.clock.now();
    let post = async |lines: &[(i64, i64, &str)]| {
        let mut tx = bare.db.begin().await.unwrap();
        let posted = tx.sql_set(insert, lines.len()).bind(subject).bind(now);
        let posted = posted
            .column(lines.iter().map(|(number, ..)| *number))
            .column(lines.iter().map(|(_, minor, _)| *minor))
            .column(lines.iter().map(|(.., currency)| *currency));
        posted.run().await?;
        tx.commit().await
    };
    for lines in [
        &[(1, 7, "GHS")][..],
        &[(1, 7, "GHS"), (2, -6, "GHS")],
        &[(1, 7, "GHS"), (2, -7, "USD")],
    ] {
        let refused = post(lines).await.unwrap_err();
        let code = refused.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("23514"), "{refused}");
    }
    post(&[(1, 7, "GHS"), (2, 9, "USD"), (3, -7, "GHS"), (4, -9, "USD")])
        .await
        .unwrap();
    // Nor can a posting be unbalanced later.
    post(&[(5, 1, "GHS")]).await.unwrap_err();
}

#[tokio::test]
async fn on_postgres_nobody_changes_what_was_posted() {
    let bare = Bare::new().await;
    if !bare.db.is_postgres() {
        return;
    }
    let charge = new_charge(bare.clock.now());
    let mut tx = bare.db.begin().await.unwrap();
    let posting = ledger::settlement(&charge.facts).unwrap();
    assert_eq!(
        store::postings::post(&mut tx, &posting, bare.clock.now())
            .await
            .unwrap(),
        Insert::Inserted
    );
    tx.commit().await.unwrap();
    for tampering in [
        "update postings set amount_minor = 1",
        "delete from postings",
        "truncate postings",
    ] {
        let mut tx = bare.db.begin().await.unwrap();
        assert!(tx.sql(tampering).run().await.is_err(), "{tampering}");
    }
}

#[tokio::test]
async fn a_key_is_taken_once_answered_once_and_kept_a_day() {
    let bare = Bare::new().await;
    let charge = new_charge(bare.clock.now());
    let (id, now) = (charge.facts.transaction_id, bare.clock.now());
    let key = IdempotencyKey {
        merchant_id: charge.facts.merchant_id,
        key: "c:order-17".to_owned(),
        fingerprint: "f".to_owned(),
    };
    let mut tx = bare.db.begin().await.unwrap();
    let take = async |tx: &mut Tx, id| -> KeyUse<FirstRequest> {
        KEYS.take(tx, &key, id, now).await.unwrap()
    };
    let taken = take(&mut tx, id).await;
    assert!(matches!(taken, KeyUse::First), "{taken:?}");
    let answered = ChargeStatus::OtpRequired;
    let kept = idempotency::answer(&mut tx, id, answered, "first").await;
    assert_eq!(kept.unwrap(), Update::Updated);
    let late = ChargeStatus::Failed;
    let kept = idempotency::answer(&mut tx, id, late, "second").await;
    assert_eq!(kept.unwrap(), Update::NotThere);
    let again = take(&mut tx, new_charge(now).facts.transaction_id).await;
    let KeyUse::Repeat(first) = again else {
        panic!("{again:?}");
    };
    assert_eq!(first.transaction_id, id);
    assert_eq!(
        (first.answer_status, first.answer_message.as_deref()),
        (Some(answered), Some("first"))
    );
    let day = Duration::from_secs(86_400);
    assert_eq!(
        KEYS.forget_due(&mut tx, now + 9 * day, 10).await.unwrap(),
        0,
        "its charge is open"
    );
    KEYS.forget_later(&mut tx, id, now).await.unwrap();
    let almost = now + day - Duration::from_millis(1);
    assert_eq!(KEYS.forget_due(&mut tx, almost, 10).await.unwrap(), 0);
    assert_eq!(KEYS.forget_due(&mut tx, now + day, 10).await.unwrap(), 1);
    let taken = take(&mut tx, id).await;
    assert!(matches!(taken, KeyUse::First), "{taken:?}");
}

#[tokio::test]
async fn a_session_settles_once() {
    let bare = Bare::new().await;
    let first = new_charge(bare.clock.now());
    bare.given(&first).await;
    let settle = async |charge: &Charge| {
        let before = bare.find(charge).await;
        let mut tx = bare.db.begin().await.unwrap();
        let after = before
            .after(Event::Settled, bare.clock.now(), timing())
            .unwrap();
        let changed = change(&mut tx, &before, &after).await?;
        assert_eq!(changed, Written::All);
        tx.commit().await
    };
    settle(&first).await.unwrap();
    let mut second = new_charge(bare.clock.now());
    let facts = second.facts_mut();
    (facts.session_id, facts.charge_number) = (first.facts.session_id, 2);
    bare.given(&second).await;
    let refused = settle(&second).await.unwrap_err();
    assert!(db::is_unique_violation(&refused));
}

#[tokio::test]
async fn a_talkative_rail_leaves_room_for_what_decides() {
    let bare = Bare::new().await;
    let id = new_charge(bare.clock.now()).facts.transaction_id;
    let now = bare.clock.now();
    let mut tx = bare.db.begin().await.unwrap();
    for number in 0..300 {
        let text = format!("HTTP 500 at {number}");
        let said = (Action::Query, "unknown");
        store::evidence::keep(&mut tx, id.uuid(), said, Some(&text), now)
            .await
            .unwrap();
    }
    for (said, text) in [
        ((Action::Query, "unknown"), "HTTP 500 at 0"),
        ((Action::Query, "succeeded"), "HTTP 200"),
        ((Action::Operator, "failed"), "statement, line 12"),
    ] {
        store::evidence::keep(&mut tx, id.uuid(), said, Some(text), now)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut conn = bare.db.read().await.unwrap();
    let kept = store::evidence::list(&mut conn, id.uuid()).await.unwrap();
    assert_eq!(kept.len(), 202);
    let find = |action: &str, text: &str| {
        let mut said = kept.iter();
        said.find(|said| said.action == action && said.rail_text == text)
    };
    assert_eq!(find("query", "HTTP 500 at 0").unwrap().times, 2);
    assert!(find("query", "HTTP 200").is_some());
    assert!(find("operator", "statement, line 12").is_some());
}

/// The last migration of the release before this one.
const RELEASED: i64 = 19;

/// While replicas are replaced one after the other, those of the release before still look by its
/// indexes.
#[tokio::test]
async fn the_indexes_of_the_release_before_stay() {
    let test = TestDb::new("charges-svc").await;
    let db = test.connect().await;
    let indexes = async || -> BTreeSet<String> {
        let listed = match db.is_postgres() {
            true => "select cast(indexname as text) from pg_indexes where schemaname = 'public'",
            false => "select name from sqlite_master where type = 'index'",
        };
        let mut conn = db.read().await.unwrap();
        let names: Vec<(String,)> = conn.sql(listed).all().await.unwrap();
        names.into_iter().map(|(name,)| name).collect()
    };
    let released = SCHEMA.migrations.iter();
    let released = released.filter(|migration| migration.version <= RELEASED);
    let released = Migrator::with_migrations(released.cloned().collect());
    db.migrate(&released).await.unwrap();
    let before = indexes().await;
    db.migrate(&SCHEMA.migrations).await.unwrap();
    let gone: Vec<_> = before.difference(&indexes().await).cloned().collect();
    assert_eq!(gone, [""; 0]);
    db.close().await;
}
