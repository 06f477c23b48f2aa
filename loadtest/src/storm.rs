//! A storm: many clients move the money of a few merchants, with payouts and refunds that fail, are
//! lost or taken back, while processes are killed. In the end, every promise is held against the
//! records and the networks' own books.

mod books;
mod choices;
mod clients;
mod events;
mod feed;
mod kills;
mod operator;
mod report;
mod store;
mod verdict;
mod wallets;
mod world;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use chassis::{grpc::Channel, shutdown::Shutdown};
use proto::webhooks::merchant_events_client::MerchantEventsClient;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use uuid::Uuid;

use crate::{
    config::StormTarget,
    grpc,
    processes::{Ground, Processes, Service},
    shop,
};
use books::{Books, Networks};
use feed::{Endpoint, Seen};
use kills::Kills;
pub use report::Report;
use store::{Records, Store};
pub use verdict::Verdict;
use world::World;

/// How often it is looked how far everything is.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What a network tells only once is told again after this long, if nobody has heard it.
const TOLD_AGAIN_EVERY: Duration = Duration::from_secs(10);

/// When a rail is asked, in seconds: in production it is every five minutes in the end.
const RECONCILE_SECONDS: [u32; 21] = [
    1, 2, 4, 8, 11, 14, 17, 20, 25, 30, 35, 40, 50, 60, 75, 90, 120, 150, 200, 250, 300,
];

/// Runs a storm, and returns what it found.
pub async fn run(target: &StormTarget) -> anyhow::Result<Report> {
    let mut ground = target.place.ground()?;
    ensure!(
        ground.elsewhere.is_empty(),
        "a storm kills only what it has started"
    );
    ground.flags = flags();
    let processes = Processes::start(&ground, &Service::ALL).await?;
    let work = async |processes: &mut Processes| {
        let report = storm(target, &ground, processes).await;
        if target.keep {
            let folder = processes.keep();
            eprintln!("logs and databases are kept: {}", folder.display());
        }
        report
    };
    let stop = async |processes: Processes| processes.stop().await;
    ground.during(processes, work, stop).await
}

/// Shorter times than in production, so that everything ends soon.
fn flags() -> Vec<(Service, String)> {
    let reconcile = RECONCILE_SECONDS.map(|seconds| format!("{seconds}s"));
    let charges = [
        format!("--reconcile-schedule={}", reconcile.join(",")),
        "--approval-window=5s".to_owned(),
        "--disbursement-resend-after=10s".to_owned(),
        "--payout-account-hold=0s".to_owned(),
        "--payout-fee-momo=0.30".to_owned(),
        "--payout-fee-paystack-wallet=1.00".to_owned(),
        "--payout-fee-hubtel=0.50".to_owned(),
        "--rail-at=hubtel".to_owned(),
        "--lease=15s".to_owned(),
    ];
    let webhooks = [
        "--webhook-retry-schedule=1s,2s,4s,8s,15s,30s".to_owned(),
        "--lease=15s".to_owned(),
    ];
    let networks = [
        "--prompt-timeout=3s".to_owned(),
        "--approve-delay=100ms".to_owned(),
    ];
    let of = |service| move |flag| (service, flag);
    let charges = charges.into_iter().map(of(Service::Charges));
    let webhooks = webhooks.into_iter().map(of(Service::Webhooks));
    let networks = networks.into_iter().map(of(Service::Railsim));
    charges.chain(webhooks).chain(networks).collect()
}

/// What is looked at from outside.
struct Sight {
    charges_url: String,
    store: Store,
    networks: Networks,
    feed: MerchantEventsClient<Channel>,
    endpoint: Endpoint,
}

async fn storm(
    target: &StormTarget,
    ground: &Ground,
    processes: &mut Processes,
) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let merchants_url = processes.operators_url(Service::Merchants)?;
    let shops = shop::open(&merchants_url, target.merchants).await?;
    // Whoever waits for an answer when the storm calms down gets it once nothing is killed.
    let deadline = begun + target.within * 2;
    let world = World::new(target.seed, shops, &processes.gateway_urls(), deadline)?;
    let world = Arc::new(world);
    let sight = sight(target, processes, &world).await?;
    operator::prepare(&sight.charges_url, &world).await?;

    let mut clients = JoinSet::new();
    for number in 0..target.clients {
        clients.spawn(clients::run(Arc::clone(&world), number));
    }
    let mut readers = JoinSet::new();
    let readers_end = Shutdown::new();
    for place in 0..world.merchants.len() {
        let following = feed::follow(Arc::clone(&world), place, readers_end.clone());
        readers.spawn(async move { (place, following.await) });
    }
    let (kills, ..) = tokio::try_join!(
        kills::until_calm(processes, &world, target.kill_every),
        until_enough(&sight.store, &world, target),
        operator::change_accounts(&sight.charges_url, &world),
        sight.networks.drain_floats(&world),
    )?;
    while clients.join_next().await.transpose()?.is_some() {}
    let storm = begun.elapsed();

    let mut found = until_ended(&sight, &world, ground, target).await?;
    readers_end.begin();
    check_events(&mut found, &sight, &world, readers).await?;
    let end = End {
        kills,
        storm,
        calm: begun.elapsed() - storm,
        found,
    };
    reported(target, &sight, &world, end).await
}

