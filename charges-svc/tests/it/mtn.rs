//! MTN's disbursement product as far as these tests need it: a float, and what becomes of each
//! transfer, by the script of its test.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use chassis::testing::fake_server::{FakeServer, Reaction, ReceivedRequest, empty, json};
use rails::testing::with_tokens;
use serde_json::Value;
use tokio::sync::watch;

/// What MTN does with transfers. Clones share it.
#[derive(Clone)]
pub struct Mtn(Arc<Mutex<State>>);

struct State {
    /// As MTN writes it.
    float: String,
    /// The answer to a transfer.
    sent: Reaction,
    /// Whether MTN takes a transfer, whatever it answers.
    takes: bool,
    /// The `status` of every transfer, and its `reason`.
    outcome: (String, Option<String>),
    taken: HashMap<String, Value>,
    /// What the float is once a transfer was asked for.
    float_then: Option<String>,
    /// Answers for the balance wait for it.
    gate: Option<watch::Receiver<bool>>,
    /// Whose every wallet is, if it tells; `None` if there are no wallets.
    holder: Option<String>,
}

impl Mtn {
    /// Has a float of this many cedis and pays everything.
    pub fn with_float(float: &str) -> Self {
        Self(Arc::new(Mutex::new(State {
            float: float.to_owned(),
            sent: empty(202),
            takes: true,
            outcome: ("SUCCESSFUL".to_owned(), None),
            taken: HashMap::new(),
            float_then: None,
            gate: None,
            holder: Some("Ama Mensah".to_owned()),
        })))
    }

    pub async fn start(&self) -> FakeServer {
        let mtn = self.clone();
        with_tokens(move |seen| mtn.answer(seen)).await
    }

    pub fn set_float(&self, float: &str) {
        float.clone_into(&mut self.0.lock().unwrap().float);
    }

    /// Others empty the float while a transfer is on its way.
    pub fn drains_to(&self, float: &str) {
        self.0.lock().unwrap().float_then = Some(float.to_owned());
    }

    pub fn answers(&self, sent: Reaction, takes: bool) {
        let mut state = self.0.lock().unwrap();
        (state.sent, state.takes) = (sent, takes);
    }

    pub fn ends(&self, status: &str, reason: Option<&str>) {
        self.0.lock().unwrap().outcome = (status.to_owned(), reason.map(str::to_owned));
    }

    /// An empty name is not told.
    pub fn wallets_are_of(&self, holder: Option<&str>) {
        self.0.lock().unwrap().holder = holder.map(str::to_owned);
    }

    /// Does not tell the balance before the gate opens.
    pub fn holds_balance(&self, gate: watch::Receiver<bool>) {
        self.0.lock().unwrap().gate = Some(gate);
    }

    fn answer(&self, seen: &ReceivedRequest) -> Reaction {
        let mut state = self.0.lock().unwrap();
        if seen.call == "POST /disbursement/v1_0/transfer" {
            let reference = seen.header("x-reference-id").unwrap_or_default().to_owned();
            if let Some(float) = state.float_then.take() {
                state.float = float;
            }
            if state.takes {
                state.taken.insert(reference, seen.json());
            }
            return state.sent.clone();
        }
        if let Some(reference) = seen.call.strip_prefix("GET /disbursement/v1_0/transfer/") {
            let Some(taken) = state.taken.get(reference) else {
                return json(404, r#"{"code":"RESOURCE_NOT_FOUND","message":"none"}"#);
            };
            let mut shown = taken.clone();
            let (status, reason) = &state.outcome;
            shown["status"] = Value::from(status.as_str());
            if let Some(reason) = reason {
                shown["reason"] = Value::from(reason.as_str());
            }
            return json(200, shown.to_string());
        }
        if seen.call == "GET /disbursement/v1_0/account/balance" {
            let float = &state.float;
            let told = format!(r#"{{"availableBalance":"{float}","currency":"GHS"}}"#);
            let told = json(200, told);
            return match state.gate.clone() {
                Some(gate) => Reaction::Held(gate, Box::new(told)),
                None => told,
            };
        }
        if seen.call.ends_with("/active") {
            let is_there = state.holder.is_some();
            return json(200, format!(r#"{{"result":{is_there}}}"#));
        }
        if seen.call.ends_with("/basicuserinfo") {
            let name = state.holder.as_deref().unwrap_or_default();
            return json(200, format!(r#"{{"name":"{name}"}}"#));
        }
        empty(404)
    }
}

/// How many transfers were sent to it.
pub fn transfers(network: &FakeServer) -> usize {
    let calls = network.calls();
    let sent = calls
        .iter()
        .filter(|call| *call == "POST /disbursement/v1_0/transfer");
    sent.count()
}
