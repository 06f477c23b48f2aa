//! Rails' own reports compared with our records. That a whole report is, is tested with the stack.

use std::time::Duration;

use charges_svc::{
    charge::{Charge, Event, State},
    ledger, store,
};
use chassis::{
    clock::Timestamp,
    failure::FailureReason,
    testing::{check_invalid, check_refusal, until},
};
use db::Insert;
use proto::charges::{
    Case, CaseKind, CloseCaseRequest, Difference, Direction, FindUnreportedRequest,
    FindUnreportedResponse, ListCasesRequest, MatchLinesRequest, MatchLinesResponse, ReportLine,
    close_case_request::Action, report_line::Said,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::{
    books::count,
    world::{World, ghs, new_momo_charge},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A settled charge of 25.50, of so long ago.
async fn settled(world: &World, age: Duration) -> Charge {
    let then = world.clock.now() - age;
    let events = [Event::Accepted, Event::Settled];
    let charge = world.given(new_momo_charge(then), &events).await;
    let posting = ledger::settlement(&charge.facts).unwrap();
    let mut tx = world.db.begin().await.unwrap();
    let posted = store::postings::post(&mut tx, &posting, then).await;
    assert_eq!(posted.unwrap(), Insert::Inserted);
    tx.commit().await.unwrap();
    charge
}

/// What the rail's report says of a charge that was paid.
fn line(number: u64, charge: &Charge) -> ReportLine {
    ReportLine {
        number,
        reference: charge.facts.rail_reference.to_string(),
        rail_id: charge.facts.rail_reference.to_string(),
        direction: Direction::In.into(),
        amount: Some(ghs(2550)),
        said: Said::Paid.into(),
        at: Some(charge.facts.created_at.to_string()),
    }
}

/// A file, by what would be its hash.
fn file(name: u8) -> String {
    hex::encode([name; 32])
}

async fn compare(
    world: &mut World,
    report: String,
    lines: Vec<ReportLine>,
) -> Result<MatchLinesResponse, Status> {
    let request = MatchLinesRequest {
        rail: "momo".to_owned(),
        report,
        lines,
    };
    let answer = world.reports.match_lines(request).await?;
    Ok(answer.into_inner())
}

fn kinds(differences: &[Difference]) -> Vec<CaseKind> {
    differences.iter().map(Difference::kind).collect()
}

/// Whether each of these differences opened its case.
fn opened(differences: &[Difference]) -> Vec<bool> {
    let opened = differences.iter();
    opened.map(|difference| difference.case_opened).collect()
}

async fn cases(world: &mut World) -> Vec<Case> {
    let listed = world.operations.list_cases(ListCasesRequest {}).await;
    listed.unwrap().into_inner().cases
}

fn period(from: Timestamp, to: Timestamp) -> FindUnreportedRequest {
    FindUnreportedRequest {
        rail: "momo".to_owned(),
        report: file(1),
        directions: vec![Direction::In.into(), Direction::Out.into()],
        from: from.to_string(),
        to: to.to_string(),
        margin_seconds: 60,
        page_token: String::new(),
    }
}

/// All pages, once everything is sealed.
async fn unreported(world: &mut World, request: FindUnreportedRequest) -> FindUnreportedResponse {
    world.clock.advance(Duration::from_secs(61)).await.unwrap();
    let mut all = FindUnreportedResponse::default();
    let mut request = request;
    loop {
        let mut reports = world.reports.clone();
        let mut page = None;
        until("everything is sealed", async || {
            match reports.find_unreported(request.clone()).await {
                Ok(answer) => page = Some(answer.into_inner()),
                Err(refused) => check_refusal(
                    Err::<(), _>(refused),
                    Code::FailedPrecondition,
                    "POSTINGS_NOT_SEALED",
                ),
            }
            page.is_some()
        })
        .await;
        let page = page.unwrap();
        all.differences.extend(page.differences);
        all.undecided += page.undecided;
        if page.next_page_token.is_empty() {
            return all;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn what_both_sides_say_alike_matches_in_every_report_that_has_it() {
    let mut world = World::start().await;
    let charge = settled(&world, Duration::ZERO).await;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let events = [Event::Accepted, late];
    let failed = world
        .given(new_momo_charge(world.clock.now()), &events)
        .await;
    let nothing = ReportLine {
        said: Said::Failed.into(),
        ..line(2, &failed)
    };
    let lines = vec![line(1, &charge), nothing];
    // The same file again, and another that overlaps it.
    for (report, number) in [(file(1), 1), (file(1), 1), (file(2), 7)] {
        let mut lines = lines.clone();
        lines[0].number = number;
        let answer = compare(&mut world, report, lines).await.unwrap();
        assert_eq!(answer.matched, 2, "{:?}", answer.differences);
    }
    assert_eq!(cases(&mut world).await, []);
    world.end().await;
}

#[tokio::test]
async fn each_line_that_differs_has_one_case_however_often_it_is_seen() {
    let mut world = World::start().await;
    let charge = settled(&world, Duration::ZERO).await;
    let other = settled(&world, Duration::ZERO).await;
    let more = ReportLine {
        amount: Some(ghs(2551)),
        ..line(1, &charge)
    };
    let again = ReportLine {
        rail_id: "another movement".to_owned(),
        ..line(3, &other)
    };
    let unknown = ReportLine {
        reference: Uuid::new_v4().to_string(),
        rail_id: String::new(),
        ..line(5, &other)
    };
    // Line 4 prints line 2 again.
    let lines = vec![more, line(2, &other), again, line(4, &other), unknown];
    use CaseKind::{ReportDiffers, ReportTwice, ReportUnknown};
    let expected = [ReportDiffers, ReportTwice, ReportTwice, ReportUnknown];
    let first = compare(&mut world, file(1), lines.clone()).await.unwrap();
    assert_eq!(
        (first.matched, kinds(&first.differences)),
        (1, expected.to_vec())
    );
    assert_eq!(opened(&first.differences), [true; 4]);
    let numbers = first.differences.iter().map(|found| found.number.unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 3, 4, 5]);
    let again = compare(&mut world, file(1), lines).await.unwrap();
    assert_eq!(kinds(&again.differences), expected);
    assert_eq!(opened(&again.differences), [false; 4]);
    let cases = cases(&mut world).await;
    assert_eq!(cases.len(), 4);
    let reference = charge.facts.reference.to_string();
    assert_eq!(cases[0].reference, reference, "what people call it");
    world.end().await;
}

/// Whether the rail gives the movement an id or not.
#[tokio::test]
async fn a_line_that_a_later_file_has_twice_is_found() {
    let mut world = World::start().await;
    for rail_id in ["", "an-id"] {
        let charge = settled(&world, Duration::ZERO).await;
        let line = |number| ReportLine {
            rail_id: rail_id.to_owned(),
            ..line(number, &charge)
        };
        for (report, number, twice, is_new) in [
            (file(1), 1, false, false),
            // In two calls, as lines far from one another are.
            (file(2), 4, false, false),
            (file(2), 1_004, true, true),
            (file(2), 4, false, false),
            (file(2), 1_004, true, false),
            (file(1), 1, false, false),
        ] {
            let answer = compare(&mut world, report, vec![line(number)]).await;
            let found = answer.unwrap().differences;
            let expected = twice.then_some(CaseKind::ReportTwice);
            assert_eq!(kinds(&found), Vec::from_iter(expected), "{number}");
            assert_eq!(opened(&found), Vec::from_iter(twice.then_some(is_new)));
        }
    }
    world.end().await;
}

/// What another comparison keeps of the same charge is committed while this one waits for it.
#[tokio::test]
async fn comparisons_at_once_find_what_they_would_have_found_one_after_the_other() {
    let mut world = World::start().await;
    let charge = settled(&world, Duration::ZERO).await;
    let mut tx = world.db.begin().await.unwrap();
    let other = "insert into rail_report_lines
                     (line_id, rail, subject, shown, said, is_first, kept_at)
                 values ($1, 'momo', $2, 'other', 'PAID', true, $3)";
    tx.sql(other)
        .bind(Uuid::new_v4())
        .bind(charge.facts.transaction_id)
        .bind(world.clock.now())
        .run()
        .await
        .unwrap();
    let db = world.db.clone();
    let commit = async move {
        if db.is_postgres() {
            let waits = "select count(*) from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock'";
            until("it waits", async || count(&db, waits).await == 1).await;
        }
        tx.commit().await.unwrap();
    };
    let lines = vec![line(1, &charge)];
    let (found, ()) = futures::join!(compare(&mut world, file(1), lines), commit);
    assert_eq!(kinds(&found.unwrap().differences), [CaseKind::ReportTwice]);
    world.end().await;
}

#[tokio::test]
async fn a_report_settles_nothing_and_makes_the_rail_be_asked() {
    let mut world = World::start().await;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let events = [Event::Accepted, late];
    let failed = world
        .given(new_momo_charge(world.clock.now()), &events)
        .await;
    let said = compare(&mut world, file(1), vec![line(1, &failed)]).await;
    let said = said.unwrap();
    assert_eq!(kinds(&said.differences), [CaseKind::ReportContradicts]);
    let after = world.charge(&failed.facts.reference).await;
    assert_eq!(after.progress.state, State::Failed);
    assert_eq!(
        after.timer.hints,
        failed.timer.hints + 1,
        "as after a callback"
    );
    let mut conn = world.db.read().await.unwrap();
    let id = failed.facts.transaction_id;
    assert!(
        store::postings::list(&mut conn, id)
            .await
            .unwrap()
            .is_empty()
    );
    drop(conn);
    world.end().await;
}

#[tokio::test]
async fn a_record_is_missing_once_reports_cover_all_of_its_time() {
    let mut world = World::start().await;
    let now = world.clock.now();
    let (midnight, end) = (now - 10 * HOUR, now - HOUR);
    let reported = settled(&world, 3 * HOUR).await;
    let missing = settled(&world, 2 * HOUR).await;
    // Within a minute of where the report begins, and another day's.
    let edge = settled(&world, 10 * HOUR).await;
    settled(&world, 20 * HOUR).await;
    let lines = vec![line(1, &reported)];
    assert_eq!(
        compare(&mut world, file(1), lines).await.unwrap().matched,
        1
    );

    let found = unreported(&mut world, period(midnight, end)).await;
    assert_eq!(kinds(&found.differences), [CaseKind::ReportLacks]);
    assert_eq!(
        found.differences[0].reference,
        missing.facts.reference.to_string()
    );
    assert_eq!(
        (opened(&found.differences), found.undecided),
        (vec![true], 1)
    );
    // A gap leaves it undecided. The day before it decides it.
    let gap = unreported(&mut world, period(now - 40 * HOUR, now - 30 * HOUR)).await;
    assert_eq!((gap.differences.len(), gap.undecided), (0, 0));
    let before = unreported(&mut world, period(now - 15 * HOUR, midnight)).await;
    assert_eq!(kinds(&before.differences), [CaseKind::ReportLacks]);
    assert_eq!(
        before.differences[0].reference,
        edge.facts.reference.to_string()
    );
    assert_eq!(before.undecided, 0);
    let again = unreported(&mut world, period(midnight, end)).await;
    assert_eq!(kinds(&again.differences), [CaseKind::ReportLacks; 2]);
    assert_eq!(opened(&again.differences), [false; 2]);
    assert_eq!(cases(&mut world).await.len(), 2);
    world.end().await;
}

#[tokio::test]
async fn a_case_about_a_report_is_released_once_its_charge_has_ended_and_posts_nothing() {
    let mut world = World::start().await;
    let open = world
        .given(new_momo_charge(world.clock.now()), &[Event::Accepted])
        .await;
    let said = compare(&mut world, file(1), vec![line(1, &open)])
        .await
        .unwrap();
    assert_eq!(kinds(&said.differences), [CaseKind::ReportContradicts]);
    let case_id = cases(&mut world).await[0].case_id.clone();
    let close = async |world: &mut World, action: Action| {
        let request = CloseCaseRequest {
            case_id: case_id.clone(),
            action: action.into(),
            override_reason: None,
            evidence: None,
        };
        let closed = world.operations.close_case(request).await?;
        Ok::<_, Status>(closed.into_inner())
    };
    check_invalid(close(&mut world, Action::Refund).await, "action");
    let refused = close(&mut world, Action::Release).await;
    check_refusal(
        refused,
        Code::FailedPrecondition,
        "CASE_NEEDS_CHARGE_RESOLVED",
    );
    let resolve = proto::charges::ResolveChargeRequest {
        reference: open.facts.reference.to_string(),
        outcome: Some(proto::charges::resolve_charge_request::Outcome::Settled(
            true,
        )),
        evidence: "portal".to_owned(),
    };
    world.operations.resolve_charge(resolve).await.unwrap();
    let closed = close(&mut world, Action::Release).await.unwrap();
    assert!(closed.closed_at.is_some());
    let again = close(&mut world, Action::Release).await;
    check_refusal(again, Code::FailedPrecondition, "CASE_CLOSED");
    let mut conn = world.db.read().await.unwrap();
    let posted = store::postings::list(&mut conn, open.facts.transaction_id).await;
    assert_eq!(posted.unwrap().len(), 2, "the settlement alone");
    drop(conn);
    // It matches now, and nothing opens again.
    let said = compare(&mut world, file(1), vec![line(1, &open)])
        .await
        .unwrap();
    assert_eq!(said.matched, 1);
    world.end().await;
}

#[tokio::test]
async fn what_is_no_report_is_refused_by_its_field() {
    let mut world = World::start().await;
    let good = line(1, &new_momo_charge(world.clock.now()));
    let with = |change: fn(&mut ReportLine)| {
        let mut line = good.clone();
        change(&mut line);
        line
    };
    for (bad, field) in [
        (with(|line| line.amount = Some(ghs(0))), "lines.amount"),
        (with(|line| line.amount = None), "lines.amount"),
        (with(|line| line.direction = 0), "lines.direction"),
        (with(|line| line.said = 9), "lines.said"),
        (with(|line| line.at = Some("noon".to_owned())), "lines.at"),
        (
            with(|line| line.reference = "x".repeat(201)),
            "lines.reference",
        ),
        (
            with(|line| line.rail_id = "a\nb".to_owned()),
            "lines.rail_id",
        ),
    ] {
        check_invalid(compare(&mut world, file(1), vec![bad]).await, field);
    }
    check_invalid(compare(&mut world, file(1), Vec::new()).await, "lines");
    let many = vec![good.clone(); 1_001];
    check_invalid(compare(&mut world, file(1), many).await, "lines");
    check_invalid(
        compare(&mut world, "a".to_owned(), vec![good]).await,
        "report",
    );
    let now = world.clock.now();
    let whole = period(now - HOUR, now);
    let with = |change: fn(&mut FindUnreportedRequest)| {
        let mut request = whole.clone();
        change(&mut request);
        request
    };
    for (bad, field) in [
        (with(|request| request.rail = "cash".to_owned()), "rail"),
        (with(|request| request.from.clone_from(&request.to)), "to"),
        (with(|request| request.from = "today".to_owned()), "from"),
        (with(|request| request.directions.clear()), "directions"),
        (with(|request| request.directions = vec![7]), "directions"),
        (
            with(|request| request.margin_seconds = 86_401),
            "margin_seconds",
        ),
        (
            with(|request| request.page_token = "x".to_owned()),
            "page_token",
        ),
        (period(now, now + HOUR), "to"),
    ] {
        check_invalid(world.reports.find_unreported(bad).await, field);
    }
    world.end().await;
}