async fn sight(
    target: &StormTarget,
    processes: &Processes,
    world: &World,
) -> anyhow::Result<Sight> {
    let store = Store::open(
        &processes.database_url(Service::Charges),
        &processes.database_url(Service::Sessions),
        &processes.database_url(Service::Webhooks),
    )
    .await?;
    store.watch_balances().await?;
    let endpoint = Endpoint::start(target.seed).await?;
    endpoint
        .set(&processes.operators_url(Service::Webhooks)?, world)
        .await?;
    Ok(Sight {
        charges_url: processes.operators_url(Service::Charges)?,
        store,
        networks: Networks::new(processes.url(Service::Railsim))?,
        feed: MerchantEventsClient::new(grpc::connect(&processes.url(Service::Webhooks))?),
        endpoint,
    })
}

/// Calms the storm down once the ledger holds as many movements as are wanted, or time is up.
async fn until_enough(store: &Store, world: &World, target: &StormTarget) -> anyhow::Result<()> {
    let end = Instant::now() + target.within;
    while store.movements().await? < target.movements && Instant::now() < end {
        sleep(LOOK_AGAIN).await;
    }
    world.calm.begin();
    Ok(())
}

/// Waits until everything has ended and is told, or time is up.
async fn until_ended(
    sight: &Sight,
    world: &World,
    ground: &Ground,
    target: &StormTarget,
) -> anyhow::Result<Found> {
    let end = Instant::now() + target.within;
    let mut given_up = BTreeSet::new();
    let mut told_at = Instant::now();
    loop {
        ensure!(!ground.shutdown.has_begun(), "stopped by a signal");
        // The books first: what they hold must be in the records by then, or soon.
        let books = sight.networks.books().await?;
        let records = sight.store.records().await?;
        let mut verdict = Verdict::on_money(&records, &books, &world.told());
        if records.untold > 0 {
            let what = format!("{} ends are not told yet", records.untold);
            verdict.unfinished.insert(what);
        }
        if verdict.unfinished.is_empty() || Instant::now() > end {
            return Ok(Found {
                verdict,
                records,
                books,
                given_up: given_up.len(),
            });
        }
        if told_at.elapsed() > TOLD_AGAIN_EVERY {
            told_at = Instant::now();
            tell_again(&records, &verdict.unheard, world).await?;
            operator::give_up(&sight.charges_url, &records, &books, &mut given_up).await?;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// MTN and Hubtel call back once, and perhaps nobody was there: then it is told by the look after an
/// hour. An operator does not wait for that, but calls the same address, which anybody may.
async fn tell_again(
    records: &Records,
    unheard: &BTreeSet<Uuid>,
    world: &World,
) -> anyhow::Result<()> {
    let charges = records.charges.iter();
    let charges = charges.map(|one| (one.transaction_id, &one.rail, &one.callback_token));
    let paid = records.disbursements.iter();
    let paid = paid.map(|one| (one.disbursement_id, &one.rail, &one.callback_token));
    for (_, rail, token) in charges.chain(paid).filter(|(id, ..)| unheard.contains(id)) {
        if rail != "paystack" {
            world.call_back(rail, token).await?;
        }
    }
    Ok(())
}

/// Reads every feed anew, and lets those who followed it read to its end.
async fn check_events(
    found: &mut Found,
    sight: &Sight,
    world: &World,
    mut readers: JoinSet<(usize, anyhow::Result<Seen>)>,
) -> anyhow::Result<()> {
    const READING_MAX: Duration = Duration::from_secs(60);
    let mut followed: Vec<Seen> = Vec::new();
    followed.resize_with(world.merchants.len(), Seen::default);
    let reading = async {
        while let Some(read) = readers.join_next().await {
            let (place, seen) = read?;
            *followed.get_mut(place).context("a reader of nobody")? = seen?;
        }
        anyhow::Ok(())
    };
    let read = timeout(READING_MAX, reading).await;
    read.context("a reader of the feed does not come to its end")??;
    let mut listed = Vec::new();
    let mut feed = sight.feed.clone();
    for merchant in &world.merchants {
        listed.push(feed::read(&mut feed, &merchant.merchant_id).await?);
    }
    let stored = sight.store.events().await?;
    events::check(
        &mut found.verdict,
        &found.records,
        &listed,
        &followed,
        stored,
    );
    Ok(())
}

/// What there is when all has ended, or nobody waits any more.
struct Found {
    verdict: Verdict,
    records: Records,
    books: Books,
    /// How many disbursements the operator ended.
    given_up: usize,
}

struct End {
    kills: Kills,
    storm: Duration,
    calm: Duration,
    found: Found,
}

async fn reported(
    target: &StormTarget,
    sight: &Sight,
    world: &World,
    end: End,
) -> anyhow::Result<Report> {
    let (debits, credits) = report::touched(&end.found.books);
    let (accepted_webhooks, refused_webhooks) = sight.endpoint.counts();
    let events = sight.store.events().await?;
    let movements = sight.store.movements().await?;
    let told = world.told();
    Ok(Report {
        seed: target.seed,
        store: match target.place.database_url {
            Some(_) => "PostgreSQL",
            None => "SQLite",
        },
        replicas: target.place.ground()?.host.replicas,
        clients: target.clients,
        merchants: target.merchants,
        movements,
        storm_seconds: end.storm.as_secs(),
        calm_seconds: end.calm.as_secs(),
        kills: end.kills,
        answers: told.answers.clone(),
        lost_answers: told.lost_answers,
        ended: report::ended(&end.found.records),
        given_up: end.found.given_up,
        posted: report::posted(&end.found.records),
        debits,
        credits,
        events,
        accepted_webhooks,
        refused_webhooks,
        verdict: end.found.verdict,
    })
}
