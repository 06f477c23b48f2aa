//! `payctl listen`: brings a merchant's events to a machine that webhooks cannot reach, such as a
//! developer's behind a router.
//!
//! It pulls the feed and forwards one event after another, in their order. Its place is the last
//! event that it has done with, and it checks that the next number follows, so it skips none. An API
//! that is away or wants fewer requests, and a receiver that is not there, are waited for.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use chassis::{ids::DeliveryId, shutdown::Shutdown};
use clap::Args;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    forward::{Attempt, Forwarder, new_secret},
    merchant_api::{MerchantApi, Unanswered},
    services::{Failure, Services, SigningSecret},
};

/// How long the API may wait for the next event.
const WAIT_SECONDS: u32 = 20;

/// Longest wait for an answer of the API.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// An answer without events that comes sooner is not asked for again at once: too many wait.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Pauses grow from the first to the last of these.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Pause before a receiver that is not there is tried again.
const RECEIVER_PAUSE: Duration = Duration::from_secs(1);

/// Most attempts of an event whose receiver answers, but not with 2xx. The next event may fare better.
const REFUSALS_MAX: u32 = 3;

#[derive(Debug, Args)]
pub struct Listen {
    /// Where to send the events, for example http://localhost:9000/webhooks.
    #[arg(long)]
    forward_to: Url,

    /// Begins after the event with this sequence; 0 for the first. Without it, with the next event
    /// that happens.
    #[arg(long)]
    after: Option<u64>,

    #[command(flatten)]
    signing: SigningSecret,
}

/// A part of the feed, as the API lists it.
#[derive(Deserialize)]
struct EventsPage {
    data: Vec<NumberedEvent>,
    last_sequence: u64,
}

#[derive(Deserialize)]
struct NumberedEvent {
    sequence: u64,
    /// The exact bytes of its webhooks.
    event: Box<RawValue>,
}

/// What is shown of an event.
#[derive(Deserialize)]
struct EventHead {
    id: String,
    r#type: String,
}

struct Listener {
    api: MerchantApi,
    forwarder: Forwarder,
    /// The number of the last event that is done with.
    place: u64,
}

/// Runs until it is stopped. Returns its place.
pub async fn run(services: &Services, listen: Listen) -> Result<Value, Failure> {
    let shutdown = Shutdown::on_signals();
    let api = services.merchant_api(ANSWER_MAX)?;
    let given = listen.signing.given()?;
    let to = listen.forward_to;
    let place = match listen.after {
        Some(after) => after,
        None => tokio::select! {
            newest = pull(&api, "/api/v1/events?limit=1") => newest?.last_sequence,
            () = shutdown.wait() => return Ok(Value::Null),
        },
    };
    say(format_args!("Events after {place} go to {to}, signed with"))?;
    let secret = match given {
        Some(given) => {
            say("the secret that was given")?;
            given
        }
        None => {
            let made = new_secret();
            say(made.expose_secret())?;
            made
        }
    };
    let mut listener = Listener {
        api,
        forwarder: Forwarder::new(to, secret)?,
        place,
    };
    let ended = tokio::select! {
        ended = listener.forward() => ended,
        () = shutdown.wait() => Ok(()),
    };
    let place = listener.place;
    ended.with_context(|| format!("listening ended; go on with --after {place}"))?;
    Ok(json!({ "after": place }))
}

impl Listener {
    /// Forwards events for as long as nothing fails that waiting does not mend.
    async fn forward(&mut self) -> Result<(), Failure> {
        loop {
            let asked = Instant::now();
            let path = format!("/api/v1/events?after={}&wait={WAIT_SECONDS}", self.place);
            let page = pull(&self.api, &path).await?;
            let (place, newest) = (self.place, page.last_sequence);
            // Numbers go back only with a backup that is restored: what it waits for may not come.
            ensure!(
                newest >= place,
                "the newest event is {newest}, and {place} is after it"
            );
            if page.data.is_empty() && asked.elapsed() < WAIT_MIN {
                tokio::time::sleep(PAUSE_MIN).await;
            }
            for numbered in page.data {
                let (place, sequence) = (self.place, numbered.sequence);
                ensure!(
                    sequence == place + 1,
                    "{sequence} follows {place}, so events are missing"
                );
                self.deliver(&numbered).await?;
                self.place = sequence;
            }
        }
    }

    /// Makes attempts until the receiver has taken the event, or has refused it too often.
    async fn deliver(&self, numbered: &NumberedEvent) -> Result<(), Failure> {
        let body = numbered.event.get();
        let event: EventHead = serde_json::from_str(body).context("an event cannot be read")?;
        let delivery_id = DeliveryId::new();
        let mut refusals = 0;
        for number in 1.. {
            let attempt = self.forwarder.send(&event.id, &delivery_id, number, body);
            let attempt = attempt.await;
            let (sequence, kind, id) = (numbered.sequence, &event.r#type, &event.id);
            say(format_args!(
                "{sequence} {kind} {id} attempt {number}: {attempt}"
            ))?;
            if attempt.is_success() {
                break;
            }
            if !matches!(attempt, Attempt::Unreachable(_)) {
                refusals += 1;
            }
            if refusals == REFUSALS_MAX {
                say(format_args!(
                    "{sequence} {kind} {id} given up; the next event follows"
                ))?;
                break;
            }
            tokio::time::sleep(RECEIVER_PAUSE).await;
        }
        Ok(())
    }
}

/// Asks until there is an answer, or it is clear that there will be none.
async fn pull(api: &MerchantApi, path: &str) -> Result<EventsPage, Failure> {
    let mut pause = PAUSE_MIN;
    loop {
        let Unanswered { why, again_after } = match api.get(path).await {
            Ok(page) => return Ok(page),
            Err(unanswered) => unanswered,
        };
        let Some(again_after) = again_after else {
            return Err(why);
        };
        let wait = again_after.max(pause);
        eprintln!("payctl: {why:#}; trying again in {} s", wait.as_secs());
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Prints a line at once, for whoever watches.
fn say(line: impl Display) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").context("nobody reads what is printed")
}
