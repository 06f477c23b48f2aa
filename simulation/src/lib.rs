//! Searches for histories that break the three promises: seeded runs of the real services in one
//! process, against rails that answer anything they may, networks that lose and delay, clocks that
//! disagree, and replicas that die anywhere.
//!
//! A run ([`run`]) starts a [`world`], lets the [`actors`] act for six days of its own time, and
//! checks what is left against the promises ([`checker`]). Every choice is a pure function of the
//! seed ([`choice`]); the interleaving of threads and databases is not.

pub mod actors;
pub mod checker;
pub mod choice;
pub mod driver;
pub mod faults;
pub mod history;
pub mod line;
pub mod link;
pub mod postgres_link;
pub mod rails;
pub mod receiver;
pub mod records;
pub mod replica;
pub mod routes;
pub mod service;
pub mod store;
pub mod time;
pub mod world;

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use anyhow::{Context as _, bail};
use futures::future::join_all;

use crate::{
    actors::{Stage, chaos, disburse, merchant, operator, payer, treasury},
    checker::{Evidence, Violation},
    choice::Choices,
    history::HistoryRecord,
    records::Records,
    time::{HOUR, Millis},
    world::World,
};

/// Faults stop here. By then rails have reported everything (late money: 96 h).
const CALM: Millis = 100 * HOUR;

/// By now everything has ended: a day of asking about unknown outcomes, 35 hours of retries.
const END: Millis = 140 * HOUR;

/// The outcome of a seed.
#[derive(Debug)]
pub struct SeedReport {
    pub seed: u64,
    pub violations: Vec<Violation>,
    pub charges: usize,
    pub settled: usize,
    pub debits: usize,
    pub disbursements: usize,
    pub credits: usize,
    pub events: usize,
    /// Charges and disbursements over each rail.
    pub by_rail: BTreeMap<String, (usize, usize)>,
    /// How many steps time took.
    pub steps: u64,
    pub history: HistoryRecord,
}

type Actor = Pin<Box<dyn Future<Output = ()>>>;

/// Runs one seed. `server` is a PostgreSQL server, which several replicas of a service share;
/// without it, one replica of each service runs on SQLite.
///
/// # Errors
/// The world cannot be set up, or a service ended by itself.
///
/// # Panics
/// Outside a tokio runtime of one thread.
pub async fn run(seed: u64, server: Option<&str>) -> anyhow::Result<SeedReport> {
    let world = Arc::new(World::start(seed, server).await.context("no world")?);
    let days = async {
        let stage = Stage::set(Arc::clone(&world))
            .await
            .context("no merchants")?;
        join_all(cast(&stage)).await;
        world.time.sleep_until(CALM).await;
        world.rails.calm();
        world.receiver.calm();
        world.time.sleep_until(END).await;
        anyhow::Ok(stage)
    };
    let stage = tokio::select! {
        stage = days => stage?,
        // From the start: where the machine is busy, a replica may fail before any fault is made.
        () = chaos::mend(&world) => bail!("nobody restarts what ends"),
    };
    // So that the books and the records are of the same moment.
    let steps = world.stop_time();
    let evidence = Evidence {
        time: world.time.clone(),
        history: stage.history.record(),
        book: world.rails.book(),
        transfers: world.rails.transfers(),
        received: world.receiver.log(),
        records: Records::read(&world.store).await.context("no records")?,
        merchants: stage.merchants.to_vec(),
    };
    drop(stage);
    let world = Arc::into_inner(world).context("the world is still used")?;
    world.stop().await?;
    let charges = &evidence.records.charges;
    Ok(SeedReport {
        seed,
        violations: checker::check(&evidence),
        charges: charges.len(),
        settled: charges
            .iter()
            .filter(|charge| charge.state == "SETTLED")
            .count(),
        debits: evidence
            .book
            .iter()
            .map(|payment| payment.debits.len())
            .sum(),
        disbursements: evidence.records.disbursements.len(),
        credits: evidence
            .transfers
            .iter()
            .map(|transfer| transfer.credits.len())
            .sum(),
        events: evidence.records.events.len(),
        by_rail: by_rail(&evidence.records),
        steps,
        history: evidence.history,
    })
}

fn by_rail(records: &Records) -> BTreeMap<String, (usize, usize)> {
    let mut by_rail: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for charge in &records.charges {
        by_rail.entry(charge.rail.clone()).or_default().0 += 1;
    }
    for disbursement in &records.disbursements {
        by_rail.entry(disbursement.rail.clone()).or_default().1 += 1;
    }
    by_rail
}

/// Everybody who acts in a world.
fn cast(stage: &Stage) -> Vec<Actor> {
    let mut choices = Choices::of(stage.world.seed, "cast");
    let (orders, links) = (choices.between(4, 11), choices.between(1, 4));
    let mut actors: Vec<Actor> = Vec::new();
    for number in 0..orders {
        actors.push(Box::pin(merchant::charge(stage.clone(), number)));
    }
    for number in 0..links {
        actors.push(Box::pin(payer::pay_link(stage.clone(), 100 + number)));
    }
    for number in 0..choices.between(1, 4) {
        actors.push(Box::pin(disburse::pay_out(stage.clone(), number)));
    }
    for number in 0..choices.between(2, 6) {
        actors.push(Box::pin(disburse::refund(stage.clone(), number)));
    }
    actors.push(Box::pin(treasury::fill_later(stage.clone())));
    actors.push(Box::pin(treasury::change_account(stage.clone())));
    actors.push(Box::pin(chaos::rage(stage.clone())));
    actors.push(Box::pin(operator::decide(stage.clone())));
    actors
}
