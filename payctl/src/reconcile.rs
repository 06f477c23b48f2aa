//! `payctl reconcile`: compares a rail's own report with our records.
//!
//! Promise: the report is read as a stream, so that its length takes no memory. Nothing is compared
//! before all of it is there. Whatever breaks off is mended by running it again: nothing is opened
//! twice.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use chassis::{clock::Timestamp, grpc};
use clap::Args;
use proto::charges::{
    Difference, FindUnreportedRequest, MatchLinesRequest, ReportLine,
    rail_reports_client::RailReportsClient,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    report::{Columns, Layout, Lines, Read, parse_moment, timestamp},
    services::{Failure, Services, refusal},
};

/// How many lines go in one call.
const SET: usize = 500;

/// Most differences that are printed one by one; all are counted, and each has a case.
const LISTED_MAX: usize = 100;

/// How long, and how often, to wait until everything of the period is in the ledger's blocks, which
/// takes about a minute.
const SEALED_WITHIN: u32 = 60;
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// In place of a file.
const STANDARD_INPUT: &str = "-";

/// The exit code if something differs: neither an error (1) nor a wrong flag (2).
const DIFFERENT: u8 = 3;

#[derive(Debug, Args)]
pub struct Reconcile {
    /// momo, paystack or hubtel.
    #[arg(long)]
    rail: String,
    /// Which of the rail's reports it is.
    #[arg(long, value_enum)]
    layout: Layout,
    /// The first moment that the report covers: 2026-11-24, or 2026-11-24T06:00:00Z. A day begins at
    /// midnight UTC, which is Ghana's time.
    #[arg(long, value_parser = moment)]
    from: Timestamp,
    /// Up to when it covers everything; that moment itself is not covered.
    #[arg(long, value_parser = moment)]
    to: Timestamp,
    /// By how much the rail's times may differ from ours.
    #[arg(long, default_value = "10m", value_parser = chassis::config::duration)]
    margin: Duration,
    #[command(flatten)]
    columns: Columns,
    /// The report's SHA-256, as `sha256sum` prints it. Needed with `-`: a pipe may break off, and half
    /// a report looks like a whole one of fewer movements.
    #[arg(long, value_name = "HEX", required_if_eq("file", STANDARD_INPUT))]
    sha256: Option<String>,
    /// The report, a CSV file with a header; `-` is the standard input.
    file: PathBuf,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Summary {
    lines: u64,
    matched: u64,
    skipped: u64,
    open: u64,
    outside_period: u64,
    undecided: u64,
    cases_opened: u64,
    differences: BTreeMap<&'static str, u64>,
    listed: Vec<Value>,
}

/// Prints what differs; the exit code tells whether anything does.
pub async fn run(services: &Services, command: Reconcile) -> Result<(Value, ExitCode), Failure> {
    let mut reports = RailReportsClient::new(services.charges()?);
    let unreadable = || format!("{} cannot be read", command.file.display());
    let mut file = match command.file == Path::new(STANDARD_INPUT) {
        true => keep(io::stdin().lock()).context("the standard input cannot be kept")?,
        false => File::open(&command.file).with_context(unreadable)?,
    };
    let report = hash(&mut file).with_context(unreadable)?;
    if let Some(whole) = &command.sha256
        && !whole.eq_ignore_ascii_case(&report)
    {
        bail!("the report has another SHA-256 than --sha256, {report}: it may be cut off");
    }
    let mut lines = Lines::of(file, command.layout, command.columns.clone())?;
    let mut summary = Summary::default();
    let again = "run it again once that is mended: nothing is opened twice";
    let mut set = Vec::with_capacity(SET);
    loop {
        let read = lines.next()?;
        let is_end = read.is_none();
        set.extend(summary.count(read, &command));
        if set.len() == SET || (is_end && !set.is_empty()) {
            let request = MatchLinesRequest {
                rail: command.rail.clone(),
                report: report.clone(),
                lines: std::mem::take(&mut set),
            };
            let answer = reports.match_lines(request).await.map_err(refusal);
            let answer = answer.context(again)?.into_inner();
            summary.matched += u64::from(answer.matched);
            summary.add(answer.differences);
        }
        if is_end {
            break;
        }
    }
    let mut request = FindUnreportedRequest {
        rail: command.rail.clone(),
        report: report.clone(),
        directions: lines.directions()?.into_iter().map(Into::into).collect(),
        from: command.from.to_string(),
        to: command.to.to_string(),
        margin_seconds: u32::try_from(command.margin.as_secs())?,
        page_token: String::new(),
    };
    loop {
        let page = find_unreported(&mut reports, &request).await;
        let page = page.context(again)?;
        summary.undecided += u64::from(page.undecided);
        summary.add(page.differences);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let code = match summary.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT),
    };
    Ok((summary.told(&command, &report), code))
}

