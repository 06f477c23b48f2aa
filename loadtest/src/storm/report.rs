//! What a storm did and found: as a table and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{books::Books, kills::Kills, store::Records, verdict::Verdict};

#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub store: &'static str,
    pub replicas: u8,
    pub clients: u16,
    pub merchants: u16,
    /// Postings in the ledger, two lines each.
    pub movements: u64,
    /// Until the last client had its answer, and until all had ended after that.
    pub storm_seconds: u64,
    pub calm_seconds: u64,
    /// By service.
    pub kills: Kills,
    /// By what was asked and answered.
    pub answers: BTreeMap<String, u64>,
    /// Requests whose answer did not arrive, and which were repeated with their key.
    pub lost_answers: u64,
    /// Charges, payouts and refunds, by how they ended.
    pub ended: BTreeMap<String, u64>,
    /// Disbursements that no network ever took, and that the operator ended.
    pub given_up: usize,
    /// Movements, by kind.
    pub posted: BTreeMap<String, u64>,
    /// What the networks did.
    pub debits: u64,
    pub credits: u64,
    pub events: u64,
    /// Deliveries that the endpoint accepted, and that it did not.
    pub accepted_webhooks: u64,
    pub refused_webhooks: u64,
    pub verdict: Verdict,
}

/// How everything ended.
pub fn ended(records: &Records) -> BTreeMap<String, u64> {
    let mut ended = BTreeMap::new();
    for charge in &records.charges {
        *ended.entry(format!("charge {}", charge.state)).or_default() += 1;
    }
    for one in &records.disbursements {
        let mut what = format!("{} {}", one.kind.to_lowercase(), one.state);
        if one.reversed_at.is_some() {
            what.push_str(", taken back");
        }
        *ended.entry(what).or_default() += 1;
    }
    if records.void > 0 {
        ended.insert("charge VOID".to_owned(), records.void);
    }
    ended
}

/// How many movements of each kind there are.
pub fn posted(records: &Records) -> BTreeMap<String, u64> {
    let mut posted = BTreeMap::new();
    let credits = records.postings.iter().filter(|line| line.amount_minor > 0);
    for line in credits {
        *posted.entry(line.kind.clone()).or_default() += 1;
    }
    posted
}

/// How often wallets were debited, and accounts credited.
pub fn touched(books: &Books) -> (u64, u64) {
    let debits = books.debits.values().map(|debit| debit.debits).sum();
    let credits = books.credits.values().map(|credit| credit.credits).sum();
    (debits, credits)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            store,
            replicas,
            clients,
            merchants,
            movements,
            storm_seconds,
            calm_seconds,
            lost_answers,
            ..
        } = self;
        let killed: u64 = self.kills.values().sum();
        writeln!(
            f,
            "storm {seed} on {store}, {replicas} of each service: {movements} movements by {clients} clients of {merchants} merchants in {storm_seconds} s, all ended {calm_seconds} s later"
        )?;
        writeln!(f, "  {killed} processes were killed: {:?}", self.kills)?;
        writeln!(f, "  {lost_answers} answers were lost")?;
        for (title, counts) in [
            ("answered", &self.answers),
            ("ended", &self.ended),
            ("posted", &self.posted),
        ] {
            writeln!(f, "  {title}")?;
            for (what, count) in counts {
                writeln!(f, "    {count:>7}  {what}")?;
            }
        }
        writeln!(
            f,
            "  the operator ended {} that no network had taken",
            self.given_up
        )?;
        writeln!(
            f,
            "  the networks debited {} times and credited {} times",
            self.debits, self.credits
        )?;
        writeln!(
            f,
            "  {} events, in webhooks accepted {} times and refused {} times",
            self.events, self.accepted_webhooks, self.refused_webhooks
        )?;
        write!(f, "{}", self.verdict)
    }
}
