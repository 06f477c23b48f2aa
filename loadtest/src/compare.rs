//! `loadtest compare`: our figures beside the bare paths', in the same minutes, against what
//! docs/performance.md asks for.

mod ready;
mod row;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::time::{Instant, sleep};

use crate::{
    api::Api,
    baseline::{Hops, MERCHANTS, limitador::Limitador, pgbench::Pgbench},
    bench::Bench,
    config::{Baseline, Compare, StatementsTarget},
    gateway::{Charges, Initiations, Reads, UnknownPaths},
    lives::Lives,
    payers::Kind,
    plan::{Pace, Plan},
    processes::{Ground, Service, ended},
    ratelimit::Checks,
    rounds::{Figures, Probe, Reports, Rounds},
    sessions::Creations,
    shop, statements,
    store::{Queues, Server},
    thousandths::Thousandths,
    webhooks::Deliveries,
    work::Work,
};
use row::{Asked, Row};

/// How many requests at once load everything.
const MANY: usize = 64;

/// How many whole lives at once: almost as many as charges-svc takes in hand.
const LIVES: usize = 250;

/// How many requests at once tell of latency.
const FEW: usize = 16;

/// Longest wait until all charges have ended.
const IDLE_MAX: Duration = Duration::from_secs(90);

const LOOK_AGAIN: Duration = Duration::from_millis(100);

const HEAD: &str = "\
| # | Work | Asked | Reached, median (min–max) | | Ours | Beside |
|---|---|---|---|---|---|---|";

