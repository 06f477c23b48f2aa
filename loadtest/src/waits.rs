//! Merchants who wait for charges with `?wait=`: what each costs, and how soon it is answered once its
//! charge has changed.
//!
//! The payers do nothing. Once all are waited for, operators end the charges one after the other at
//! a rate. An answer's latency is counted from the moment that the charge itself gives for its change,
//! which is shortly before the commit; both clocks are this machine's.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use chassis::clock::{Clock, Timestamp};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use proto::charges::{
    ResolveChargeRequest, charge_operations_client::ChargeOperationsClient,
    resolve_charge_request::Outcome,
};
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

use crate::{
    api::{Api, ShownCharge},
    bench::Bench,
    config::WaitsTarget,
    grpc::Channels,
    payers::Kind,
    processes::Service,
    shop,
    thousandths::Thousandths,
    usage::{Meter, Reading},
};

/// How many requests at once prepare and begin the waits.
const AT_ONCE: usize = 32;

/// How many charges are ended at once at most.
const ENDED_AT_ONCE: usize = 64;

/// Longest time until all charges are waited for, and until all waits are answered at last.
const WAIT_MAX: Duration = Duration::from_secs(300);

const LOOK_AGAIN: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
pub struct Waits {
    pub waits: u64,
    /// Bytes that a process takes more for each wait.
    pub bytes_each: Vec<(String, u64)>,
    /// SQL statements a second, before anybody waits and while all do.
    pub statements_before: Thousandths,
    pub statements: Thousandths,
    /// Waits answered a second, while charges end.
    pub answered: Thousandths,
    /// Milliseconds from a change to its answer: of the median, of 99 in a hundred, and the longest.
    pub p50_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

pub async fn run(target: &WaitsTarget) -> anyhow::Result<Waits> {
    let mut ground = target.place.ground()?;
    // Nobody asks the networks meanwhile: what is counted is what waiting costs.
    let never = "--reconcile-schedule=24h".to_owned();
    ground.flags.push((Service::Charges, never));
    Bench::on(&ground, &Service::ALL, async |bench| {
        let merchants = bench.processes.operators_url(Service::Merchants)?;
        let shops = shop::open(&merchants, target.merchants).await?;
        let api = Api::new(&bench.processes.gateway_urls(), shops, Kind::Silent)?;
        let charges = Channels::connect(&bench.processes.operators_url(Service::Charges)?)?;
        measure(target, Arc::new(api), &charges, &bench.meter).await
    })
    .await
}

async fn measure(
    target: &WaitsTarget,
    api: Arc<Api>,
    charges: &Channels,
    meter: &Meter,
) -> anyhow::Result<Waits> {
    let references = begin_charges(&api, target.waits).await?;
    let before = meter.read().await?;
    sleep(target.duration).await;
    let idle = meter.read().await?;
    let mut waiting = JoinSet::new();
    for (n, reference) in (0..).zip(&references) {
        let (api, reference) = (api.clone(), reference.clone());
        waiting.spawn(async move { wait_for_end(&api, n, &reference).await });
        // Each begins with a request, which has a place of its own.
        if usize::try_from(n).is_ok_and(|n| n % AT_ONCE == 0) {
            sleep(Duration::from_millis(20)).await;
        }
    }
    until_watched(meter, target.waits).await?;
    let began = meter.read().await?;
    sleep(target.duration).await;
    let waited = meter.read().await?;
    let ending = Instant::now();
    let answering = async {
        let mut latencies = Vec::new();
        while let Some(answered) = waiting.join_next().await {
            latencies.push(answered??);
        }
        Ok(latencies)
    };
    let both =
        async { tokio::try_join!(end_charges(charges, &references, target.rate), answering) };
    let ((), mut latencies) = timeout(WAIT_MAX, both).await??;
    let took = ending.elapsed();
    latencies.sort_unstable();
    let at = |hundredths: usize| {
        latencies.get((latencies.len() * hundredths / 100).min(latencies.len() - 1))
    };
    Ok(Waits {
        waits: target.waits,
        bytes_each: bytes_each(&idle, &waited, target.waits),
        statements_before: per_second(&before, &idle, target.duration),
        statements: per_second(&began, &waited, target.duration),
        answered: rate(target.waits, took),
        p50_ms: at(50).copied().unwrap_or_default(),
        p99_ms: at(99).copied().unwrap_or_default(),
        max_ms: latencies.last().copied().unwrap_or_default(),
    })
}

/// Charges that stay INITIATED, one for each wait.
async fn begin_charges(api: &Api, count: u64) -> anyhow::Result<Vec<String>> {
    let begun = stream::iter(0..count).map(async |n| {
        let charge = api.charge(n).await.map_err(|code| anyhow!("{code}"))?;
        charge.reference.context("a charge without reference")
    });
    begun.buffered(AT_ONCE).try_collect().await
}

/// Waits again and again until the charge has ended. Returns how long after that, in milliseconds,
/// the answer came.
async fn wait_for_end(api: &Api, n: u64, reference: &str) -> anyhow::Result<u64> {
    let path = format!("/api/v1/payments/charge/{reference}?wait=30");
    loop {
        let shown: ShownCharge = api
            .shown(n, &path)
            .await
            .map_err(|code| anyhow!("{code}"))?;
        if shown.status == "FAILED" {
            let changed_at: Timestamp = shown.updated_at.parse()?;
            let latency = Clock::system().host_now().since(changed_at);
            return Ok(u64::try_from(latency.as_millis())?);
        }
    }
}

/// Waits until charges-svc watches nearly all: a wait that is just beginning again is not watched.
async fn until_watched(meter: &Meter, waits: u64) -> anyhow::Result<()> {
    let watching = async {
        while meter.sum("charges_watched").await? < waits * 98 / 100 {
            sleep(LOOK_AGAIN).await;
        }
        anyhow::Ok(())
    };
    timeout(WAIT_MAX, watching)
        .await
        .context("the charges are not watched")?
}

/// Ends so many charges a second.
async fn end_charges(charges: &Channels, references: &[String], rate: u64) -> anyhow::Result<()> {
    let ticks = interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let numbered = (0_u64..).zip(references);
    let paced = stream::unfold((ticks, numbered), async |(mut ticks, mut left)| {
        ticks.tick().await;
        Some((left.next()?, (ticks, left)))
    });
    let ended = paced.map(async |(n, reference)| {
        let request = ResolveChargeRequest {
            reference: reference.clone(),
            evidence: "a measurement".to_owned(),
            outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
        };
        let mut operations = ChargeOperationsClient::new(charges.of(n));
        operations.resolve_charge(request).await.map(drop)
    });
    ended
        .buffer_unordered(ENDED_AT_ONCE)
        .try_for_each(async |()| Ok(()))
        .await?;
    Ok(())
}

fn bytes_each(before: &Reading, after: &Reading, waits: u64) -> Vec<(String, u64)> {
    let more = before.rss().zip(after.rss());
    let more = more.map(|((name, before), (_, after))| {
        let each = after.saturating_sub(before).checked_div(waits);
        (name.to_owned(), each.unwrap_or_default())
    });
    more.collect()
}

fn per_second(from: &Reading, to: &Reading, time: Duration) -> Thousandths {
    rate(from.until(to).statements.unwrap_or_default(), time)
}

fn rate(count: u64, time: Duration) -> Thousandths {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Thousandths::of(count * 1_000, milliseconds)
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waits,
            statements_before,
            statements,
            answered,
            p50_ms,
            p99_ms,
            max_ms,
            ..
        } = self;
        writeln!(f, "{waits} waits at once")?;
        for (process, bytes) in &self.bytes_each {
            writeln!(f, "  {process:<20} {bytes} bytes for each")?;
        }
        writeln!(
            f,
            "  statements a second: {statements:.1}, and {statements_before:.1} before"
        )?;
        writeln!(f, "  answered a second: {answered:.1}")?;
        writeln!(
            f,
            "  from a change to its answer: p50 {p50_ms} ms, p99 {p99_ms} ms, longest {max_ms} ms"
        )
    }
}
