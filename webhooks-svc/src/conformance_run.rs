//! Runs the cases of `conformance` against a receiver, one request after the other.

use std::time::Duration;

use chassis::{clock::Timestamp, error_chain::chain, ids::MerchantId};
use db::{Insert, Update};
use secrecy::SecretString;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::{
    conformance::{Case, CaseResult, Request, Run, Signer},
    delivery::{AttemptOutcome, Cause},
    error::Error,
    secret, send,
    service::Service,
    store::trials,
};

/// How long a receiver has for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Nothing is sent after this time, so that a run ends within a minute.
const SENDS_WITHIN: Duration = Duration::from_secs(45);

/// How long a run counts as running after its last word. A case takes two answers.
const LEASE: Duration = Duration::from_secs(30);

/// A run with what is not stored as it is shown.
#[derive(Debug)]
pub struct OpenRun {
    pub run: Run,
    pub secret: SecretString,
    pub results: Vec<CaseResult>,
    /// Real time, for its state.
    pub real_now: Timestamp,
}

impl Service {
    /// Makes a run in the place of the merchant's last one.
    pub async fn create_conformance_run(&self, merchant_id: MerchantId) -> Result<OpenRun, Error> {
        let run_id = Uuid::now_v7();
        let secret = secret::generate();
        let run = Run {
            merchant_id,
            run_id,
            secret: self.keyring.seal(&secret, &owner(merchant_id, run_id)),
            url: None,
            results: "[]".to_owned(),
            lease_until: None,
            created_at: self.clock.now(),
            finished_at: None,
        };
        let mut tx = self.db.begin().await?;
        let made = trials::replace_run(&mut tx, &run, self.clock.real_now()).await?;
        if made == Insert::AlreadyThere {
            return Err(Error::ConformanceRunning);
        }
        tx.commit().await?;
        self.open_run(run)
    }

    pub async fn get_conformance_run(
        &self,
        merchant_id: MerchantId,
        run_id: Uuid,
    ) -> Result<OpenRun, Error> {
        let found = trials::find_run(&mut self.db.read().await?, merchant_id).await?;
        let found = found.filter(|run| run.run_id == run_id);
        self.open_run(found.ok_or(Error::ConformanceNotFound)?)
    }

    /// Starts a run that nobody has started, and answers at once.
    pub async fn start_conformance_run(
        &self,
        merchant_id: MerchantId,
        run_id: Uuid,
        url: &str,
    ) -> Result<OpenRun, Error> {
        let url = url.trim();
        let open = self.get_conformance_run(merchant_id, run_id).await?;
        if open.run.lease_until.is_some() {
            return Ok(open);
        }
        // First, so that looking up names is limited, too.
        let mut tx = self.db.begin().await?;
        self.start_trial(&mut tx, merchant_id).await?;
        tx.commit().await?;
        self.check_url(url).await?;
        let lease_until = self.clock.real_now() + LEASE;
        let mut tx = self.db.begin().await?;
        let started = trials::start_run(&mut tx, &open.run, url, lease_until).await?;
        if started == Update::Updated {
            tx.commit().await?;
            tracing::info!(merchant.id = %merchant_id, run.id = %run_id, "a conformance run has started");
            self.tasks
                .spawn_apart(self.clone().run(open, url.to_owned()));
        }
        self.get_conformance_run(merchant_id, run_id).await
    }

    fn open_run(&self, run: Run) -> Result<OpenRun, Error> {
        let secret = self
            .keyring
            .open(&run.secret, &owner(run.merchant_id, run.run_id));
        // The key may be gone: these secrets are not encrypted anew.
        let secret = secret.map_err(|_| Error::ConformanceNotFound)?;
        // Only this service writes them.
        let results = serde_json::from_str(&run.results).unwrap_or_default();
        Ok(OpenRun {
            run,
            secret,
            results,
            real_now: self.clock.real_now(),
        })
    }

    /// Runs it, until it is done or this process is cut off.
    async fn run(self, open: OpenRun, url: String) {
        let cut_off = self.attempts.cut_off.clone();
        tokio::select! {
            biased;
            () = cut_off.wait() => {}
            () = self.run_cases(&open, &url) => {}
        }
    }

    async fn run_cases(&self, open: &OpenRun, url: &str) {
        let begun_at = Instant::now();
        let mut results = Vec::new();
        for case in Case::ALL {
            let signer = Signer {
                merchant_id: open.run.merchant_id,
                secret: &open.secret,
                now: self.clock.now(),
                unix_seconds: self.clock.host_now().unix_seconds(),
            };
            let requests = case.requests(&signer);
            results.push(self.run_case(*case, url, &requests, begun_at).await);
            let is_last = results.len() == Case::ALL.len();
            if let Err(error) = self.record(&open.run, &results, is_last).await {
                tracing::warn!(error = %chain(&error), run.id = %open.run.run_id, "a conformance run is not recorded");
                return;
            }
        }
    }

    /// Sends a case's requests until one is not answered as it must be.
    async fn run_case(
        &self,
        case: Case,
        url: &str,
        requests: &[Request],
        begun_at: Instant,
    ) -> CaseResult {
        let mut result = CaseResult {
            case: case.code().to_owned(),
            wants_success: case.wants_success(),
            passed: false,
            tried: None,
            curl: String::new(),
        };
        for request in requests {
            result.curl = request.curl(url);
            (result.passed, result.tried) = (false, None);
            if begun_at.elapsed() >= SENDS_WITHIN {
                break;
            }
            let outcome = self.try_request(url, request).await;
            result.passed = case.is_met_by(&outcome);
            result.tried = Some(outcome.into());
            if !result.passed {
                break;
            }
        }
        result
    }

    async fn try_request(&self, url: &str, request: &Request) -> AttemptOutcome {
        let started_at = Instant::now();
        let message = request.message();
        let sending = self.attempts.sender.send(url, &message);
        let sent = timeout(ANSWER_MAX, sending).await;
        let late = |_| send::failed(Cause::Timeout, "timed out");
        AttemptOutcome {
            duration: started_at.elapsed(),
            ..sent.unwrap_or_else(late)
        }
    }

    async fn record(
        &self,
        run: &Run,
        results: &[CaseResult],
        is_last: bool,
    ) -> Result<(), db::Error> {
        let results = serde_json::to_string(results).expect("texts and numbers are JSON");
        let finished_at = is_last.then(|| self.clock.now());
        let lease_until = self.clock.real_now() + LEASE;
        let mut tx = self.db.begin().await?;
        // Of a run that was replaced, nobody wants to know.
        let _replaced =
            trials::update_run(&mut tx, run, &results, lease_until, finished_at).await?;
        tx.commit().await
    }
}

/// What a run's secret is bound to.
fn owner(merchant_id: MerchantId, run_id: Uuid) -> String {
    secret::owner(merchant_id, run_id.into())
}
