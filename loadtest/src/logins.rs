//! A flood of logins at the dashboard: what the API's clients feel of it.
//!
//! Each login names an address that nobody has. Its password is hashed all the same, so that nobody
//! learns by the time whose addresses are known, and hashing takes as much as anything here.
//!
//! The load tester and its connections take the same cores. How much of what is felt is theirs shows
//! beside a flood as large of a page that does not exist.

use std::{fmt, sync::Arc, thread};

use ::http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{CONNECTION, CONTENT_TYPE},
};
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::{
    api::Api,
    bench::Bench,
    config::LoginsTarget,
    engine::{Load, measure},
    gateway::Reads,
    http::Client,
    payers::Kind,
    plan::{Code, Outcome, Pace, Plan},
    processes::{Service, free_ports},
    report::Report,
    rounds::Spread,
    shop,
    thousandths::Thousandths,
    usage::Meter,
    work::Work,
};

/// How nice the flood is: it stands for what comes from other machines.
const NICENESS: i32 = 19;

/// What was found: the API's p99, in milliseconds, and what became of the logins.
#[derive(Debug, Serialize)]
pub struct Logins {
    pub quiet: Spread,
    pub beside_misses: Spread,
    pub beside_logins: Spread,
    /// How many times the quiet p99 the one beside logins is, of the medians.
    pub ratio: Thousandths,
    /// API requests that failed.
    pub failed: u64,
    pub rounds: Vec<Round>,
}

#[derive(Debug, Serialize)]
pub struct Round {
    pub quiet: Report,
    pub beside_misses: Report,
    pub misses: Report,
    pub beside_logins: Report,
    pub logins: Report,
}

pub async fn run(target: &LoginsTarget) -> anyhow::Result<Logins> {
    let [port] = free_ports()?;
    let mut ground = target.place.ground()?;
    ground.flags = [
        format!("--dashboard-listen=127.0.0.1:{port}"),
        // They all come from one.
        "--dashboard-tries-per-address=0".to_owned(),
    ]
    .map(|flag| (Service::Gateway, flag))
    .into();
    let dashboard = format!("http://127.0.0.1:{port}");
    Bench::on(&ground, &Service::ALL, async |bench| {
        let merchants_url = bench.processes.operators_url(Service::Merchants)?;
        let shops = shop::open(&merchants_url, target.merchants).await?;
        let api = Api::new(&bench.processes.gateway_urls(), shops, Kind::None)?;
        let reads = Arc::new(Reads::prepare(api, Work::Status).await?);
        let mut rounds = Vec::new();
        for _ in 0..target.rounds {
            let plan = |name: &str, rate| Plan {
                name: name.to_owned(),
                pace: Pace::Rate(rate),
                warm_up: target.warm_up,
                duration: target.duration,
            };
            let read =
                async |name| measure(reads.clone(), &plan(name, target.rate), &bench.meter).await;
            let quiet = read("API, quiet").await?;
            let beside = async |flood, name, api| {
                let flooded = start(flood, dashboard.clone(), plan(name, target.logins))?;
                let api = read(api).await?;
                let flooded = flooded.await.context("the flood ended early")??;
                anyhow::Ok((api, flooded))
            };
            let (beside_misses, misses) =
                beside(Flood::Misses, "misses", "API, beside misses").await?;
            let (beside_logins, logins) =
                beside(Flood::Logins, "logins", "API, beside logins").await?;
            eprint!("{quiet}{beside_misses}{misses}{beside_logins}{logins}");
            let round = Round {
                quiet,
                beside_misses,
                misses,
                beside_logins,
                logins,
            };
            rounds.push(round);
        }
        Ok(Logins::of(rounds))
    })
    .await
}

/// Floods from a thread of its own, so that what is measured does not wait for it.
fn start(
    flood: Flood,
    dashboard: String,
    plan: Plan,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Report>>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::spawn(move || {
        let flooding = async {
            rustix::process::nice(NICENESS)?;
            let flooding = Flooding {
                flood,
                dashboard: Client::new(&dashboard)?,
            };
            let meter = Meter::new(Vec::new())?;
            measure(Arc::new(flooding), &plan, &meter).await
        };
        // Nobody waits for it if the measurement failed.
        drop(ended.send(runtime.block_on(flooding)));
    });
    Ok(end)
}

/// What the dashboard is flooded with.
#[derive(Clone, Copy)]
enum Flood {
    /// A page that does not exist.
    Misses,
    /// Wrong passwords, each for another address that nobody has.
    Logins,
}

impl Flood {
    fn request(self, n: u64) -> Request<Full<Bytes>> {
        let (method, path, form) = match self {
            Self::Misses => (Method::GET, "/nothing", String::new()),
            Self::Logins => (
                Method::POST,
                "/login",
                format!("email=nobody-{n}%40example.com&password=not+the+right+one"),
            ),
        };
        let mut request = Request::new(Full::new(form.into()));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_static(path);
        let headers = request.headers_mut();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
        // Whoever floods does not keep to one connection.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        request
    }

    fn answer(self) -> StatusCode {
        match self {
            Self::Misses => StatusCode::NOT_FOUND,
            Self::Logins => StatusCode::UNAUTHORIZED,
        }
    }
}

struct Flooding {
    flood: Flood,
    dashboard: Client,
}

impl Load for Flooding {
    async fn request(&self, n: u64) -> Outcome {
        let answer = self.dashboard.send(self.flood.request(n)).await?;
        if answer.status == self.flood.answer() {
            Ok(())
        } else {
            Err(Code::Owned(answer.status.as_u16().to_string()))
        }
    }
}

impl Logins {
    fn of(rounds: Vec<Round>) -> Self {
        let p99 = |of: fn(&Round) -> &Report| {
            let p99s = rounds.iter().map(|round| of(round).latency.p99);
            Spread::of(&p99s.collect::<Vec<_>>())
        };
        let quiet = p99(|round| &round.quiet);
        let beside_misses = p99(|round| &round.beside_misses);
        let beside_logins = p99(|round| &round.beside_logins);
        let failed = rounds
            .iter()
            .flat_map(|round| [&round.quiet, &round.beside_misses, &round.beside_logins])
            .map(Report::failed);
        Self {
            quiet,
            beside_misses,
            beside_logins,
            ratio: beside_logins.median.ratio(quiet.median),
            failed: failed.sum(),
            rounds,
        }
    }
}

impl fmt::Display for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            quiet,
            beside_misses,
            beside_logins,
            ratio,
            failed,
            ..
        } = self;
        writeln!(
            f,
            "API p99: {quiet} ms when quiet, {beside_misses} ms beside as many pages not found, \
             {beside_logins} ms beside logins: {ratio:.2} times"
        )?;
        writeln!(f, "{failed} requests failed")
    }
}
