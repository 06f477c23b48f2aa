//! The numbers of the overview: what was collected in the last seven days, how it went on each
//! network, what failed and why. Each leads to the list of what it counts.

mod volume;

use std::collections::BTreeMap;

use chassis::{failure::FailureReason, limits::LOOKED_AT_MAX, money::Money};
use proto::charges::{ChargeCount, ChargeStatus, Figures, Provider, ReadFiguresRequest};

pub use self::volume::Volume;
use super::{
    Dashboard,
    login::Login,
    networks::NETWORKS,
    page::{Cell, Table},
    payments::{self, money},
    text::{Text, date, phrase},
};
use crate::{backend, error::Error, pages::amount::shown};

/// A number that leads to what it counts.
#[derive(Debug)]
pub struct Figure {
    pub name: &'static str,
    pub value: String,
    /// Since when it counts; empty for what stands now.
    pub since: Text,
    pub address: String,
}

/// The last seven days.
#[derive(Debug)]
pub struct Week {
    pub figures: Vec<Figure>,
    /// Empty without a payment.
    pub rates: Vec<Rate>,
    /// Empty before anything was collected.
    pub volumes: Vec<Volume>,
    /// The tables of how many succeeded, what was collected, and why the others did not.
    pub tables: Vec<Table>,
}

/// How a network's payments went, as a picture.
#[derive(Debug)]
pub struct Rate {
    pub network: &'static str,
    pub address: String,
    /// How many of a hundred succeeded.
    pub share: String,
    /// Each day's, oldest first.
    pub bars: Vec<Bar>,
}

/// A day's bar, in the picture's units.
#[derive(Debug)]
pub struct Bar {
    pub left: usize,
    /// `None` if nothing ended on that day.
    pub height: Option<u64>,
}

impl Bar {
    /// How far its top is below the picture's.
    pub fn top(&self) -> u64 {
        BAR_HEIGHT.saturating_sub(self.height.unwrap_or_default())
    }
}

/// How high the bar is of a day on which all succeeded.
const BAR_HEIGHT: u64 = 50;

/// From one bar to the next.
const BAR_STEP: usize = 20;

/// Payments that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    settled: u64,
    all: u64,
}

impl Ended {
    fn of<'c>(counts: impl Iterator<Item = &'c ChargeCount>) -> Self {
        counts.fold(Self::default(), |sum, count| match count.status() {
            ChargeStatus::Settled => Self {
                settled: sum.settled + count.charges,
                all: sum.all + count.charges,
            },
            ChargeStatus::Failed => Self {
                all: sum.all + count.charges,
                ..sum
            },
            ChargeStatus::Unspecified | ChargeStatus::Initiated | ChargeStatus::OtpRequired => sum,
        })
    }

    /// Rounded down: a hundred says that all did.
    fn percent(self) -> Option<u64> {
        (self.settled * 100).checked_div(self.all)
    }

    fn share(self) -> Option<String> {
        self.percent().map(|percent| format!("{percent}\u{a0}%"))
    }

    fn cell(self) -> Cell {
        match self.share() {
            Some(share) => {
                Cell::amount(share).detail(format!("{}\u{a0}/\u{a0}{}", self.settled, self.all))
            }
            None => Cell::amount("–".to_owned()),
        }
    }
}

impl Dashboard {
    pub async fn week(&self, login: &Login) -> Result<Week, Error> {
        let request = ReadFiguresRequest {
            merchant_id: login.merchant_id(),
        };
        let figures = self.figures.read(
            backend::DEADLINE,
            request,
            |mut figures, request| async move { figures.read_figures(request).await },
        );
        Week::new(&figures.await?)
    }
}

impl Week {
    pub fn new(figures: &Figures) -> Result<Self, Error> {
        let mut tables = Vec::new();
        if !figures.counts.is_empty() {
            tables.extend(successes(figures));
            tables.extend(volume::table(figures)?);
            tables.push(collected_by_day(figures)?);
            tables.extend(failures(figures));
        }
        let rates = NETWORKS.into_iter();
        let rates = rates.filter_map(|network| rate(figures, network));
        Ok(Self {
            figures: numbers(figures)?,
            rates: rates.collect(),
            volumes: volume::volumes(figures)?,
            tables,
        })
    }
}