/// Measures the rows and prints each as a line of a table as soon as it is known.
pub async fn run(compare: &Compare) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    println!("{HEAD}");
    for number in &compare.rows {
        let measured = compare.row(*number).await;
        for row in measured.with_context(|| format!("row {number}"))? {
            println!("{row}");
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Charges that were posted, beside the paths `d` and `f`.
#[derive(Default)]
struct Posted {
    rates: Figures,
    p50s: Figures,
    d: Figures,
    f: Figures,
}

impl Posted {
    fn extend(&mut self, [d, f, ours]: [Reports; 3]) {
        self.d.extend(d.rates());
        self.f.extend(f.rates());
        self.rates.extend(ours.rates());
        self.p50s.extend(ours.p50s());
    }

    fn rows(&self, work: &str) -> Vec<Row> {
        let rates = &self.rates;
        vec![
            Row::ratio(5, work, Asked::at_least(100), rates, ("f", &self.f)),
            Row::ratio(5, work, Asked::at_least(40), rates, ("d", &self.d)),
            Row::figure(5, "the same, p50 ms", Asked::at_most(4_000), &self.p50s),
        ]
    }
}

impl Compare {
    async fn row(&self, number: u8) -> anyhow::Result<Vec<Row>> {
        match number {
            1 => self.initiate().await,
            2 => self.latency().await,
            3 => self.reads().await,
            4 => self.sessions().await,
            5 => self.charges().await,
            6 => self.statements().await,
            7 => self.lives().await,
            8 => self.ratelimit().await,
            9 => self.webhooks().await,
            10 => self.gateway().await,
            13 => ready::rows(self).await,
            14 => ready::embedded(self).await,
            _ => bail!("no such row, or one of `soak` or `growth`"),
        }
    }

    fn rounds(&self) -> Rounds {
        Rounds {
            rounds: self.rounds,
            warm_up: self.warm_up,
            duration: self.duration,
        }
    }

    /// For rounds with something else in between.
    fn one_round(&self) -> Rounds {
        Rounds {
            rounds: 1,
            ..self.rounds()
        }
    }

    /// Starts bare paths and our services, and does the work.
    async fn beside<const N: usize>(
        &self,
        baselines: [Baseline; N],
        services: &[Service],
        work: impl AsyncFnOnce(&[Hops; N], &Bench) -> anyhow::Result<Vec<Row>>,
    ) -> anyhow::Result<Vec<Row>> {
        let ground = self.place.ground()?;
        Hops::during(baselines, &ground, async |hops| {
            Bench::on(&ground, services, async |bench| work(hops, bench).await).await
        })
        .await
    }

    async fn initiate(&self) -> anyhow::Result<Vec<Row>> {
        self.beside([Baseline::D], &Service::ALL, async |[d], bench| {
            let ours = async |name, payers| {
                let load = Initiations(api(bench, payers).await?);
                Probe::new(name, load, bench.processes.watched())
            };
            let none = ours("initiate", Kind::None).await?;
            let returning = ours("initiate, returning payers", Kind::Returning).await?;
            let new = ours("initiate, new payers", Kind::New).await?;
            let d = d.probe().await?;
            let probes = [&none, &returning, &new, &d];
            let [none, returning, new, d] = self.rounds().measure(MANY, probes).await?;
            let row = |work, asked, ours: &Reports| {
                Row::ratio(1, work, asked, &ours.rates(), ("d", &d.rates()))
            };
            Ok(vec![
                row("POST initiate, no payer", Asked::at_least(150), &none),
                row(
                    "the same, returning payers",
                    Asked::at_least(130),
                    &returning,
                ),
                row("the same, new payers", Asked::at_least(110), &new),
            ])
        })
        .await
    }

    async fn latency(&self) -> anyhow::Result<Vec<Row>> {
        self.beside([Baseline::B], &Service::ALL, async |[b], bench| {
            let load = Initiations(api(bench, Kind::None).await?);
            let ours = Probe::new("initiate", load, bench.processes.watched())?;
            let probes = [&ours, &b.probe().await?];
            let [ours, b] = self.rounds().measure(FEW, probes).await?;
            let (work, asked) = ("initiate, p99 ms at 16 in flight", Asked::at_most(160));
            Ok(vec![Row::ratio(
                2,
                work,
                asked,
                &ours.p99s(),
                ("b", &b.p99s()),
            )])
        })
        .await
    }

    async fn reads(&self) -> anyhow::Result<Vec<Row>> {
        self.beside([Baseline::E], &Service::ALL, async |[e], bench| {
            let ours = async |name, work| {
                let load = Reads::prepare(api(bench, Kind::None).await?, work).await?;
                Probe::new(name, load, bench.processes.watched())
            };
            let status = ours("GET status", Work::Status).await?;
            let charge = ours("GET charge", Work::ReadCharge).await?;
            until_idle(bench).await?;
            let probes = [&status, &charge, &e.probe().await?];
            let [status, charge, e] = self.rounds().measure(MANY, probes).await?;
            let row = |work, ours: &Reports| {
                let asked = Asked::at_least(100);
                Row::ratio(3, work, asked, &ours.rates(), ("e", &e.rates()))
            };
            Ok(vec![row("GET status", &status), row("GET charge", &charge)])
        })
        .await
    }

    async fn sessions(&self) -> anyhow::Result<Vec<Row>> {
        let server = self.place.database_url.as_deref();
        let server = Server::new(server.context("row 4 needs --database-url")?)?;
        let (path, services) = ([Baseline::Insert], [Service::Sessions]);
        Pgbench::during(server, async |pgbench| {
            self.beside(path, &services, async |[insert], bench| {
                let url = bench.processes.url(Service::Sessions);
                let load = Creations::batched(&url, MERCHANTS, Kind::None)?;
                let ours = Probe::new("sessions create", load, bench.processes.watched())?;
                let insert = insert.probe().await?;
                let [mut rates, mut inserts] = <[Figures; 2]>::default();
                let mut pgbenches = Vec::new();
                for _ in 0..self.rounds {
                    let [ours, insert] = self.one_round().measure(MANY, [&ours, &insert]).await?;
                    rates.extend(ours.rates());
                    inserts.extend(insert.rates());
                    pgbenches.extend(pgbench.inserts(FEW, self.duration).await?);
                }
                let (work, asked) = ("sessions-svc alone, create", Asked::at_least(100));
                let (name, beside) = match pgbenches.is_empty() {
                    true => ("tonic + INSERT, as there is no pgbench", inserts),
                    false => ("pgbench INSERT", Figures::from(pgbenches)),
                };
                Ok(vec![Row::ratio(4, work, asked, &rates, (name, &beside))])
            })
            .await
        })
        .await
    }

    async fn charges(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = self.charges_of_silent_payers().await?;
        rows.extend(self.charges_that_settle().await?);
        Ok(rows)
    }

    /// What `f` does is this and no more: while their payers are silent, charges leave nothing to
    /// settle. Each round has fresh services, which need not ask about the charges of the one before.
    async fn charges_of_silent_payers(&self) -> anyhow::Result<Vec<Row>> {
        let mut posted = Posted::default();
        for _ in 0..self.rounds {
            let round = async |[d, f]: &[Hops; 2], bench: &Bench| {
                let load = Charges(api(bench, Kind::Silent).await?);
                let ours = Probe::new("charge, silent payers", load, bench.processes.watched())?;
                let probes = [&d.probe().await?, &f.probe().await?, &ours];
                posted.extend(self.one_round().measure(MANY, probes).await?);
                Ok(Vec::new())
            };
            let paths = [Baseline::D, Baseline::F];
            self.beside(paths, &Service::ALL, round).await?;
        }
        Ok(posted.rows("POST charge to 202, silent payers"))
    }

    async fn charges_that_settle(&self) -> anyhow::Result<Vec<Row>> {
        self.beside(
            [Baseline::D, Baseline::F],
            &Service::ALL,
            async |[d, f], bench| {
                // The receiver runs until the end.
                let lives = Lives::start(&bench.processes, MERCHANTS, &self.receiver).await?;
                let Lives { api, receiver } = lives;
                let ours = Probe::new("charge", Charges(api), bench.processes.watched())?;
                let probes = [&d.probe().await?, &f.probe().await?, &ours];
                let mut posted = Posted::default();
                for _ in 0..self.rounds {
                    posted.extend(self.one_round().measure(MANY, probes).await?);
                    // What is left of these charges would slow down what is measured next.
                    until_idle(bench).await?;
                }
                ensure!(receiver.refused() == 0, "webhooks had a wrong signature");
                Ok(posted.rows("POST charge to 202, payers pay at once"))
            },
        )
        .await
    }

    /// Whole lives at their highest rate for a moment, and what would be left of it if a life were
    /// nothing but single statements. `loadtest soak` shows what is sustained.
    async fn lives(&self) -> anyhow::Result<Vec<Row>> {
        let paths = [Baseline::D, Baseline::I];
        self.beside(paths, &Service::ALL, async |[d, i], bench| {
            let lives = Lives::start(&bench.processes, MERCHANTS, &self.receiver).await?;
            let lives = Probe::new("whole lives", lives, bench.processes.watched())?;
            let (d, i) = (d.probe().await?, i.probe().await?);
            let [mut rates, mut d_rates, mut i_rates] = <[Figures; 3]>::default();
            for _ in 0..self.rounds {
                let [d, i] = self.one_round().measure(MANY, [&d, &i]).await?;
                d_rates.extend(d.rates());
                i_rates.extend(i.rates());
                let [ours] = self.one_round().measure(LIVES, [&lives]).await?;
                rates.extend(ours.rates());
                until_idle(bench).await?;
            }
            let (asked, d) = (Asked::at_least(20), ("d", &d_rates));
            Ok(vec![
                Row::ratio(7, "whole lives at 250 in flight", asked, &rates, d),
                Row::ratio(7, "bare path i", asked, &i_rates, d),
            ])
        })
        .await
    }

    async fn statements(&self) -> anyhow::Result<Vec<Row>> {
        let target = StatementsTarget {
            statements_max: u64::MAX,
            transactions_max: u64::MAX,
            receiver: self.receiver.clone(),
            place: self.place.clone(),
            output: self.output.clone(),
        };
        let alone = statements::run(&target).await?;
        let one = |figure: Thousandths| Figures::from(vec![figure]);
        self.beside([], &Service::ALL, async |[], bench| {
            let lives = Lives::start(&bench.processes, MERCHANTS, &self.receiver).await?;
            let lives = Probe::new("whole lives", lives, bench.processes.watched())?;
            let [lives] = self.rounds().measure(MANY, [&lives]).await?;
            let row = |work, asked: u64, figures: &Figures| {
                Row::figure(6, work, Asked::at_most(asked * 100), figures)
            };
            Ok(vec![
                row("statements of a charge alone", 36, &one(alone.statements)),
                row("its transactions that write", 11, &one(alone.transactions)),
                row(
                    "statements of a charge at 64 in flight",
                    10,
                    &lives.statements(),
                ),
            ])
        })
        .await
    }

    async fn ratelimit(&self) -> anyhow::Result<Vec<Row>> {
        let (path, services) = ([Baseline::Incr], [Service::Ratelimit]);
        self.beside(path, &services, async |[incr], bench| {
            let load = Checks::new(&bench.processes.url(Service::Ratelimit), MERCHANTS)?;
            let ours = Probe::new("ratelimit", load, bench.processes.watched())?;
            let incr = incr.probe().await?;
            let Some(limitador) = Limitador::start(&self.place.ground()?).await? else {
                let [ours, incr] = self.rounds().measure(MANY, [&ours, &incr]).await?;
                return Ok(vec![beside_incr(&ours, &incr)]);
            };
            let measured = async {
                let probes = [&ours, &incr, &limitador.probe()?];
                let [ours, incr, limitador] = self.rounds().measure(MANY, probes).await?;
                let row = |work, asked, ours: &Figures, beside: &Figures| {
                    Row::ratio(8, work, asked, ours, ("limitador", beside))
                };
                let (rates, p99s) = (Asked::at_least(220), Asked::at_most(60));
                Ok(vec![
                    beside_incr(&ours, &incr),
                    row("the same", rates, &ours.rates(), &limitador.rates()),
                    row("the same, p99 ms", p99s, &ours.p99s(), &limitador.p99s()),
                ])
            };
            let measured = measured.await;
            ended(measured, limitador.stop().await)
        })
        .await
    }

    async fn webhooks(&self) -> anyhow::Result<Vec<Row>> {
        self.beside([Baseline::H], &[Service::Webhooks], async |[h], bench| {
            let load = Deliveries::start(&bench.processes, MERCHANTS, &self.receiver).await?;
            let ours = Probe::new("webhooks", load, bench.processes.watched())?;
            let h = h.probe().await?;
            let [mut rates, mut beside, mut p50s] = <[Figures; 3]>::default();
            for _ in 0..self.rounds {
                let [ours_, h] = self.one_round().measure(MANY, [&ours, &h]).await?;
                rates.extend(ours_.rates());
                beside.extend(h.rates());
                let last = rates.rounds.last();
                let half = Plan {
                    name: "webhooks at half load".to_owned(),
                    pace: Pace::Rate(last.map_or(1, |rate| rate.0 / 2_000).max(1)),
                    warm_up: self.warm_up,
                    duration: self.duration,
                };
                p50s.extend(Reports(vec![ours.measure(half).await?]).p50s());
            }
            let work = "webhooks, published to received";
            Ok(vec![
                Row::ratio(9, work, Asked::at_least(60), &rates, ("h", &beside)),
                Row::figure(
                    9,
                    "the same, p50 ms at half load",
                    Asked::at_most(600),
                    &p50s,
                ),
            ])
        })
        .await
    }

    async fn gateway(&self) -> anyhow::Result<Vec<Row>> {
        let paths = [Baseline::A, Baseline::G];
        Hops::during(paths, &self.place.ground()?, async |[a, g]| {
            // The gateway calls the same services without I/O that g calls.
            let instead = |hop, flag| {
                let url = g.url_of(hop).context("g has both hops")?;
                anyhow::Ok((Service::Gateway, format!("--{flag}={url}")))
            };
            let ground = Ground {
                flags: vec![
                    instead("sessions", "sessions-url")?,
                    instead("limits", "ratelimit-url")?,
                ],
                ..self.place.ground()?
            };
            Bench::on(&ground, &Service::ALL, async |bench| {
                let ours = async |work| {
                    let api = api(bench, Kind::None).await?;
                    let watched = bench.processes.watched();
                    match work {
                        Work::UnknownPath => Probe::new("unknown path", UnknownPaths(api), watched),
                        _ => Probe::new("initiate without I/O", Initiations(api), watched),
                    }
                };
                let (unknown, initiate) =
                    (ours(Work::UnknownPath).await?, ours(Work::Initiate).await?);
                let probes = [&unknown, &initiate, &a.probe().await?, &g.probe().await?];
                let [unknown, initiate, a, g] = self.rounds().measure(MANY, probes).await?;
                let row = |work, asked, ours: &Reports, name, beside: &Reports| {
                    Row::ratio(10, work, asked, &ours.rates(), (name, &beside.rates()))
                };
                let work = "gateway: auth, limit, validation, without I/O behind";
                Ok(vec![
                    row(
                        "gateway: an unknown path",
                        Asked::at_least(70),
                        &unknown,
                        "a",
                        &a,
                    ),
                    row(work, Asked::at_least(80), &initiate, "g", &g),
                ])
            })
            .await
        })
        .await
    }
}

/// The limiter beside a limit that counts and does nothing else.
fn beside_incr(ours: &Reports, incr: &Reports) -> Row {
    let (work, asked) = ("ratelimit-svc on Redis", Asked::at_least(90));
    Row::ratio(
        8,
        work,
        asked,
        &ours.rates(),
        ("tonic + INCR", &incr.rates()),
    )
}

/// The merchants' API, with merchants of its own.
async fn api(bench: &Bench, payers: Kind) -> anyhow::Result<Api> {
    let shops = shop::open(
        &bench.processes.operators_url(Service::Merchants)?,
        MERCHANTS,
    )
    .await?;
    Api::new(&bench.processes.gateway_urls(), shops, payers)
}

/// Waits until every charge has ended and every event has been delivered.
async fn until_idle(bench: &Bench) -> anyhow::Result<()> {
    let url = |service| bench.processes.database_url(service);
    let (charges, sessions) = (url(Service::Charges), url(Service::Sessions));
    let queues = Queues::open(&charges, &sessions, &url(Service::Webhooks)).await?;
    let deadline = Instant::now() + IDLE_MAX;
    while queues.read().await?.iter().any(|(_, rows)| *rows > 0) {
        ensure!(
            Instant::now() < deadline,
            "charges are left after {IDLE_MAX:?}"
        );
        sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
