//! Daily statements: every line is in exactly one, they never change, and one whose sums differ is
//! never given out.

use std::time::Duration;

use charges_svc::{
    books, days,
    ledger::{self, Posting},
    store::{self, blocks::Duty},
};
use chassis::{
    clock::{Clock, Day},
    grpc,
    ids::MerchantId,
    testing::until,
};
use db::Db;
use futures::future::join_all;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use proto::charges::{
    ListStatementKeysRequest, ReadHouseStatementRequest, ReadStatementRequest, StatementFormat,
    StatementPiece,
};
use serde_json::Value;
use tonic::{Code, Response, Status, Streaming};

use crate::{
    books::{count, now_due, post, tamper, write},
    store::Bare,
    world::{World, new_charge},
};

const SEED: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

const HOUR: Duration = Duration::from_secs(3_600);

async fn start() -> World {
    let world = World::start_with(&[("statement-key", SEED)]).await;
    next_morning(&world.clock).await;
    world
}

/// One o'clock on the next day, so that no test works around a real midnight.
async fn next_morning(clock: &Clock) {
    let now = clock.now();
    let until_then = Day::of(now).end().since(now) + HOUR;
    clock.advance(until_then).await.unwrap();
}

/// Posts the settlement of a new charge of this merchant, with the charge, and seals it.
async fn settle(world: &World, merchant_id: MerchantId) -> String {
    let mut charge = new_charge(world.clock.now());
    charge.facts_mut().merchant_id = merchant_id;
    let posting = ledger::settlement(&charge.facts).unwrap();
    let charge = world.given(charge, &[]).await;
    let mut tx = world.db.begin().await.unwrap();
    write(&mut tx, &posting, world.clock.now()).await;
    // The charge itself is of no interest, and nobody should work on it.
    let ended = "update charges set next_query_at = null where transaction_id = $1";
    let id = charge.facts.transaction_id;
    tx.sql(ended).bind(id).run().await.unwrap();
    tx.commit().await.unwrap();
    world.clock.advance(Duration::from_secs(60)).await.unwrap();
    until("everything is sealed", async || {
        now_due(&world.db).await;
        books::seal(&world.db, &world.clock).await.unwrap();
        count(&world.db, "select count(*) from unsealed_postings").await == 0
    })
    .await;
    charge.facts.reference.to_string()
}

/// Ends the day and waits until it is proven. Returns it.
async fn end_day(world: &World) -> String {
    let day = Day::of(world.clock.now());
    next_morning(&world.clock).await;
    until("the day is proven", async || {
        now_due(&world.db).await;
        days::close(&world.db, &world.clock).await.unwrap();
        let mut conn = world.db.read().await.unwrap();
        let proven = store::days::find_proven(&mut conn, day).await.unwrap();
        proven.is_some()
    })
    .await;
    day.to_string()
}

async fn read(
    world: &World,
    merchant_id: MerchantId,
    day: &str,
    format: StatementFormat,
) -> Result<String, Status> {
    let mut request = ReadStatementRequest {
        merchant_id: merchant_id.to_string(),
        day: day.to_owned(),
        ..Default::default()
    };
    request.set_format(format);
    whole(world.statements.clone().read_statement(request).await).await
}

async fn read_house(world: &World, day: &str) -> Result<String, Status> {
    let mut request = ReadHouseStatementRequest {
        day: day.to_owned(),
        ..Default::default()
    };
    request.set_format(StatementFormat::Json);
    let answer = world.statement_operations.clone();
    whole(answer.clone().read_house_statement(request).await).await
}

async fn whole(
    answer: Result<Response<Streaming<StatementPiece>>, Status>,
) -> Result<String, Status> {
    let mut pieces = answer?.into_inner();
    let mut content = Vec::new();
    while let Some(piece) = pieces.message().await? {
        content.extend(piece.content);
    }
    Ok(String::from_utf8(content).unwrap())
}

async fn json(world: &World, merchant_id: MerchantId, day: &str) -> Value {
    let text = read(world, merchant_id, day, StatementFormat::Json).await;
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn check_refused(answer: Result<String, Status>, code: Code, reason: &str) {
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), code);
    assert_eq!(grpc::reason(&refused).as_deref(), Some(reason));
}

