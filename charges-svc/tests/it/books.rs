//! The ledger is sealed, and any later tampering is found.

use std::time::Duration;

use charges_svc::{
    SCHEMA,
    books::{self, Finding},
    charge::Event,
    ledger::{self, Posting},
    store,
};
use chassis::{
    clock::{Clock, Timestamp},
    config::Mode,
    money::{Currency, Money},
    shutdown::Shutdown,
    testing::until,
};
use db::{Db, Insert, Tx, testing::TestDb};
use futures::future::join_all;
use proto::charges::{ResolveChargeRequest, resolve_charge_request::Outcome};
use sqlx::migrate::Migrator;
use uuid::Uuid;

use crate::{
    store::Bare,
    world::{World, new_charge},
};

/// Posts the settlement of a new charge, without the charge.
pub async fn post(bare: &Bare) -> Posting {
    let posting = ledger::settlement(&new_charge(bare.clock.now()).facts).unwrap();
    let mut tx = bare.db.begin().await.unwrap();
    write(&mut tx, &posting, bare.clock.now()).await;
    tx.commit().await.unwrap();
    posting
}

pub async fn write(tx: &mut Tx, posting: &Posting, now: Timestamp) {
    let written = store::postings::post(tx, posting, now).await;
    assert_eq!(written.unwrap(), Insert::Inserted);
}

/// Seals everything, even if it does not fill a block.
async fn seal(bare: &Bare) -> u64 {
    bare.clock.advance(Duration::from_secs(60)).await.unwrap();
    now_due(&bare.db).await;
    books::seal(&bare.db, &bare.clock).await.unwrap()
}

/// Checks new blocks and, if that is due, the whole ledger.
async fn check(bare: &Bare) -> Vec<Finding> {
    now_due(&bare.db).await;
    checked(&bare.db, &bare.clock).await
}

async fn checked(db: &Db, clock: &Clock) -> Vec<Finding> {
    let mut findings = books::check_new(db, clock).await.unwrap().unwrap();
    let whole = books::check_whole(db, clock).await.unwrap();
    findings.extend(whole.into_iter().flatten());
    findings
}

/// Makes every duty due, as if its last time were long ago.
pub async fn now_due(db: &Db) {
    let mut tx = db.begin().await.unwrap();
    let due = "update ledger_works set next_at = '1970-01-01T00:00:00.000Z'";
    assert_eq!(tx.sql(due).rows_affected().await.unwrap(), 6);
    tx.commit().await.unwrap();
}

/// Moves the clock six hours on, when a whole check is due.
async fn everything_is_due(bare: &Bare) {
    bare.clock
        .advance(Duration::from_secs(6 * 60 * 60))
        .await
        .unwrap();
}

