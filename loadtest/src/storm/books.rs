//! The networks' own books: what they debited and credited, and what is in their floats.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::{choices::Choices, world::World};

/// Longest wait for the networks' answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What each float holds at first, in pesewas (RAILSIM_FLOAT).
const OPENING_MINOR: i64 = 100_000_000;

/// What is added to each in the end, in pesewas: some payees' networks pay nothing before that.
const FILLED_MINOR: i64 = 100_000;

const RAILS: [&str; 3] = ["momo", "paystack", "hubtel"];

/// A payment, as the networks see it.
#[derive(Debug, Deserialize)]
pub struct Debit {
    rail: String,
    reference: String,
    pub phone: String,
    pub status: String,
    /// How many times the wallet was debited.
    pub debits: u64,
    pub debited_minor: i64,
}

/// Money that went out, as the networks see it.
#[derive(Debug, Deserialize)]
pub struct Credit {
    pub rail: String,
    reference: String,
    pub status: String,
    /// How many times the account was credited.
    pub credits: u64,
    /// Without what was taken back.
    pub credited_minor: i64,
    /// Whether its network will still do something about it.
    pub may_change: bool,
}

#[derive(Deserialize)]
struct Float {
    rail: String,
    held_minor: i64,
}

/// By rail and reference, which is spelled as our records spell it.
pub type Pages<T> = HashMap<(String, String), T>;

pub struct Books {
    pub debits: Pages<Debit>,
    pub credits: Pages<Credit>,
    /// What left each rail's float, in pesewas.
    pub spent_minor: BTreeMap<String, i64>,
}

fn key(rail: &str, reference: &str) -> (String, String) {
    let id = Uuid::try_parse(reference);
    let spelled = id.map_or_else(|_| reference.to_owned(), |id| id.to_string());
    (rail.to_owned(), spelled)
}

/// The simulated networks, which outlive every kill.
pub struct Networks {
    url: String,
    client: reqwest::Client,
    /// What was added to each float, in pesewas.
    added_minor: [AtomicI64; 3],
}

impl Networks {
    pub fn new(url: String) -> anyhow::Result<Self> {
        Ok(Self {
            url,
            client: chassis::http::client(ANSWER_MAX)?,
            added_minor: Default::default(),
        })
    }

    pub async fn books(&self) -> anyhow::Result<Books> {
        let debits: Vec<Debit> = self.read("book").await?;
        let credits: Vec<Credit> = self.read("credits").await?;
        let floats: Vec<Float> = self.read("float").await?;
        let by_debit = |debit: Debit| (key(&debit.rail, &debit.reference), debit);
        let by_credit = |credit: Credit| (key(&credit.rail, &credit.reference), credit);
        let spent = floats.into_iter().map(|float| {
            let added = RAILS.iter().zip(&self.added_minor);
            let added: i64 = added
                .filter(|(rail, _)| **rail == float.rail)
                .map(|(_, added)| added.load(Ordering::SeqCst))
                .sum();
            (float.rail, OPENING_MINOR + added - float.held_minor)
        });
        Ok(Books {
            debits: debits.into_iter().map(by_debit).collect(),
            credits: credits.into_iter().map(by_credit).collect(),
            spent_minor: spent.collect(),
        })
    }

    async fn read<T: DeserializeOwned>(&self, page: &str) -> anyhow::Result<T> {
        let answer = self.client.get(format!("{}/{page}", self.url)).send();
        Ok(answer.await?.error_for_status()?.json().await?)
    }

    /// Empties one float or another for a moment, until the storm calms down. Then fills all.
    pub async fn drain_floats(&self, world: &World) -> anyhow::Result<()> {
        let mut choices = Choices::of(world.seed, "floats");
        while !world.calm.has_begun() {
            let rail = choices.weighted(&[(1, 0), (1, 1), (1, 2)]);
            let emptied = self.empty(rail).await?;
            sleep(Duration::from_millis(choices.between(200, 1_500))).await;
            self.add(rail, emptied).await?;
            sleep(Duration::from_millis(choices.between(1_000, 4_000))).await;
        }
        for rail in 0..RAILS.len() {
            self.add(rail, FILLED_MINOR).await?;
        }
        Ok(())
    }

    /// Takes all that a float holds. Returns how much that was.
    async fn empty(&self, rail: usize) -> anyhow::Result<i64> {
        let floats: Vec<Float> = self.read("float").await?;
        let mut held = floats
            .iter()
            .filter(|float| Some(&&*float.rail) == RAILS.get(rail));
        let held = held.next().map_or(0, |float| float.held_minor);
        self.add(rail, -held).await?;
        Ok(held)
    }

    async fn add(&self, rail: usize, amount_minor: i64) -> anyhow::Result<()> {
        let (Some(name), Some(added)) = (RAILS.get(rail), self.added_minor.get(rail)) else {
            return Ok(());
        };
        if amount_minor == 0 {
            return Ok(());
        }
        let body = json!({"rail": name, "amount_minor": amount_minor});
        let call = self.client.post(format!("{}/float", self.url)).json(&body);
        call.send().await?.error_for_status()?;
        added.fetch_add(amount_minor, Ordering::SeqCst);
        Ok(())
    }
}
