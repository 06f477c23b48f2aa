//! How the networks are doing, by everybody's payments: whether trouble is the network's or the
//! merchant's own.

use proto::charges::{NetworkWeather, ReadWeatherRequest, Weather};

use super::{
    Dashboard, networks,
    page::{Cell, Table},
    text::{Phrase, phrase},
};
use crate::{backend, error::Error};

impl Dashboard {
    /// How the networks do, in words first.
    pub async fn weather(&self) -> Result<Table, Error> {
        let read = self.figures.read(
            backend::DEADLINE,
            ReadWeatherRequest {},
            |mut figures, request| async move { figures.read_weather(request).await },
        );
        Ok(table(&read.await?.networks))
    }
}

fn table(networks: &[NetworkWeather]) -> Table {
    Table {
        caption: "The networks in the last hour, by everybody’s payments",
        columns: vec!["Network", "Now"],
        rows: networks.iter().map(row).collect(),
    }
}

fn row(network: &NetworkWeather) -> Vec<Cell> {
    let now = match network.weather() {
        Weather::AsUsual => Cell::state("As usual", "good"),
        Weather::Slower => Cell::state("Slower than usual", "wait"),
        Weather::ManyFail => Cell::state("Many fail", "bad"),
        Weather::TooFew | Weather::Unspecified => Cell::state("Too few payments to tell", "idle"),
    };
    vec![
        Cell::text(networks::name(network.provider())),
        match numbers(network) {
            Some(numbers) => now.detail(numbers),
            None => now,
        },
    ]
}

/// What may be told in numbers.
fn numbers(network: &NetworkWeather) -> Option<Phrase> {
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    let succeeded = text(network.succeeded_percent).zip(text(network.median_seconds));
    let succeeded = succeeded.map(|(percent, seconds)| {
        phrase!(
            "{0}\u{a0}% succeeded; half of those that ended took {1}\u{a0}s at most.",
            percent,
            seconds
        )
    });
    let waiting = text(network.waiting_percent).zip(text(network.oldest_minutes));
    let waiting = waiting.map(|(percent, minutes)| {
        phrase!(
            "{0}\u{a0}% wait for over 5 minutes, one for {1}\u{a0}min.",
            percent,
            minutes
        )
    });
    match (succeeded, waiting) {
        (Some(succeeded), Some(waiting)) => Some(phrase!("{0} {1}", succeeded, waiting)),
        (succeeded, waiting) => succeeded.or(waiting),
    }
}
