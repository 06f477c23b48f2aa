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
        columns: vec![
            "Network",
            "Now",
            "Succeeded",
            "Half ended within",
            "Waiting for over 5 minutes",
            "Longest wait",
        ],
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
    let number = |number: Option<u32>, told: fn(String) -> Phrase| Cell {
        is_amount: true,
        text: match number {
            Some(number) => told(number.to_string()).into(),
            None => "–".into(),
        },
        ..Cell::default()
    };
    let percent = |number: String| phrase!("{0}\u{a0}%", number);
    vec![
        Cell::text(networks::name(network.provider())),
        now,
        number(network.succeeded_percent, percent),
        number(network.median_seconds, |number| {
            phrase!("{0}\u{a0}s", number)
        }),
        number(network.waiting_percent, percent),
        number(network.oldest_minutes, |number| {
            phrase!("{0}\u{a0}min", number)
        }),
    ]
}