/// A page, once everything of the period is listed.
async fn find_unreported(
    reports: &mut RailReportsClient<grpc::Channel>,
    request: &FindUnreportedRequest,
) -> Result<proto::charges::FindUnreportedResponse, Failure> {
    for _ in 0..SEALED_WITHIN {
        match reports.find_unreported(request.clone()).await {
            Err(refused) if grpc::reason(&refused).as_deref() == Some("POSTINGS_NOT_SEALED") => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            answer => return answer.map(tonic::Response::into_inner).map_err(refusal),
        }
    }
    Err(anyhow!("not everything booked in the period is sealed yet"))
}

impl Summary {
    /// Counts what was read. Returns the line, if it is one to compare.
    fn count(&mut self, read: Option<Read>, command: &Reconcile) -> Option<ReportLine> {
        let line = match read? {
            Read::Line(line) => Some(*line),
            Read::Skipped => {
                self.skipped += 1;
                None
            }
            Read::Open => {
                self.open += 1;
                None
            }
        };
        self.lines += 1;
        let at = line.as_ref().and_then(|line| line.at.as_deref());
        let at: Option<Timestamp> = at.and_then(|at| at.parse().ok());
        let is_outside = at.is_some_and(|at| at < command.from || at >= command.to);
        self.outside_period += u64::from(is_outside);
        line
    }

    fn add(&mut self, differences: Vec<Difference>) {
        for difference in differences {
            let kind = difference.kind().code().unwrap_or("UNKNOWN");
            *self.differences.entry(kind).or_default() += 1;
            self.cases_opened += u64::from(difference.case_opened);
            if self.listed.len() < LISTED_MAX {
                self.listed.push(json!({
                    "kind": kind,
                    "line": difference.number,
                    "reference": difference.reference,
                    "detail": difference.detail,
                    "case_opened": difference.case_opened,
                }));
            }
        }
    }

    fn told(self, command: &Reconcile, report: &str) -> Value {
        json!({
            "rail": command.rail,
            "report": report,
            "from": command.from.to_string(),
            "to": command.to.to_string(),
            "lines": self.lines,
            "matched": self.matched,
            "skipped": self.skipped,
            "open": self.open,
            "outside_period": self.outside_period,
            "undecided": self.undecided,
            "differences": self.differences,
            "cases_opened": self.cases_opened,
            "listed": self.listed,
        })
    }
}

/// What comes once, in a file that can be read twice and that nobody else sees.
fn keep(mut from: impl io::Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// What tells this report from another.
fn hash(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut part)?;
        let Some(read) = part.get(..read).filter(|read| !read.is_empty()) else {
            file.rewind()?;
            return Ok(hex::encode(hash.finalize()));
        };
        hash.update(read);
    }
}

fn moment(text: &str) -> Result<Timestamp, &'static str> {
    let moment = parse_moment(text).and_then(|moment| timestamp(moment).ok());
    moment.ok_or("must be a day such as 2026-11-24, or a moment such as 2026-11-24T06:00:00Z")
}