#[tokio::test]
async fn a_statement_has_the_days_lines_of_one_merchant_and_never_changes() {
    let world = start().await;
    let (ama, kofi) = (MerchantId::new(), MerchantId::new());
    let first = settle(&world, ama).await;
    settle(&world, kofi).await;
    let second = settle(&world, ama).await;
    let day = end_day(&world).await;

    let text = read(&world, ama, &day, StatementFormat::Json)
        .await
        .unwrap();
    let statement: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(statement["merchant_id"], ama.to_string());
    let account = &statement["accounts"][0];
    assert!(text.contains("\"opening\":0.00") && text.contains("\"closing\":51.00"));
    let references: Vec<&Value> = account["lines"].as_array().unwrap().iter().collect();
    let references: Vec<_> = references.iter().map(|line| &line["reference"]).collect();
    assert_eq!(references, [&first, &second]);
    assert_eq!(account["account"], "available");
    assert!(!text.contains(&kofi.to_string()));

    // What happens later changes nothing, and begins where this ends.
    let third = settle(&world, ama).await;
    let next = end_day(&world).await;
    let again = read(&world, ama, &day, StatementFormat::Json)
        .await
        .unwrap();
    assert_eq!(again, text);
    let following = json(&world, ama, &next).await;
    assert_eq!(following["after_hash"], statement["last_hash"]);
    assert_eq!(following["after_block"], statement["last_block"]);
    assert_eq!(following["accounts"][0]["opening"], account["closing"]);
    assert_eq!(following["accounts"][0]["lines"][0]["reference"], third);

    // Who did not move has a statement all the same.
    let quiet = json(&world, kofi, &next).await;
    assert_eq!(quiet["accounts"][0]["lines"], Value::Array(Vec::new()));
    assert_eq!(
        quiet["accounts"][0]["opening"],
        quiet["accounts"][0]["closing"]
    );
    world.end().await;
}

#[tokio::test]
async fn the_csv_says_what_the_json_says() {
    let world = start().await;
    let ama = MerchantId::new();
    settle(&world, ama).await;
    settle(&world, ama).await;
    let day = end_day(&world).await;
    let statement = json(&world, ama, &day).await;
    let csv = read(&world, ama, &day, StatementFormat::Csv).await.unwrap();
    let rows = |record: &str| -> Vec<Vec<String>> {
        let rows = csv
            .lines()
            .map(|row| row.split(',').map(str::to_owned).collect());
        rows.filter(|row: &Vec<String>| row[0] == record).collect()
    };
    for name in ["day", "merchant_id", "after_hash", "last_hash", "key_id"] {
        assert_eq!(
            rows(name)[0][11],
            statement[name].as_str().unwrap(),
            "{name}"
        );
    }
    let account = &statement["accounts"][0];
    let lines = account["lines"].as_array().unwrap();
    assert_eq!(rows("line").len(), lines.len());
    for (row, line) in rows("line").iter().zip(lines) {
        let number = |name: &str| format!("{:.2}", line[name].as_f64().unwrap());
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        assert_eq!(
            row[1..4],
            [text("account"), text("currency"), number("amount")]
        );
        assert_eq!(row[4..7], [number("balance"), text("at"), text("kind")]);
        assert_eq!(row[7..9], [text("reference"), text("subject")]);
        assert_eq!(
            row[9..11],
            [line["line"].to_string(), line["block"].to_string()]
        );
    }
    assert_eq!(rows("opening")[0][4], "0.00");
    assert_eq!(rows("closing")[0][4], "51.00");
    assert_eq!(
        csv.lines().last().unwrap().split(',').next(),
        Some("signature")
    );
    world.end().await;
}

