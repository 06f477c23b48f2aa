//! What `cargo run` tells on the terminal: one line for each thing that happened.
//!
//! It learns everything through the doors that others use: it asks the services' lists and the
//! mailbox every [`LOOK_EVERY`], one question at a time, so that it costs little however much
//! happens. Promise: each end of a payment, payout, refund and session since the start, each
//! attempt to deliver its webhook, and each session, key, merchant, case and mail that is new has
//! its line; nothing shows a whole number or a secret.

mod deliveries;
mod line;
mod merchant;
mod movement;

use std::{collections::HashMap, io::Write as _, sync::mpsc, thread, time::Duration};

use chassis::{
    clock::{Clock, Day, Timestamp},
    config::Tls,
    error_chain::chain,
    grpc, http,
};
use proto::{
    charges::{
        ListCasesRequest, charge_operations_client::ChargeOperationsClient,
        charges_client::ChargesClient, disbursements_client::DisbursementsClient,
    },
    merchants::{
        ListMerchantsRequest, Merchant, merchant_operations_client::MerchantOperationsClient,
    },
    sessions::sessions_client::SessionsClient,
    webhooks::merchant_events_client::MerchantEventsClient,
};
use serde::Deserialize;

use crate::ready::Ready;
use line::{Line, Tone};
use merchant::FollowedMerchant;

/// How often everything is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The services, as the story asks them.
struct Doors {
    clock: Clock,
    merchant_operations: MerchantOperationsClient<grpc::Channel>,
    sessions: SessionsClient<grpc::Channel>,
    charges: ChargesClient<grpc::Channel>,
    charge_operations: ChargeOperationsClient<grpc::Channel>,
    disbursements: DisbursementsClient<grpc::Channel>,
    events: MerchantEventsClient<grpc::Channel>,
    http: reqwest::Client,
    checkout: String,
    handset: String,
    mail: String,
}

impl Doors {
    fn connect(ready: &Ready, clock: Clock) -> anyhow::Result<Self> {
        let connect = |url: &str| grpc::connect(url, &Tls::default(), ANSWER_MAX);
        let grpc = &ready.grpc;
        let charges = connect(&grpc.charges)?;
        let merchant_operations = connect(&grpc.merchants_operators)?;
        let charge_operations = connect(&grpc.charges_operators)?;
        Ok(Self {
            clock,
            merchant_operations: MerchantOperationsClient::new(merchant_operations),
            sessions: SessionsClient::new(connect(&grpc.sessions)?),
            charges: ChargesClient::new(charges.clone()),
            charge_operations: ChargeOperationsClient::new(charge_operations),
            disbursements: DisbursementsClient::new(charges),
            events: MerchantEventsClient::new(connect(&grpc.webhooks)?),
            http: http::client(ANSWER_MAX)?,
            checkout: ready.checkout.clone(),
            handset: ready.handset.clone(),
            mail: ready.mail.clone(),
        })
    }

    /// A time as a service tells it.
    fn time(&self, told: &str) -> Timestamp {
        Timestamp::parse_rfc_3339(told).unwrap_or_else(|| self.clock.now())
    }
}

/// What has been told so far.
pub struct Story {
    doors: Doors,
    merchants: Vec<FollowedMerchant>,
    /// The reference that each open case is about.
    cases: HashMap<String, String>,
    /// The number of the newest mail.
    last_mail: u64,
}

/// A mail in the mailbox.
#[derive(Deserialize)]
struct Mail {
    number: u64,
    to: String,
    subject: String,
    at: String,
}

impl Story {
    /// Begins now: what happened before is not told.
    pub async fn begin(ready: &Ready, clock: Clock) -> anyhow::Result<Self> {
        let mut story = Self {
            doors: Doors::connect(ready, clock)?,
            merchants: Vec::new(),
            cases: HashMap::new(),
            last_mail: 0,
        };
        let mut before = Vec::new();
        story.find_merchants(&mut before).await?;
        for merchant in &mut story.merchants {
            merchant.skip_what_happened(&mut story.doors).await?;
        }
        story.find_cases(&mut before).await?;
        story.find_mails(&mut before).await?;
        Ok(story)
    }

