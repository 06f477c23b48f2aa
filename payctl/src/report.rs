//! A rail's own report: a CSV file, and where its columns say what.
//!
//! Promise: a line that is not understood is an error that names it, and is never left out.

use std::{collections::HashMap, fs::File};

use anyhow::{Context as _, anyhow, bail};
use chassis::{
    clock::Timestamp,
    money::{Currency, Money},
};
use clap::{Args, ValueEnum};
use proto::charges::{Direction, ReportLine, report_line::Said};
use rust_decimal::Decimal;
use time::{
    OffsetDateTime, PrimitiveDateTime, format_description::well_known::Rfc3339,
    macros::format_description,
};

use crate::services::Failure;

/// Reports that are known. Each flag below replaces one thing of them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Layout {
    /// MTN's list of the collection account's transactions.
    MomoCollection,
    /// MTN's list of the disbursement account's transactions.
    MomoDisbursement,
    /// Paystack's export of transactions.
    PaystackTransactions,
    /// Paystack's export of transfers.
    PaystackTransfers,
}

/// Where a report says what: a column's name, or `=` and what holds for every line. Names are
/// compared without regard to case, spaces, hyphens and underscores; so are words.
#[derive(Clone, Debug, Args)]
pub struct Columns {
    /// The column with our reference.
    #[arg(long, value_name = "COLUMN")]
    reference: Option<String>,
    /// The column with the rail's own id of the movement; `=` alone if there is none.
    #[arg(long, value_name = "COLUMN")]
    rail_id: Option<String>,
    /// The column with the amount, in major units. Its sign does not matter.
    #[arg(long, value_name = "COLUMN")]
    amount: Option<String>,
    /// The column with the currency, or `=GHS`.
    #[arg(long, value_name = "COLUMN")]
    currency: Option<String>,
    /// The column with the time; `=` alone if there is none.
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// How times are written, such as `[day]/[month]/[year] [hour]:[minute]:[second]`, in UTC. Not
    /// set: 2026-01-31T09:00:00Z, or 2026-01-31 09:00:00 in UTC.
    #[arg(long, value_name = "FORMAT")]
    time_format: Option<String>,
    /// The column with the direction, or `=in` or `=out`.
    #[arg(long, value_name = "COLUMN")]
    direction: Option<String>,
    /// The column with the status, or `=paid`.
    #[arg(long, value_name = "COLUMN")]
    status: Option<String>,
    /// What a column's words mean, such as `credit=in`, `debit=out`, `settled=paid`,
    /// `declined=failed`, `chargeback=reversed`, or `queued=open` for what has not ended. May be
    /// repeated.
    #[arg(long = "word", value_name = "WORD=MEANING", value_parser = word)]
    words: Vec<(String, Meaning)>,
    /// Lines to leave out and count, such as treasury's own: `type=float transfer`. May be repeated.
    #[arg(long = "skip", value_name = "COLUMN=WORD", value_parser = skip)]
    skipped: Vec<(String, String)>,
}

/// What a word of a report means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Direction(Direction),
    Said(Said),
    /// It has not ended.
    Open,
}

const WORDS: [(&str, Meaning); 14] = [
    ("in", Meaning::Direction(Direction::In)),
    ("out", Meaning::Direction(Direction::Out)),
    ("paid", Meaning::Said(Said::Paid)),
    ("success", Meaning::Said(Said::Paid)),
    ("successful", Meaning::Said(Said::Paid)),
    ("failed", Meaning::Said(Said::Failed)),
    ("abandoned", Meaning::Said(Said::Failed)),
    ("blocked", Meaning::Said(Said::Failed)),
    ("rejected", Meaning::Said(Said::Failed)),
    ("reversed", Meaning::Said(Said::Reversed)),
    ("open", Meaning::Open),
    ("pending", Meaning::Open),
    ("otp", Meaning::Open),
    ("received", Meaning::Open),
];

impl Layout {
    /// What is known of these exports. Neither rail documents them, so a first file may need flags;
    /// one without a column that is looked for is refused.
    fn columns(self) -> [&'static str; 7] {
        match self {
            Self::MomoCollection => [
                "External id",
                "Id",
                "Amount",
                "Currency",
                "Date",
                "=in",
                "Status",
            ],
            Self::MomoDisbursement => [
                "External id",
                "Id",
                "Amount",
                "Currency",
                "Date",
                "=out",
                "Status",
            ],
            Self::PaystackTransactions => [
                "Reference",
                "Id",
                "Amount",
                "Currency",
                "Paid at",
                "=in",
                "Status",
            ],
            Self::PaystackTransfers => [
                "Reference",
                "Id",
                "Amount",
                "Currency",
                "Created at",
                "=out",
                "Status",
            ],
        }
    }
}