/// Does what nobody may do, as somebody whom no trigger and no role stops.
pub async fn tamper(db: &Db, statements: &[&'static str]) {
    let mut tx = db.begin().await.unwrap();
    if db.is_postgres() {
        let unchecked = "set local session_replication_role = replica";
        tx.sql(unchecked).run().await.unwrap();
    }
    for statement in statements {
        assert!(
            tx.sql(statement).rows_affected().await.unwrap() > 0,
            "{statement}"
        );
    }
    tx.commit().await.unwrap();
}

pub async fn count(db: &Db, sql: &'static str) -> i64 {
    let (count,) = db.read().await.unwrap().sql(sql).one().await.unwrap();
    count
}

#[tokio::test]
async fn what_is_posted_is_sealed_once_and_found_good() {
    let bare = Bare::new().await;
    assert_eq!(seal(&bare).await, 0);
    assert_eq!(check(&bare).await, []);
    for blocks in 1..=3 {
        post(&bare).await;
        post(&bare).await;
        assert_eq!(seal(&bare).await, 1);
        assert_eq!(seal(&bare).await, 0);
        assert_eq!(check(&bare).await, []);
        assert_eq!(
            count(&bare.db, "select max(number) from blocks").await,
            blocks
        );
    }
    assert_eq!(
        count(&bare.db, "select count(*) from sealed_postings").await,
        6
    );
    everything_is_due(&bare).await;
    assert_eq!(check(&bare).await, []);
    // No check runs until it is due again.
    for again in [
        books::check_new(&bare.db, &bare.clock).await,
        books::check_whole(&bare.db, &bare.clock).await,
    ] {
        assert_eq!(again.unwrap(), None);
    }
}

#[tokio::test]
async fn a_posting_that_commits_late_is_in_a_later_block() {
    let bare = Bare::new().await;
    let early = bare.clock.now() - Duration::from_secs(3_600);
    let late = ledger::settlement(&new_charge(early).facts).unwrap();
    if bare.db.is_postgres() {
        // Its transaction is open while others commit and are sealed.
        let mut tx = bare.db.begin().await.unwrap();
        write(&mut tx, &late, early).await;
        post(&bare).await;
        assert_eq!(seal(&bare).await, 1);
        tx.commit().await.unwrap();
    } else {
        post(&bare).await;
        assert_eq!(seal(&bare).await, 1);
        let mut tx = bare.db.begin().await.unwrap();
        write(&mut tx, &late, early).await;
        tx.commit().await.unwrap();
    }
    assert_eq!(seal(&bare).await, 1);
    let mut conn = bare.db.read().await.unwrap();
    let block = "select block from sealed_postings where subject = $1";
    let (block,): (i64,) = conn.sql(block).bind(late.subject).one().await.unwrap();
    assert_eq!(block, 2);
    drop(conn);
    assert_eq!(check(&bare).await, []);
}

#[tokio::test]
async fn sealers_at_once_make_one_chain() {
    let bare = Bare::new().await;
    let now = bare.clock.now();
    let mut tx = bare.db.begin().await.unwrap();
    for _ in 0..1_100 {
        let posting = ledger::settlement(&new_charge(now).facts).unwrap();
        write(&mut tx, &posting, now).await;
    }
    tx.commit().await.unwrap();
    bare.clock.advance(Duration::from_secs(60)).await.unwrap();
    let sealed = join_all((0..6).map(async |_| books::seal(&bare.db, &bare.clock).await.unwrap()));
    assert_eq!(sealed.await.into_iter().sum::<u64>(), 3);
    assert_eq!(count(&bare.db, "select count(*) from blocks").await, 3);
    assert_eq!(count(&bare.db, "select max(number) from blocks").await, 3);
    assert_eq!(
        count(&bare.db, "select count(*) from sealed_postings").await,
        1_100
    );
    assert_eq!(
        count(&bare.db, "select count(*) from unsealed_postings").await,
        0
    );
    assert_eq!(check(&bare).await, []);
}

#[tokio::test]
async fn a_backlog_beside_a_long_history_is_sealed_and_nothing_keeps_waiting() {
    let bare = Bare::new().await;
    for sealed in [10, 20] {
        let now = bare.clock.now();
        let mut tx = bare.db.begin().await.unwrap();
        for _ in 0..5_000 {
            let posting = ledger::settlement(&new_charge(now).facts).unwrap();
            write(&mut tx, &posting, now).await;
        }
        // Postings that are already in a block may be queued again, before others.
        let again = "insert into unsealed_postings (kind, subject, since)
                     select kind, subject, $1 from sealed_postings limit 700";
        tx.sql(again).bind(now).run().await.unwrap();
        tx.commit().await.unwrap();
        seal(&bare).await;
        let blocks = count(&bare.db, "select count(*) from blocks").await;
        assert!(blocks >= sealed, "{blocks}");
        assert_eq!(
            count(&bare.db, "select count(*) from sealed_postings").await,
            sealed * 500
        );
        let waiting = "select count(*) from unsealed_postings";
        assert_eq!(count(&bare.db, waiting).await, 0);
    }
    assert_eq!(check(&bare).await, []);
}

/// Seals and checks three blocks of two postings, tampers with them, and returns what a whole
/// check finds.
async fn found_after(statements: &[&'static str]) -> Vec<Finding> {
    let bare = Bare::new().await;
    for _ in 0..3 {
        post(&bare).await;
        post(&bare).await;
        assert_eq!(seal(&bare).await, 1);
    }
    assert_eq!(check(&bare).await, []);
    tamper(&bare.db, statements).await;
    everything_is_due(&bare).await;
    let mut findings = check(&bare).await;
    for finding in &mut findings {
        // Subjects are random, so the tests leave them out.
        if let Finding::Gone { subject, .. }
        | Finding::Unbalanced { subject, .. }
        | Finding::Unqueued { subject, .. } = finding
        {
            *subject = Uuid::nil();
        }
    }
    findings
}

fn changed(block: i64) -> Finding {
    Finding::Changed { block }
}

#[tokio::test]
async fn a_changed_byte_is_found() {
    for tampering in [
        // It stays balanced, so only the seal exposes it.
        "update postings set amount_minor = amount_minor * 2
         where account like 'rail:%' or account like 'merchant:%'",
        "update postings set account = 'rail:momo:clearinG' where line = 1",
        "update postings set currency = 'USD'",
        "update postings set posted_at = '2026-01-01T00:00:00.000Z' where line = 2",
        "update postings set line = line + 2",
    ] {
        let found = found_after(&[tampering]).await;
        for block in 1..=3 {
            assert!(found.contains(&changed(block)), "{tampering}: {found:?}");
        }
    }
}

#[tokio::test]
async fn a_block_that_cannot_be_read_is_found_and_hides_nothing() {
    let bare = Bare::new().await;
    if bare.db.is_postgres() {
        // PostgreSQL cannot store an unreadable time.
        return;
    }
    let found = found_after(&[
        "update blocks set sealed_at = 'no time' where number in (2, 3)",
        "update balances set amount_minor = amount_minor + 1",
    ])
    .await;
    assert_eq!(found[..2], [changed(2), changed(3)]);
    assert!(matches!(found[2], Finding::Balance { .. }), "{found:?}");
}

#[tokio::test]
async fn of_a_changed_amount_everything_that_is_wrong_is_told() {
    let found = found_after(&["update postings set amount_minor = 7
         where line = 1 and (kind, subject) in (
             select kind, subject from sealed_postings where block = 2 limit 1
         )"])
    .await;
    let unbalanced = Finding::Unbalanced {
        kind: "SETTLEMENT".to_owned(),
        subject: Uuid::nil(),
    };
    let sum = Finding::Sum(Money::new(2557, Currency::GHS));
    assert_eq!(found, [changed(2), unbalanced, sum]);
}

#[tokio::test]
async fn a_posting_that_is_gone_or_was_put_beside_is_found() {
    let found = found_after(&["delete from postings where (kind, subject) in (
             select kind, subject from sealed_postings where block = 2 limit 1
         )"])
    .await;
    let gone = Finding::Gone {
        kind: "SETTLEMENT".to_owned(),
        subject: Uuid::nil(),
    };
    assert_eq!(found[..2], [changed(2), gone]);
    assert!(matches!(found[2..], [Finding::Balance { .. }]), "{found:?}");
    // Lines added to a sealed posting.
    let found = found_after(&[
        "insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
         select kind, subject, line + 2, 'suspense', amount_minor, currency, posted_at
         from postings where (kind, subject) in (
             select kind, subject from sealed_postings where block = 3 limit 1
         )",
    ])
    .await;
    assert_eq!(found, [changed(3)]);
    // A separate posting.
    let found = found_after(&[
        "insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
         select 'FORGED', subject, line, 'suspense', amount_minor, currency, posted_at
         from postings where (kind, subject) in (
             select kind, subject from sealed_postings where block = 3 limit 1
         )",
    ])
    .await;
    let unqueued = Finding::Unqueued {
        kind: "FORGED".to_owned(),
        subject: Uuid::nil(),
    };
    assert_eq!(found, [unqueued]);
}

#[tokio::test]
async fn a_block_that_is_changed_or_gone_is_found() {
    let found = found_after(&["update blocks set hash = '00' where number = 2"]).await;
    assert_eq!(found, [changed(2), changed(3)]);
    let later = "update blocks set sealed_at = '2036-01-01T00:00:00.000Z' where number = 2";
    assert_eq!(found_after(&[later]).await, [changed(2)]);
    let moved = "update sealed_postings set block = 1 where block = 2";
    assert_eq!(found_after(&[moved]).await, [changed(1), changed(2)]);
    let gone = |block| Finding::NoBlock { block };
    let found = found_after(&["delete from blocks where number = 2"]).await;
    assert_eq!(found, [gone(2), changed(3)]);
    // The newest block with everything in it: only a check that saw it before can tell.
    let found = found_after(&[
        "delete from postings where (kind, subject) in (
             select kind, subject from sealed_postings where block = 3
         )",
        "delete from sealed_postings where block = 3",
        "delete from blocks where number = 3",
    ])
    .await;
    assert_eq!(found[0], gone(3));
}

#[tokio::test]
async fn a_posting_that_nobody_queued_is_told_once_and_sealed() {
    let bare = Bare::new().await;
    // From now on, a posting that is not queued is a stray.
    assert_eq!(seal(&bare).await, 0);
    let posting = post(&bare).await;
    tamper(&bare.db, &["delete from unsealed_postings"]).await;
    assert_eq!(seal(&bare).await, 0);
    let unqueued = Finding::Unqueued {
        kind: posting.kind.code().to_owned(),
        subject: posting.subject,
    };
    assert_eq!(check(&bare).await, [unqueued]);
    assert_eq!(seal(&bare).await, 1);
    everything_is_due(&bare).await;
    assert_eq!(check(&bare).await, []);
}

/// Posts like a version that does not know the queue.
#[tokio::test]
async fn what_an_older_version_posts_is_queued_by_the_database() {
    let bare = Bare::new().await;
    if !bare.db.is_postgres() {
        return;
    }
    let mut tx = bare.db.begin().await.unwrap();
    let insert =
        "insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
                  values ('SUSPENSE', $1, 1, 'rail:momo:clearing', -5, 'GHS', $2),
                         ('SUSPENSE', $1, 2, 'suspense', 5, 'GHS', $2)";
    let posted = tx.sql(insert).bind(Uuid::now_v7()).bind(bare.clock.now());
    posted.run().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        count(&bare.db, "select count(*) from unsealed_postings").await,
        1
    );
    assert_eq!(seal(&bare).await, 1);
    assert_eq!(check(&bare).await, []);
}

#[tokio::test]
async fn a_block_that_is_not_full_waits_for_a_minute() {
    let bare = Bare::new().await;
    post(&bare).await;
    assert_eq!(books::seal(&bare.db, &bare.clock).await.unwrap(), 0);
    bare.clock.advance(Duration::from_secs(50)).await.unwrap();
    post(&bare).await;
    assert_eq!(books::seal(&bare.db, &bare.clock).await.unwrap(), 0);
    bare.clock.advance(Duration::from_secs(10)).await.unwrap();
    assert_eq!(books::seal(&bare.db, &bare.clock).await.unwrap(), 1);
    assert_eq!(
        count(&bare.db, "select count(*) from sealed_postings").await,
        2
    );
}

#[tokio::test]
async fn while_more_than_a_block_waits_no_whole_check_starts() {
    let bare = Bare::new().await;
    seal(&bare).await;
    for _ in 0..500 {
        post(&bare).await;
    }
    assert_eq!(
        books::check_whole(&bare.db, &bare.clock).await.unwrap(),
        None
    );
    assert_eq!(seal(&bare).await, 1);
    let checked = books::check_whole(&bare.db, &bare.clock).await;
    assert_eq!(checked.unwrap(), Some(Vec::new()));
}

#[tokio::test]
async fn a_whole_check_that_broke_off_goes_on_and_stops_no_other() {
    let bare = Bare::new().await;
    for _ in 0..30 {
        post(&bare).await;
        assert_eq!(seal(&bare).await, 1);
    }
    let tampering = "update postings set account = 'suspense' where line = 1 and subject in (
                         select subject from sealed_postings where block in (3, 27)
                     )";
    tamper(&bare.db, &[tampering]).await;
    let away = "alter table balances rename to balances_away";
    let back = "alter table balances_away rename to balances";
    let alter = async |statement| {
        let mut tx = bare.db.begin().await.unwrap();
        tx.sql(statement).run().await.unwrap();
        tx.commit().await.unwrap();
    };
    alter(away).await;
    now_due(&bare.db).await;
    let failed = books::check_whole(&bare.db, &bare.clock).await;
    assert!(failed.is_err());
    let at = "select block from ledger_works where name = 'WHOLE'";
    assert_eq!(count(&bare.db, at).await, 30);
    // No second process gets the same check, and new blocks are checked meanwhile.
    assert_eq!(
        books::check_whole(&bare.db, &bare.clock).await.unwrap(),
        None
    );
    let new = books::check_new(&bare.db, &bare.clock).await.unwrap();
    assert_eq!(new, Some(vec![changed(3), changed(27)]));
    alter(back).await;
    now_due(&bare.db).await;
    let rest = books::check_whole(&bare.db, &bare.clock).await.unwrap();
    // What was reported is not reported again.
    assert_eq!(rest, Some(Vec::new()));
    assert_eq!(count(&bare.db, at).await, 0);
    everything_is_due(&bare).await;
    assert_eq!(check(&bare).await, [changed(3), changed(27)]);
}

#[tokio::test]
async fn between_two_whole_checks_only_new_blocks_are_looked_at() {
    let bare = Bare::new().await;
    post(&bare).await;
    assert_eq!(seal(&bare).await, 1);
    assert_eq!(check(&bare).await, []);
    let tampering = "update postings set account = 'suspense'";
    tamper(&bare.db, &[tampering]).await;
    assert_eq!(check(&bare).await, []);
    post(&bare).await;
    assert_eq!(seal(&bare).await, 1);
    tamper(&bare.db, &[tampering]).await;
    assert_eq!(check(&bare).await, [changed(2)]);
    everything_is_due(&bare).await;
    assert_eq!(check(&bare).await[..2], [changed(1), changed(2)]);
}

#[tokio::test]
async fn what_was_posted_before_there_were_blocks_is_sealed_first() {
    let test = TestDb::new("charges-svc").await;
    let db = test.connect().await;
    let older = SCHEMA.migrations.iter();
    let older = older.filter(|migration| migration.version < 9).cloned();
    db.migrate(&Migrator::with_migrations(older.collect()))
        .await
        .unwrap();
    let insert =
        "insert into postings (kind, subject, line, account, amount_minor, currency, posted_at)
                  values ('SUSPENSE', $1, 1, 'rail:momo:clearing', -5, 'GHS', $2),
                         ('SUSPENSE', $1, 2, 'suspense', 5, 'GHS', $2)";
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::travelling(folder.path().join("clock")).unwrap();
    let mut tx = db.begin().await.unwrap();
    for _ in 0..2_300 {
        let posted = tx.sql(insert).bind(Uuid::now_v7()).bind(clock.now());
        assert_eq!(posted.rows_affected().await.unwrap(), 2);
    }
    tx.commit().await.unwrap();
    db.migrate(&SCHEMA.migrations).await.unwrap();
    // Until all of them are queued, none counts as a stray.
    assert_eq!(books::check_whole(&db, &clock).await.unwrap(), None);
    // One process queues some and stops. The next one continues.
    let mut tx = db.begin().await.unwrap();
    store::blocks::queue_old(&mut tx, 700, clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let unsealed = "select count(*) from unsealed_postings";
    assert_eq!(count(&db, unsealed).await, 700);
    clock.advance(Duration::from_secs(60)).await.unwrap();
    assert_eq!(books::seal(&db, &clock).await.unwrap(), 5);
    let sealed = "select count(*) from sealed_postings";
    assert_eq!(count(&db, sealed).await, 2_300);
    assert_eq!(count(&db, unsealed).await, 0);
    assert_eq!(checked(&db, &clock).await, []);
    db.close().await;
}

#[tokio::test]
async fn a_running_service_seals_and_checks_by_itself() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let request = ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::Settled(true)),
    };
    world.operations.resolve_charge(request).await.unwrap();
    // A block that is not full waits for more postings.
    world.clock.advance(Duration::from_secs(60)).await.unwrap();
    let sealed = async || count(&world.db, "select count(*) from sealed_postings").await == 1;
    until("the settlement is sealed", sealed).await;
    let checked = "select count(*) from ledger_works
                   where name in ('CHECK', 'WHOLE') and ended_at is not null";
    let checked = async || count(&world.db, checked).await == 2;
    until("the ledger was checked", checked).await;
    world.end().await;
}