#[tokio::test]
async fn the_house_has_every_line_of_every_merchant() {
    let world = start().await;
    let (ama, kofi) = (MerchantId::new(), MerchantId::new());
    settle(&world, ama).await;
    settle(&world, kofi).await;
    let day = end_day(&world).await;
    let house: Value = serde_json::from_str(&read_house(&world, &day).await.unwrap()).unwrap();
    let blocks = house["blocks"].as_array().unwrap();
    let lines = blocks
        .iter()
        .flat_map(|block| block["lines"].as_array().unwrap());
    let mut accounts: Vec<_> = lines
        .map(|line| line["account"].as_str().unwrap())
        .collect();
    accounts.sort_unstable();
    let mut expected = [
        format!("merchant:{ama}"),
        format!("merchant:{kofi}"),
        "rail:paystack:clearing".to_owned(),
        "rail:paystack:clearing".to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(accounts, expected);
    assert_eq!(house["accounts"].as_array().unwrap().len(), 3);
    world.end().await;
}

#[tokio::test]
async fn only_a_proven_day_has_a_statement_and_only_for_whom_something_was_sealed() {
    let world = start().await;
    let ama = MerchantId::new();
    let before = Day::of(world.clock.now()).to_string();
    let json = StatementFormat::Json;
    let not_ready = "STATEMENT_NOT_READY";
    check_refused(
        read(&world, ama, &before, json).await,
        Code::FailedPrecondition,
        not_ready,
    );
    next_morning(&world.clock).await;
    settle(&world, ama).await;
    let day = end_day(&world).await;
    let today = Day::of(world.clock.now()).to_string();
    check_refused(
        read(&world, ama, &today, json).await,
        Code::FailedPrecondition,
        not_ready,
    );
    check_refused(
        read_house(&world, "9999-12-31").await,
        Code::FailedPrecondition,
        not_ready,
    );
    // Before the first block, and a merchant that never had anything.
    let not_found = "STATEMENT_NOT_FOUND";
    check_refused(
        read(&world, ama, &before, json).await,
        Code::NotFound,
        not_found,
    );
    check_refused(read_house(&world, &before).await, Code::NotFound, not_found);
    let nobody = read(&world, MerchantId::new(), &day, json).await;
    check_refused(nobody, Code::NotFound, not_found);
    for (day, format, field) in [
        ("2026-02-30", json, "day"),
        ("yesterday", json, "day"),
        ("", json, "day"),
        (&day, StatementFormat::Unspecified, "format"),
    ] {
        let refused = read(&world, ama, day, format).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(grpc::violations(&refused)[0].0, field, "{day}");
    }
    world.end().await;
}

#[tokio::test]
async fn without_a_key_there_are_no_statements_and_old_keys_stay_published() {
    let world = World::start().await;
    let refused = read(
        &world,
        MerchantId::new(),
        "2026-11-24",
        StatementFormat::Json,
    )
    .await;
    check_refused(refused, Code::Unavailable, "STATEMENT_KEY_MISSING");
    world.end().await;
    let old = "ab".repeat(32);
    let flags = [("statement-key", SEED), ("statement-old-public-keys", &old)];
    let world = World::start_with(&flags).await;
    let mut statements = world.statements.clone();
    let listed = statements.list_statement_keys(ListStatementKeysRequest {});
    let keys = listed.await.unwrap().into_inner().keys;
    assert_eq!(keys.len(), 2);
    // Ed25519 of the bytes 1 to 32, computed with another program.
    let signs = "79b5562e8fe654f94078b112e8a98ba7901f853ae695bed7e0e3910bad049664";
    assert_eq!(keys[0].public_key, signs);
    assert_eq!(keys[1].public_key, old);
    world.end().await;
}

/// Seals what waits.
async fn seal(bare: &Bare) {
    bare.clock.advance(Duration::from_secs(60)).await.unwrap();
    now_due(&bare.db).await;
    assert_eq!(books::seal(&bare.db, &bare.clock).await.unwrap(), 1);
}

/// A posting on a day of its own, sealed. Returns the posting and the day.
async fn sealed_day(bare: &Bare) -> (Posting, Day) {
    next_morning(&bare.clock).await;
    let posting = post(bare).await;
    seal(bare).await;
    (posting, Day::of(bare.clock.now()))
}

async fn close(db: &Db, clock: &Clock) -> u64 {
    now_due(db).await;
    days::close(db, clock).await.unwrap()
}

async fn blocks_of(bare: &Bare, day: Day) -> Option<(i64, i64)> {
    let mut conn = bare.db.read().await.unwrap();
    let found = store::days::find_proven(&mut conn, day).await.unwrap();
    found.map(|day| (day.after_block, day.last_block))
}

#[tokio::test]
async fn every_block_is_in_exactly_one_day_and_quiet_days_have_none() {
    let bare = Bare::new().await;
    assert_eq!(close(&bare.db, &bare.clock).await, 0);
    let (_, first) = sealed_day(&bare).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 0);
    next_morning(&bare.clock).await;
    let (_, third) = sealed_day(&bare).await;
    post(&bare).await;
    seal(&bare).await;
    next_morning(&bare.clock).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 3);
    assert_eq!(blocks_of(&bare, first).await, Some((0, 1)));
    assert_eq!(blocks_of(&bare, first.next()).await, Some((1, 1)));
    assert_eq!(blocks_of(&bare, third).await, Some((1, 3)));
    assert_eq!(blocks_of(&bare, third.next()).await, None);
}