    /// Tells what happens, until nobody reads it.
    pub async fn tell(mut self) {
        // A terminal that was stopped (Ctrl+S) holds up the printing, and nothing else.
        let (printer, to_print) = mpsc::channel();
        thread::spawn(move || print(&to_print));
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut lines = Vec::new();
            let looked = self.look(&mut lines).await;
            looked.unwrap_or_else(|error| failed(&error));
            // Stable: what is alike stays in the order in which it was found.
            lines.sort_by_key(|line| line.at);
            if lines.into_iter().any(|line| printer.send(line).is_err()) {
                return;
            }
        }
    }

    /// Finds what is new. What was found before an error is found once.
    async fn look(&mut self, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        self.find_merchants(lines).await?;
        self.find_cases(lines).await?;
        for merchant in &mut self.merchants {
            let looked = merchant.look(&mut self.doors, &self.cases, lines).await;
            // One merchant's trouble holds up no other's.
            looked.unwrap_or_else(|error| failed(&error));
        }
        self.find_mails(lines).await
    }

    async fn find_merchants(&mut self, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        let mut after = String::new();
        loop {
            let request = ListMerchantsRequest { after };
            let page = self.doors.merchant_operations.list_merchants(request);
            let page = page.await?.into_inner().merchants;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.merchant_id.clone();
            for merchant in page {
                self.hear_of_merchant(merchant, lines);
            }
        }
    }

    fn hear_of_merchant(&mut self, merchant: Merchant, lines: &mut Vec<Line>) {
        let mut known = self.merchants.iter_mut();
        if let Some(known) = known.find(|known| known.is(&merchant)) {
            lines.extend(known.hear_of(merchant, self.doors.clock.now()));
            return;
        }
        let made = Line::new(self.doors.time(&merchant.created_at))
            .with(Tone::Plain, format!("merchant \"{}\"", merchant.name))
            .with(Tone::Good, "CREATED");
        lines.push(made);
        self.merchants.push(FollowedMerchant::new(merchant));
    }

    async fn find_cases(&mut self, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        let listed = self.doors.charge_operations.list_cases(ListCasesRequest {});
        let mut open = HashMap::new();
        for case in listed.await?.into_inner().cases {
            let kind = case.kind().code().unwrap_or_default();
            if !self.cases.contains_key(&case.case_id) {
                let opened = Line::new(self.doors.time(&case.opened_at))
                    .with(Tone::Plain, &case.reference)
                    .with(Tone::Bad, format!("CASE {kind}"))
                    .with(Tone::Plain, "an operator decides");
                lines.push(opened);
            }
            open.insert(case.case_id, case.reference);
        }
        self.cases = open;
        Ok(())
    }

    async fn find_mails(&mut self, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        let url = format!("{}.json?after={}", self.doors.mail, self.last_mail);
        let answer = self.doors.http.get(url).send().await?.error_for_status()?;
        let newest_first: Vec<Mail> = answer.json().await?;
        for mail in newest_first.into_iter().rev() {
            self.last_mail = mail.number;
            let caught = Line::new(self.doors.time(&mail.at))
                .with(Tone::Plain, format!("mail to {}", mail.to))
                .with(Tone::Plain, format!("\"{}\"", mail.subject))
                .with(Tone::Plain, &self.doors.mail);
            lines.push(caught);
        }
        Ok(())
    }
}

/// It is looked again, so nothing is lost.
fn failed(error: &anyhow::Error) {
    tracing::debug!(error = %chain(error.as_ref()), "the story was not told to its end");
}

/// Prints lines, and a new day's date before its first, until there are no more, or nobody reads.
fn print(lines: &mpsc::Receiver<Line>) {
    let mut last_day = None;
    while let Ok(line) = lines.recv() {
        let day = Day::of(line.at);
        let date = match last_day.is_none_or(|last| last < day) {
            true => format!("{day} GMT\n"),
            false => String::new(),
        };
        if writeln!(anstream::stdout(), "{date}{line}").is_err() {
            return;
        }
        last_day = last_day.max(Some(day));
    }
}