/// The service runs as this role in the tests that use [`World`].
#[tokio::test]
async fn the_role_that_serves_cannot_touch_what_was_posted() {
    let mut test = TestDb::new("charges-svc").await;
    let settings = test.settings().await;
    if settings.migrate_database_url.is_none() {
        return;
    }
    let (mode, shutdown) = (Mode::Production, Shutdown::new());
    db::migrate(&settings, mode, &SCHEMA).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::travelling(folder.path().join("clock")).unwrap();
    let opening = Db::open(&settings, mode, &SCHEMA, &clock, &shutdown);
    let db = opening.await.unwrap();
    let posting = ledger::settlement(&new_charge(clock.now()).facts).unwrap();
    let mut tx = db.begin().await.unwrap();
    write(&mut tx, &posting, clock.now()).await;
    tx.commit().await.unwrap();
    clock.advance(Duration::from_secs(60)).await.unwrap();
    assert_eq!(books::seal(&db, &clock).await.unwrap(), 1);
    for forbidden in [
        "update postings set amount_minor = 1",
        "delete from postings",
        "truncate postings",
        "drop table postings",
        "alter table postings add column more bigint",
        "alter table postings disable trigger all",
        "drop trigger postings_append_only on postings",
        "drop trigger postings_balanced on postings",
        "create or replace function refuse_imbalance() returns trigger language plpgsql
         as 'begin return null; end'",
        "set session_replication_role = replica",
        "update blocks set hash = ''",
        "delete from sealed_postings",
        "truncate blocks",
    ] {
        let mut tx = db.begin().await.unwrap();
        let refused = tx.sql(forbidden).run().await.unwrap_err();
        let code = refused.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("42501"), "{forbidden}: {refused}");
    }
    // Nor does a table of its own, named as the trigger names the new lines, let a forgery in.
    let mut tx = db.begin().await.unwrap();
    let own = "create temporary table posted (like public.postings)";
    tx.sql(own).run().await.unwrap();
    let forged = "insert into public.postings
                      (kind, subject, line, account, amount_minor, currency, posted_at)
                  values ('FORGED', $1, 1, 'suspense', 7, 'GHS', $2)";
    let forged = tx.sql(forged).bind(Uuid::now_v7()).bind(clock.now());
    let refused = forged.run().await.unwrap_err().to_string();
    assert!(refused.contains("do not balance"), "{refused}");
    drop(tx);
    assert_eq!(checked(&db, &clock).await, []);
    db.close().await;
}