/// The list of these days' payments that stand like this.
fn list(figures: &Figures, days: &[String], status: &str) -> String {
    let first = days.first().or(figures.days.first());
    let last = days.last().or(figures.days.last());
    let day = |day: Option<&String>| day.cloned().unwrap_or_default();
    let (from, to) = (day(first), day(last));
    format!("{}?status={status}&from={from}&to={to}", payments::PATH)
}

/// Those of one network; of any status if that is empty.
fn list_of_network(
    figures: &Figures,
    network: Provider,
    day: Option<&String>,
    status: &str,
) -> String {
    let list = list(figures, day.map_or(&[], std::slice::from_ref), status);
    format!("{list}&network={}", network.code().unwrap_or_default())
}

/// What settled of these, in each currency.
fn collected<'c>(
    counts: impl Iterator<Item = &'c ChargeCount>,
) -> Result<BTreeMap<&'static str, (u64, Money)>, Error> {
    let mut sums: BTreeMap<&'static str, (u64, Money)> = BTreeMap::new();
    for count in counts.filter(|count| count.status() == ChargeStatus::Settled) {
        let amount = money(count.amount.as_ref())?;
        let currency = amount.currency();
        let none = (0, Money::new(0, currency));
        let (charges, sum) = sums.entry(currency.code()).or_insert(none);
        *charges += count.charges;
        let minor = sum.minor_units().checked_add(amount.minor_units());
        let minor = minor.ok_or_else(|| Error::internal("no amount can hold this sum"))?;
        *sum = Money::new(minor, currency);
    }
    Ok(sums)
}

fn numbers(figures: &Figures) -> Result<Vec<Figure>, Error> {
    let first = figures.days.first();
    let since = first.map(|first| phrase!("since {0}", date(first)).into());
    let since: Text = since.unwrap_or_default();
    let collected = collected(figures.counts.iter())?;
    let collected = collected.into_values().map(|(_, sum)| Figure {
        name: "Collected",
        value: shown(sum),
        since: since.clone(),
        address: list(figures, &[], "SETTLED"),
    });
    let mut numbers: Vec<Figure> = collected.collect();
    numbers.push(Figure {
        name: "Waiting for over 5 minutes",
        value: match figures.waiting {
            waiting if waiting > LOOKED_AT_MAX.unsigned_abs() => format!("{LOOKED_AT_MAX}+"),
            waiting => waiting.to_string(),
        },
        since: Text::default(),
        address: format!("{}?status={}", payments::PATH, payments::WAITING),
    });
    Ok(numbers)
}

fn collected_by_day(figures: &Figures) -> Result<Table, Error> {
    let mut rows = Vec::new();
    for day in &figures.days {
        let of_day = figures.counts.iter().filter(|count| count.day == *day);
        for (charges, sum) in collected(of_day)?.into_values() {
            rows.push(vec![
                Cell::day(day).link(list(figures, std::slice::from_ref(day), "SETTLED")),
                Cell::amount(charges.to_string()),
                Cell::amount(shown(sum)),
            ]);
        }
    }
    Ok(Table {
        caption: "Collected by day",
        columns: vec!["Day, GMT", "Payments", "Amount"],
        rows,
    })
}

/// The same numbers as the pictures.
fn successes(figures: &Figures) -> Option<Table> {
    let ended =
        |network: Provider, day: Option<&String>| {
            Ended::of(figures.counts.iter().filter(|count| {
                count.provider() == network && day.is_none_or(|day| count.day == *day)
            }))
        };
    let mut networks = NETWORKS.to_vec();
    networks.retain(|(network, _)| ended(*network, None).all > 0);
    if networks.is_empty() {
        return None;
    }
    let row = |name: Cell, day: Option<&String>| {
        let cells = networks.iter();
        let cells = cells.map(|(network, _)| {
            let cell = ended(*network, day).cell();
            cell.link(list_of_network(figures, *network, day, ""))
        });
        [name].into_iter().chain(cells).collect()
    };
    let days = figures.days.iter();
    let days = days.filter(|day| {
        let of_day = figures.counts.iter().filter(|count| count.day == **day);
        Ended::of(of_day).all > 0
    });
    let days = days.map(|day| row(Cell::day(day), Some(day)));
    let whole = row(Cell::phrase("All seven days"), None);
    let names = networks.iter().map(|(_, name)| *name);
    Some(Table {
        caption: "Payments that succeeded",
        columns: ["Day, GMT"].into_iter().chain(names).collect(),
        rows: days.chain([whole]).collect(),
    })
}