#[tokio::test]
async fn a_block_is_never_sealed_in_a_closed_day_whatever_a_clock_says() {
    let bare = Bare::new().await;
    let (_, day) = sealed_day(&bare).await;
    post(&bare).await;
    next_morning(&bare.clock).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 1);
    // Seals by the clock of a replica that believes it is two days earlier.
    let late = Clock::system();
    let waits = "update unsealed_postings set since = '2020-01-01T00:00:00.000Z'";
    let mut tx = bare.db.begin().await.unwrap();
    tx.sql(waits).run().await.unwrap();
    tx.commit().await.unwrap();
    now_due(&bare.db).await;
    assert_eq!(books::seal(&bare.db, &late).await.unwrap(), 1);
    next_morning(&bare.clock).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 1);
    assert_eq!(blocks_of(&bare, day).await, Some((0, 1)));
    assert_eq!(blocks_of(&bare, day.next()).await, Some((1, 2)));
    let mut conn = bare.db.read().await.unwrap();
    let sealed = store::blocks::list(&mut conn, 1, 2).await.unwrap();
    assert_eq!(sealed[0].sealed_at, day.end());
}

#[tokio::test]
async fn replicas_at_once_close_each_day_once() {
    let bare = Bare::new().await;
    for _ in 0..3 {
        sealed_day(&bare).await;
    }
    next_morning(&bare.clock).await;
    now_due(&bare.db).await;
    until("three days are proven", async || {
        let closing = (0..6).map(async |_| days::close(&bare.db, &bare.clock).await.unwrap());
        join_all(closing).await;
        count(&bare.db, "select count(*) from proven_days").await == 3
    })
    .await;
    assert_eq!(count(&bare.db, "select count(*) from closed_days").await, 3);
}

/// Two days, of which the first is proven.
async fn on_the_second_morning() -> Bare {
    let bare = Bare::new().await;
    sealed_day(&bare).await;
    next_morning(&bare.clock).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 1);
    sealed_day(&bare).await;
    next_morning(&bare.clock).await;
    bare
}

