//! What was collected on each network, day by day, as pictures and as their table. Currencies are never
//! summed, and each has pictures and rows of its own.

use chassis::money::Money;
use proto::charges::{ChargeStatus, Figures, Provider};

use super::{BAR_HEIGHT, BAR_STEP, Bar, NETWORKS, collected, list_of_network};
use crate::{
    dashboard::page::{Cell, Table},
    error::Error,
    pages::amount::shown,
};

/// The status of what was collected.
const SETTLED: &str = "SETTLED";

/// What was collected on a network in one currency, as a picture.
#[derive(Debug)]
pub struct Volume {
    pub network: &'static str,
    pub address: String,
    pub total: String,
    /// Each day's, oldest first.
    pub bars: Vec<Bar>,
}

/// What was collected in one currency on a network, or on all; on a day, or on all of them. `None` if
/// it is nothing.
fn sum(
    figures: &Figures,
    currency: &str,
    network: Option<Provider>,
    day: Option<&String>,
) -> Result<Option<Money>, Error> {
    let counts = figures.counts.iter().filter(|count| {
        network.is_none_or(|network| count.provider() == network)
            && day.is_none_or(|day| count.day == *day)
    });
    let sums = collected(counts)?;
    Ok(sums.get(currency).map(|(_, sum)| *sum))
}

fn currencies(figures: &Figures) -> Result<Vec<&'static str>, Error> {
    Ok(collected(figures.counts.iter())?.into_keys().collect())
}

/// The pictures of one currency have one scale, so that networks can be compared.
pub fn volumes(figures: &Figures) -> Result<Vec<Volume>, Error> {
    let mut volumes = Vec::new();
    for currency in currencies(figures)? {
        let mut of_currency = Vec::new();
        for (network, name) in NETWORKS {
            let Some(total) = sum(figures, currency, Some(network), None)? else {
                continue;
            };
            let days = figures.days.iter();
            let days = days.map(|day| sum(figures, currency, Some(network), Some(day)));
            let days: Vec<Option<Money>> = days.collect::<Result<_, _>>()?;
            let address = list_of_network(figures, network, None, SETTLED);
            of_currency.push(((name, address), total, days));
        }
        let sums = of_currency.iter().flat_map(|(_, _, days)| days).flatten();
        let highest = sums.map(|sum| sum.minor_units()).max().unwrap_or_default();
        volumes.extend(
            of_currency
                .into_iter()
                .map(|((network, address), total, days)| Volume {
                    network,
                    address,
                    total: shown(total),
                    bars: bars(&days, highest),
                }),
        );
    }
    Ok(volumes)
}

fn bars(days: &[Option<Money>], highest: i64) -> Vec<Bar> {
    let height = |sum: &Money| {
        let height = i128::from(sum.minor_units()) * i128::from(BAR_HEIGHT);
        let height = height.checked_div(highest.into())?;
        // Even the smallest amount gets a visible bar.
        Some(u64::try_from(height).ok()?.max(1))
    };
    let days = days.iter().enumerate();
    days.map(|(index, sum)| Bar {
        left: index * BAR_STEP,
        height: sum.as_ref().and_then(height),
    })
    .collect()
}

/// The same numbers as the pictures. `None` if nothing was collected.
pub fn table(figures: &Figures) -> Result<Option<Table>, Error> {
    let currencies = currencies(figures)?;
    let mut networks = NETWORKS.to_vec();
    networks.retain(|(network, _)| {
        let mut counts = figures.counts.iter();
        counts.any(|count| count.provider() == *network && count.status() == ChargeStatus::Settled)
    });
    let mut rows = Vec::new();
    let days = figures.days.iter().map(Some).chain([None]);
    for day in days {
        for currency in &currencies {
            if sum(figures, currency, None, day)?.is_none() {
                continue;
            }
            let mut row = vec![match day {
                Some(day) => Cell::day(day),
                None => Cell::phrase("All seven days"),
            }];
            for (network, _) in &networks {
                let sum = sum(figures, currency, Some(*network), day)?;
                row.push(match sum {
                    Some(sum) => Cell::amount(shown(sum))
                        .link(list_of_network(figures, *network, day, SETTLED)),
                    None => Cell::amount("–".to_owned()),
                });
            }
            rows.push(row);
        }
    }
    let names = networks.iter().map(|(_, name)| *name);
    Ok((!rows.is_empty()).then(|| Table {
        caption: "Collected by network",
        columns: ["Day, GMT"].into_iter().chain(names).collect(),
        rows,
    }))
}
