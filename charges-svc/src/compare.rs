//! Compares rails' reports with our records, on either side, and opens a case for what differs.
//!
//! Promise: a report settles nothing and posts nothing. Comparing the same again opens no second
//! case. A set of lines costs a handful of statements, whatever the report's length.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chassis::{
    clock::Timestamp,
    ids::{CaseId, RailReference},
    money::Money,
};
use db::{Tx, Update};
use uuid::Uuid;

use crate::{
    case::{Case, CaseKind, Closing, Decision},
    error::{Error, Result},
    rail_report::{
        self, Absence, Direction, Known, NEIGHBOURS_WITHIN, Period, RailReport, ReportLine, Said,
        judge, judge_absence,
    },
    service::Service,
    store::{
        self,
        rail_reports::{KeptLine, NewLine, Record, Unreported},
    },
};

/// How many blocks one page of unreported records looks at: at most 5,000 postings.
const BLOCKS_A_PAGE: i64 = 10;

/// What is posted at a moment is sealed then or later, but for the replicas' clocks.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);

/// Something that is not the same on both sides.
#[derive(Clone, Debug)]
pub struct Difference {
    pub kind: CaseKind,
    /// The line's; `None` if it is a record that no line is about.
    pub number: Option<u64>,
    pub reference: String,
    pub detail: String,
    pub case_opened: bool,
    /// The line or the record.
    subject: Uuid,
}

/// The records that a period's reports lack, as far as the ledger was looked through.
#[derive(Clone, Debug)]
pub struct UnreportedPage {
    pub differences: Vec<Difference>,
    pub undecided: u32,
    /// The last block that was looked at; `None` at the end.
    pub next: Option<i64>,
}

/// What a report covers.
#[derive(Clone, Debug)]
pub struct Coverage {
    pub report: RailReport,
    pub directions: Vec<Direction>,
    pub period: Period,
    /// By how much the rail's times may differ from ours.
    pub margin: Duration,
}

impl Service {
    /// Compares lines with our records. Returns the differences in the order of the lines.
    pub async fn match_lines(
        self: &Arc<Self>,
        report: &RailReport,
        lines: &[ReportLine],
    ) -> Result<Vec<Difference>> {
        let known = self.known(report, lines).await?;
        let of = |line: &ReportLine| {
            let reference: RailReference = line.reference.parse().ok()?;
            known.get(&reference)
        };
        let kept = self.keep_lines(report, lines, of).await?;
        let mut differences = Vec::new();
        let mut contradicted = Vec::new();
        for line in lines {
            let (line_id, known) = (line.id(report.rail), of(line));
            let is_repeated = kept
                .get(&line_id)
                .is_some_and(|kept| is_repeated(line, known, kept));
            let found = match known {
                Some(_) if is_repeated => Some(rail_report::twice(line)),
                known => judge(line, known),
            };
            let Some((kind, detail)) = found else {
                continue;
            };
            if let Some(known) = known
                && kind == CaseKind::ReportContradicts
                && known.booked.is_empty()
            {
                contradicted.push(known);
            }
            differences.push(Difference {
                kind,
                number: Some(line.number),
                reference: called(line, known),
                detail,
                case_opened: false,
                subject: line_id,
            });
        }
        self.have_asked(report, &contradicted).await?;
        self.open_cases(&mut differences).await?;
        Ok(differences)
    }

    /// Our records of these lines, by their reference at the rail.
    async fn known(
        &self,
        report: &RailReport,
        lines: &[ReportLine],
    ) -> Result<HashMap<RailReference, Known>> {
        let references = lines.iter().filter_map(|line| line.reference.parse().ok());
        let references: HashSet<RailReference> = references.collect();
        let references: Vec<_> = references.into_iter().collect();
        let mut conn = self.db.read().await?;
        let records =
            store::rail_reports::find_records(&mut conn, report.rail, &references).await?;
        let subjects: Vec<Uuid> = records.iter().map(|record| record.subject).collect();
        let mut booked: HashMap<Uuid, Vec<Money>> = HashMap::new();
        for (subject, amount) in store::rail_reports::booked(&mut conn, &subjects).await? {
            booked.entry(subject).or_default().push(amount);
        }
        let taken_back = store::rail_reports::taken_back(&mut conn, &subjects).await?;
        let taken_back: HashSet<Uuid> = taken_back.into_iter().collect();
        let known = records.into_iter().map(|record: Record| {
            let known = Known {
                booked: booked.remove(&record.subject).unwrap_or_default(),
                is_taken_back: taken_back.contains(&record.subject),
                subject: record.subject,
                shown: record.shown,
                direction: record.direction,
                state: record.state,
            };
            (record.rail_reference, known)
        });
        Ok(known.collect())
    }