/// Two days, of which the second is closed after this tampering. Returns how many days are proven,
/// and what is shown as the last one's difference.
async fn proven_after(statements: &[&'static str]) -> (i64, i64) {
    // Of this thread alone, which tries no other days.
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bare = on_the_second_morning().await;
    tamper(&bare.db, statements).await;
    close(&bare.db, &bare.clock).await;
    let proven = count(&bare.db, "select count(*) from proven_days").await;
    (proven, difference_shown(&recorder))
}

fn difference_shown(recorder: &PrometheusRecorder) -> i64 {
    let shown = recorder.handle().render();
    let mut shown = shown.lines();
    let difference = shown.find_map(|line| line.strip_prefix("statement_difference_minor "));
    difference.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_day_whose_sums_differ_is_not_proven() {
    // Nothing is wrong: the days, with a quiet one between them.
    let nothing = "update day_balances set opening_minor = opening_minor";
    assert_eq!(proven_after(&[nothing]).await, (3, 0));
    for tampering in [
        // In the day itself, of which the hash tells.
        "update postings set amount_minor = amount_minor * 2
         where subject in (select subject from sealed_postings where block = 2)",
        "delete from postings
         where subject in (select subject from sealed_postings where block = 2)",
    ] {
        assert_eq!(proven_after(&[tampering]).await, (2, 0), "{tampering}");
    }
    for (tampering, difference_minor) in [
        // In the history, of which the sum of everything tells.
        (
            "update postings set amount_minor = amount_minor * 2
             where subject in (select subject from sealed_postings where block = 1)",
            5_100,
        ),
        (
            "update day_balances set closing_minor = closing_minor + 1 where account like 'rail:%'",
            1,
        ),
        (
            "delete from day_balances where account like 'merchant:%'",
            2_550,
        ),
        ("delete from sealed_postings where block = 1", 5_100),
        // Which makes the block one of the quiet day, of which the hash tells.
        (
            "update blocks set sealed_at = '2026-01-01T00:00:00.000Z' where number = 2",
            0,
        ),
    ] {
        let shown = proven_after(&[tampering]).await;
        assert_eq!(shown, (1, difference_minor), "{tampering}");
    }
}

#[tokio::test]
async fn a_difference_is_shown_until_the_day_is_proven() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bare = on_the_second_morning().await;
    for (by, proven, difference_minor) in [("+ 7", 0, 7), ("- 7", 2, 0)] {
        let changed = format!(
            "update day_balances set closing_minor = closing_minor {by} where account like 'rail:%'"
        );
        tamper(&bare.db, &[changed.leak()]).await;
        assert_eq!(close(&bare.db, &bare.clock).await, proven);
        assert_eq!(difference_shown(&recorder), difference_minor);
    }
}

/// The store sums it in ranges, none of which may be left out.
#[tokio::test]
async fn a_day_is_proven_over_everything_that_was_ever_sealed() {
    let bare = Bare::new().await;
    next_morning(&bare.clock).await;
    for _ in 0..210 {
        post(&bare).await;
        seal(&bare).await;
    }
    next_morning(&bare.clock).await;
    assert_eq!(close(&bare.db, &bare.clock).await, 1);
    // In the first, a middle and the last range of blocks, and one after the other.
    for block in ["1", "150", "210"] {
        post(&bare).await;
        seal(&bare).await;
        next_morning(&bare.clock).await;
        for (changed, proven) in [("* 2", 0), ("/ 2", 1)] {
            let history = format!(
                "update postings set amount_minor = amount_minor {changed}
                 where subject in (select subject from sealed_postings where block = {block})"
            );
            tamper(&bare.db, &[history.leak()]).await;
            assert_eq!(close(&bare.db, &bare.clock).await, proven, "{block}");
        }
    }
}

#[tokio::test]
async fn a_day_that_cannot_be_proven_is_counted_and_tried_again_after_an_hour() {
    let errors = |reason: &str| {
        let metrics = chassis::metrics::render();
        let counter = format!("statement_errors_total{{reason=\"{reason}\"}} ");
        let mut counts = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(&counter));
        counts
            .next()
            .map_or(0, |count| count.parse::<u64>().unwrap())
    };
    for (tampering, reason) in [
        (
            "update day_balances set closing_minor = closing_minor + 1",
            "difference",
        ),
        (
            "update blocks set hash = '00' where number = 2",
            "changed_block",
        ),
    ] {
        let bare = Bare::new().await;
        sealed_day(&bare).await;
        next_morning(&bare.clock).await;
        assert_eq!(close(&bare.db, &bare.clock).await, 1);
        post(&bare).await;
        seal(&bare).await;
        tamper(&bare.db, &[tampering]).await;
        let before = errors(reason);
        next_morning(&bare.clock).await;
        assert_eq!(close(&bare.db, &bare.clock).await, 0, "{tampering}");
        assert!(errors(reason) > before, "{reason}");
        let mut conn = bare.db.read().await.unwrap();
        let duty = store::works::checkpoint(&mut conn, Duty::CloseDays.code()).await;
        let rests = duty.unwrap().next_at.since(bare.clock.real_now());
        assert!(rests > HOUR / 2 && rests <= HOUR, "{rests:?}");
    }
}

#[tokio::test]
async fn a_line_that_does_not_fit_leaves_the_statement_without_a_signature() {
    let world = start().await;
    let ama = MerchantId::new();
    settle(&world, ama).await;
    let day = end_day(&world).await;
    let doubled = "update postings set amount_minor = amount_minor * 2";
    tamper(&world.db, &[doubled]).await;
    for format in [StatementFormat::Json, StatementFormat::Csv] {
        let broken = read(&world, ama, &day, format).await;
        check_refused(broken, Code::Internal, "INTERNAL");
    }
    check_refused(read_house(&world, &day).await, Code::Internal, "INTERNAL");
    let halved = "update postings set amount_minor = amount_minor / 2";
    tamper(&world.db, &[halved]).await;
    assert!(read_house(&world, &day).await.is_ok());
    world.end().await;
}