/// Where a value is found.
#[derive(Debug)]
enum Place {
    Column(usize),
    Always(String),
}

/// A report's lines, one after the other.
pub struct Lines {
    records: csv::StringRecordsIntoIter<File>,
    number: u64,
    reference: Place,
    rail_id: Place,
    amount: Place,
    currency: Place,
    time: Place,
    direction: Place,
    status: Place,
    time_format: Option<time::format_description::OwnedFormatItem>,
    words: HashMap<String, Meaning>,
    skipped: Vec<(usize, String)>,
}

/// What a line turned out to be.
#[derive(Debug)]
pub enum Read {
    Line(Box<ReportLine>),
    /// Something to leave out.
    Skipped,
    /// It has not ended, so that the report says nothing of it yet.
    Open,
}

impl Lines {
    pub fn of(report: File, layout: Layout, columns: Columns) -> Result<Self, Failure> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(report);
        let header = reader.headers().context("the report has no header")?;
        let names: Vec<String> = header.iter().map(plain).collect();
        let find = |name: &str| {
            let mut found = (0..).zip(&names).filter(|(_, one)| **one == plain(name));
            match (found.next(), found.next()) {
                (Some((place, _)), None) => Ok(place),
                (None, _) => Err(anyhow!(
                    "the report has no column {name:?}: it has {header:?}"
                )),
                (Some(_), Some(_)) => Err(anyhow!("the report has two columns {name:?}")),
            }
        };
        let place = |given: &Option<String>, known: &str| {
            let name = given.as_deref().unwrap_or(known);
            match name.strip_prefix('=') {
                Some(always) => Ok(Place::Always(always.to_owned())),
                None => find(name).map(Place::Column),
            }
        };
        let [
            reference,
            rail_id,
            amount,
            currency,
            time,
            direction,
            status,
        ] = layout.columns();
        let known = WORDS.iter().map(|(word, means)| (plain(word), *means));
        let given = columns
            .words
            .iter()
            .map(|(word, means)| (plain(word), *means));
        let time_format = columns.time_format.as_deref().map(|format| {
            time::format_description::parse_owned::<2>(format)
                .map_err(|error| anyhow!("--time-format {format:?}: {error}"))
        });
        let skipped = columns.skipped.iter();
        let skipped = skipped.map(|(column, word)| Ok((find(column)?, plain(word))));
        Ok(Self {
            reference: place(&columns.reference, reference)?,
            rail_id: place(&columns.rail_id, rail_id)?,
            amount: place(&columns.amount, amount)?,
            currency: place(&columns.currency, currency)?,
            time: place(&columns.time, time)?,
            direction: place(&columns.direction, direction)?,
            status: place(&columns.status, status)?,
            time_format: time_format.transpose()?,
            words: known.chain(given).collect(),
            skipped: skipped.collect::<Result<_, Failure>>()?,
            records: reader.into_records(),
            number: 0,
        })
    }

    /// The directions that the report is about.
    pub fn directions(&self) -> Result<Vec<Direction>, Failure> {
        match &self.direction {
            Place::Column(_) => Ok(vec![Direction::In, Direction::Out]),
            Place::Always(word) => self.parse_direction(word).map(|direction| vec![direction]),
        }
    }

    /// The next line; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Read>, Failure> {
        let Some(record) = self.records.next() else {
            return Ok(None);
        };
        self.number += 1;
        let read = record
            .map_err(Failure::from)
            .and_then(|line| self.read(&line));
        // The header is the file's first line.
        read.map(Some)
            .with_context(|| format!("line {} of the report", self.number + 1))
    }

    fn read(&self, record: &csv::StringRecord) -> Result<Read, Failure> {
        let get = |place: &Place| match place {
            Place::Column(column) => record.get(*column).unwrap_or_default().to_owned(),
            Place::Always(always) => always.clone(),
        };
        let is_skipped = |(column, word): &(usize, String)| {
            record.get(*column).is_some_and(|text| plain(text) == *word)
        };
        if self.skipped.iter().any(is_skipped) {
            return Ok(Read::Skipped);
        }
        let said = match self.meaning("status", &get(&self.status))? {
            Meaning::Open => return Ok(Read::Open),
            Meaning::Said(said) => said,
            Meaning::Direction(_) => bail!("its status is a direction"),
        };
        let direction = self.parse_direction(&get(&self.direction))?;
        let currency: Currency = get(&self.currency)
            .to_uppercase()
            .parse()
            .map_err(|_| anyhow!("its currency {:?} is none", get(&self.currency)))?;
        let amount = parse_amount(&get(&self.amount), currency)?;
        let at = self.parse_time(&get(&self.time))?;
        Ok(Read::Line(Box::new(ReportLine {
            number: self.number,
            reference: get(&self.reference),
            rail_id: get(&self.rail_id),
            direction: direction.into(),
            amount: Some(amount.into()),
            said: said.into(),
            at: at.map(|at| at.to_string()),
        })))
    }

    fn parse_direction(&self, word: &str) -> Result<Direction, Failure> {
        match self.meaning("direction", word)? {
            Meaning::Direction(direction) => Ok(direction),
            Meaning::Said(_) | Meaning::Open => bail!("its direction {word:?} is a status"),
        }
    }

    fn meaning(&self, what: &str, word: &str) -> Result<Meaning, Failure> {
        let meaning = self.words.get(&plain(word)).copied();
        meaning.ok_or_else(|| {
            anyhow!("its {what} {word:?} is not known: say what it means with --word")
        })
    }

    fn parse_time(&self, text: &str) -> Result<Option<Timestamp>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let moment = match &self.time_format {
            Some(format) => PrimitiveDateTime::parse(text, format)
                .map(PrimitiveDateTime::assume_utc)
                .with_context(|| format!("its time {text:?} is not as --time-format says"))?,
            None => parse_moment(text)
                .with_context(|| format!("its time {text:?} is not understood: --time-format"))?,
        };
        timestamp(moment).map(Some)
    }
}