/// `None` if none of the network's payments has ended.
fn rate(figures: &Figures, (network, name): (Provider, &'static str)) -> Option<Rate> {
    let of_network = || {
        let counts = figures.counts.iter();
        counts.filter(move |count| count.provider() == network)
    };
    let bars = figures.days.iter().enumerate().map(|(index, day)| {
        let ended = Ended::of(of_network().filter(|count| count.day == *day));
        Bar {
            left: index * BAR_STEP,
            height: ended.percent().map(|percent| percent * BAR_HEIGHT / 100),
        }
    });
    Some(Rate {
        network: name,
        address: list_of_network(figures, network, None, ""),
        share: Ended::of(of_network()).share()?,
        bars: bars.collect(),
    })
}

/// Why payments failed, the most frequent reason first.
fn failures(figures: &Figures) -> Option<Table> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for count in &figures.counts {
        if let Some(reason) = &count.failure_reason {
            *reasons.entry(reason).or_default() += count.charges;
        }
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, charges)| std::cmp::Reverse(*charges));
    let rows = reasons.into_iter().map(|(code, charges)| {
        let count = Cell::amount(charges.to_string());
        let all = list(figures, &[], "FAILED");
        match code.parse::<FailureReason>() {
            Ok(reason) => vec![
                Cell::phrase(reason.message()),
                count.link(format!("{all}&reason={code}")),
            ],
            Err(_) => vec![Cell::text(code), count.link(all)],
        }
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Payments that failed, and why",
        columns: vec!["Reason", "Payments"],
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(day: &str, status: ChargeStatus, charges: u64, minor: i64) -> ChargeCount {
        let amount = Money::new(minor, "GHS".parse().expect("a currency"));
        let failed = (status == ChargeStatus::Failed).then(|| "PAYER_DECLINED".to_owned());
        ChargeCount {
            day: day.to_owned(),
            provider: Provider::Mtn.into(),
            status: status.into(),
            failure_reason: failed,
            charges,
            amount: Some(amount.into()),
        }
    }

    fn usd(count: ChargeCount) -> ChargeCount {
        let amount = Money::new(7, "USD".parse().expect("a currency"));
        ChargeCount {
            amount: Some(amount.into()),
            ..count
        }
    }

    #[test]
    fn currencies_are_never_summed_and_all_is_only_all() {
        let (first, last) = ("2026-11-19", "2026-11-20");
        let figures = Figures {
            days: vec![first.to_owned(), last.to_owned()],
            counts: vec![
                count(first, ChargeStatus::Settled, 199, 100),
                count(last, ChargeStatus::Settled, 800, 250),
                usd(count(last, ChargeStatus::Settled, 1, 0)),
                count(last, ChargeStatus::Failed, 1, 0),
                count(last, ChargeStatus::Initiated, 50, 0),
            ],
            waiting: 3,
        };
        let week = Week::new(&figures).expect("figures");
        let values: Vec<_> = week.figures.iter().map(|figure| &figure.value).collect();
        assert_eq!(values, ["GHS\u{a0}3.50", "USD\u{a0}0.07", "3"]);
        let [rate] = week.rates.as_slice() else {
            panic!("{:?}", week.rates);
        };
        assert_eq!(rate.share, "99\u{a0}%");
        let heights: Vec<_> = rate.bars.iter().map(|bar| bar.height).collect();
        assert_eq!(heights, [Some(50), Some(49)]);
        let rows: Vec<_> = week.tables.iter().map(|table| table.rows.len()).collect();
        assert_eq!(rows, [3, 5, 3, 1]);
        let volumes = week.volumes.iter();
        let volumes: Vec<_> = volumes
            .map(|volume| {
                let heights = volume.bars.iter().map(|bar| bar.height);
                (volume.total.as_str(), heights.collect::<Vec<_>>())
            })
            .collect();
        let (cedis, dollars) = (vec![Some(20), Some(50)], vec![None, Some(50)]);
        assert_eq!(
            volumes,
            [("GHS\u{a0}3.50", cedis), ("USD\u{a0}0.07", dollars)]
        );
        let collected = &week.figures.first().expect("a figure").address;
        assert_eq!(
            collected,
            "/payments?status=SETTLED&from=2026-11-19&to=2026-11-20"
        );
    }
}