    /// Keeps the lines, and returns each as it is kept.
    async fn keep_lines<'k>(
        &self,
        report: &RailReport,
        lines: &[ReportLine],
        of: impl Fn(&ReportLine) -> Option<&'k Known>,
    ) -> Result<HashMap<Uuid, KeptLine>> {
        let (mut ids, mut led) = (HashSet::new(), HashSet::new());
        let mut new = Vec::new();
        for line in lines {
            let line_id = line.id(report.rail);
            if !ids.insert(line_id) {
                continue;
            }
            let known = of(line);
            let said = known.map_or(line.said, |known| line.said_of(known.direction));
            let subject = known.map(|known| known.subject);
            new.push(NewLine {
                line_id,
                number: i64::try_from(line.number).unwrap_or(i64::MAX),
                subject,
                shown: called(line, known),
                said,
                leads_set: led.insert((subject, said)),
            });
        }
        let kept = match self.keep(report, &new).await {
            // Another comparison of the same records has committed meanwhile.
            Err(error) if is_contended(&error) => self.keep(report, &new).await,
            kept => kept,
        };
        match kept {
            Ok(kept) => Ok(kept.into_iter().map(|kept| (kept.line_id, kept)).collect()),
            Err(error) if is_contended(&error) => Err(Error::ComparedAtOnce),
            Err(error) => Err(error.into()),
        }
    }

    async fn keep(&self, report: &RailReport, lines: &[NewLine]) -> db::Result<Vec<KeptLine>> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        store::rail_reports::keep_lines(&mut tx, report, lines, now).await?;
        tx.commit().await?;
        store::rail_reports::kept_lines(&mut self.db.read().await?, report, lines).await
    }

    /// Makes the rail's query of these records due at once: its answer tells whether the report is
    /// right.
    async fn have_asked(&self, report: &RailReport, contradicted: &[&Known]) -> Result<()> {
        if contradicted.is_empty() {
            return Ok(());
        }
        let (rail, now) = (report.rail.code(), self.clock.now());
        let mut tx = self.db.begin().await?;
        for known in contradicted {
            match known.direction {
                Direction::In => {
                    let asked = store::hints::put(&mut tx, known.subject.into(), now).await?;
                    if asked == Update::NotThere {
                        let reference = &known.shown;
                        tracing::error!(charge.reference = %reference, "a report says that a void charge was paid");
                    }
                }
                Direction::Out => {
                    store::disbursements::put_hint(&mut tx, known.subject.into(), now).await?;
                }
            }
        }
        tx.commit().await?;
        self.reconcile_alarms.ring_at(rail, now);
        self.disburse_alarms.ring_at(rail, now);
        Ok(())
    }

    /// Opens the differences' cases, unless they have had one, and marks those that were opened.
    async fn open_cases(&self, differences: &mut [Difference]) -> Result<()> {
        if differences.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut seen = HashSet::new();
        let mut cases: Vec<(&mut Difference, Case)> = Vec::new();
        for difference in differences {
            if seen.insert((difference.subject, difference.kind)) {
                let about = (difference.subject, difference.reference.clone());
                let detail = difference.detail.clone();
                let case = Case::of_report(about, difference.kind, detail, now);
                cases.push((difference, case));
            }
        }
        let new: Vec<&Case> = cases.iter().map(|(_, case)| case).collect();
        let mut tx = self.db.begin().await?;
        let opened = store::cases::open_new(&mut tx, &new).await?;
        tx.commit().await?;
        let opened: HashSet<CaseId> = opened.into_iter().collect();
        for (difference, case) in cases {
            difference.case_opened = opened.contains(&case.case_id);
            if difference.case_opened {
                case.announce(case.case_id);
            }
        }
        Ok(())
    }

    /// The next page of what was booked in the report's period and no report has.
    pub async fn find_unreported(
        &self,
        coverage: &Coverage,
        after: Option<i64>,
    ) -> Result<UnreportedPage> {
        let Coverage { report, period, .. } = coverage;
        let covered = self.covered(coverage).await?;
        let mut conn = self.db.read().await?;
        let ends = covered.iter().map(|(_, covered)| covered.to);
        let until = ends.fold(period.to, Timestamp::max);
        if store::rail_reports::is_unsealed(&mut conn, until).await? {
            return Err(Error::PostingsNotSealed);
        }
        let since = period.from - coverage.margin;
        let last = store::blocks::last_number(&mut conn).await?;
        let from = match after {
            Some(after) => after,
            None => {
                let sealed_since = since - CLOCKS_DIFFER_MAX;
                let first = store::rail_reports::first_block(&mut conn, sealed_since).await?;
                first.map_or(last, |first| first - 1)
            }
        };
        let to = last.min(from.saturating_add(BLOCKS_A_PAGE));
        let found =
            store::rail_reports::unreported(&mut conn, report.rail, (from, to), since).await?;
        drop(conn);
        let (mut differences, mut undecided) = (Vec::new(), 0);
        for record in found {
            let of_direction = |(direction, _): &&_| *direction == record.direction;
            let Some((_, covered)) = covered.iter().find(of_direction) else {
                continue;
            };
            let moved = Period {
                from: record.created_at - coverage.margin,
                to: record.posted_at + coverage.margin,
            };
            match judge_absence(moved, *period, *covered) {
                Absence::Missing => differences.push(missing(record)),
                Absence::Undecided => undecided += 1,
                Absence::Elsewhere => {}
            }
        }
        self.open_cases(&mut differences).await?;
        let is_last = to >= last;
        if is_last {
            self.keep_periods(coverage).await?;
        }
        Ok(UnreportedPage {
            differences,
            undecided,
            next: (!is_last).then_some(to),
        })
    }

    /// What reports cover in each direction around this one's period, without a gap.
    async fn covered(&self, coverage: &Coverage) -> Result<Vec<(Direction, Period)>> {
        let Period { from, to } = coverage.period;
        let around = Period {
            from: from - NEIGHBOURS_WITHIN,
            to: to + NEIGHBOURS_WITHIN,
        };
        let rail = coverage.report.rail;
        let mut conn = self.db.read().await?;
        let mut covered = Vec::new();
        for direction in &coverage.directions {
            let others = store::rail_reports::periods(&mut conn, rail, *direction, around).await?;
            covered.push((*direction, coverage.period.continued(&others)));
        }
        Ok(covered)
    }

    async fn keep_periods(&self, coverage: &Coverage) -> Result<()> {
        let report = (coverage.report.rail, coverage.report.hash.as_str());
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        for direction in &coverage.directions {
            let period = coverage.period;
            store::rail_reports::keep_period(&mut tx, report, *direction, period, now).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Closes a case about a report, which posts nothing: what a report is right about is posted by
    /// the rail's answer to a query, by an operator who resolves the charge, or by treasury.
    pub async fn close_report_case(
        &self,
        mut tx: Tx,
        case: Case,
        decision: Decision,
    ) -> Result<Case> {
        if decision.closing() != Closing::Release {
            return Err(Error::Invalid {
                field: "action",
                message: "must be release: no money waits with this case".into(),
            });
        }
        let contradicts = case.kind == CaseKind::ReportContradicts;
        if contradicts && store::rail_reports::is_record_open(&mut tx, case.subject).await? {
            return Err(Error::CaseNeedsChargeResolved);
        }
        let (id, now) = (case.case_id, self.clock.now());
        if store::cases::close(&mut tx, id, Closing::Release, now).await? == Update::NotThere {
            return Err(Error::CaseClosed);
        }
        let closed = store::cases::find(&mut tx, id).await?;
        tx.commit().await?;
        tracing::warn!(case.id = %id, "an operator closed the case about a report");
        closed.ok_or(Error::CaseNotFound)
    }
}

/// Whether another transaction about the same was in the way.
fn is_contended(error: &db::Error) -> bool {
    db::is_unique_violation(error) || db::is_retryable(error)
}

/// Whether the line was there before: elsewhere in this file, or as another movement of the record.
fn is_repeated(line: &ReportLine, known: Option<&Known>, kept: &KeptLine) -> bool {
    let is_twice_here = u64::try_from(kept.number) != Ok(line.number);
    let moved_money = known.is_some_and(|known| line.said_of(known.direction) != Said::Failed);
    is_twice_here || (moved_money && !kept.is_first)
}

/// What people call the line's movement.
fn called(line: &ReportLine, known: Option<&Known>) -> String {
    match known {
        Some(known) => known.shown.clone(),
        None if line.reference.is_empty() => line.rail_id.clone(),
        None => line.reference.clone(),
    }
}

fn missing(record: Unreported) -> Difference {
    let moved = match record.direction {
        Direction::In => "collected",
        Direction::Out => "paid out",
    };
    let (amount, at) = (rail_report::shown(record.amount()), record.posted_at);
    Difference {
        kind: CaseKind::ReportLacks,
        number: None,
        detail: format!("we booked at {at} that {amount} was {moved}; no report has it"),
        reference: record.shown,
        case_opened: false,
        subject: record.subject,
    }
}