/// Major units, perhaps with separators of thousands and a sign.
fn parse_amount(text: &str, currency: Currency) -> Result<Money, Failure> {
    let digits: String = text.chars().filter(|one| *one != ',').collect();
    let amount: Decimal = digits
        .parse()
        .map_err(|_| anyhow!("its amount {text:?} is no number"))?;
    let amount = Money::from_major(amount.abs(), currency)
        .with_context(|| format!("its amount {text:?} is none of {}", currency.code()))?;
    if !amount.is_positive() {
        bail!("its amount is nothing");
    }
    Ok(amount)
}

/// A moment as RFC 3339, or a day or a time of a day in UTC.
pub fn parse_moment(text: &str) -> Option<OffsetDateTime> {
    let seconds = format_description!(
        "[year]-[month]-[day] [hour]:[minute]:[second][optional [.[subsecond]]]"
    );
    let minutes = format_description!("[year]-[month]-[day] [hour]:[minute]");
    let day = format_description!("[year]-[month]-[day]");
    let spaced = text.replacen('T', " ", 1);
    let of_day = || {
        PrimitiveDateTime::parse(&spaced, seconds)
            .or_else(|_| PrimitiveDateTime::parse(&spaced, minutes))
            .map(PrimitiveDateTime::assume_utc)
    };
    let midnight = || time::Date::parse(text, day).map(|day| day.midnight().assume_utc());
    let whole = OffsetDateTime::parse(text, &Rfc3339);
    whole.or_else(|_| of_day()).or_else(|_| midnight()).ok()
}

/// The moment in whole milliseconds.
pub fn timestamp(moment: OffsetDateTime) -> Result<Timestamp, Failure> {
    let millis = moment.unix_timestamp_nanos().div_euclid(1_000_000);
    let millis = i64::try_from(millis).context("its time is out of range")?;
    Ok(Timestamp::from_unix_millis(millis)?)
}

/// How names and words are compared.
fn plain(text: &str) -> String {
    let letters = text.trim_start_matches('\u{feff}').chars();
    let letters = letters.filter(|one| !one.is_whitespace() && !matches!(one, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

fn word(text: &str) -> Result<(String, Meaning), String> {
    let (word, means) = text
        .split_once('=')
        .ok_or("must be a word, = and its meaning")?;
    let known = WORDS.iter().find(|(word, _)| *word == plain(means));
    let meanings = "means none of in, out, paid, failed, reversed and open";
    let (_, means) = known.ok_or(format!("{means:?} {meanings}"))?;
    Ok((word.to_owned(), *means))
}

fn skip(text: &str) -> Result<(String, String), &'static str> {
    let (column, word) = text
        .split_once('=')
        .ok_or("must be a column, = and a word")?;
    Ok((column.to_owned(), word.to_owned()))
}
