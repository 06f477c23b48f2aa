//! sessions-svc alone: sessions created.

use chassis::grpc::BatchedCalls;
use proto::{
    batched::CreateSession,
    money::Money,
    sessions::{CreateSessionRequest, Payer, sessions_client::SessionsClient},
};
use tonic::Request;
use uuid::Uuid;

use crate::{
    bench::Bench,
    config::SessionsTarget,
    engine::{Load, turn},
    grpc::{self, Channels},
    payers::{Kind, Payers},
    plan::Outcome,
    processes::Service,
    report::Report,
};

pub struct Creations {
    calls: Calls,
    merchants: Vec<String>,
    payers: Payers,
}

enum Calls {
    /// One for each session.
    Single(Channels),
    /// One for those that wait at the same moment, as the gateway makes them.
    Batched(BatchedCalls<CreateSession>),
}

impl Creations {
    /// By calls of their own, which is all that a bare service knows.
    pub fn single(url: &str, merchants: u16, payers: Kind) -> anyhow::Result<Self> {
        let calls = Calls::Single(Channels::connect(url)?);
        Ok(Self::new(calls, merchants, payers))
    }

    pub fn batched(url: &str, merchants: u16, payers: Kind) -> anyhow::Result<Self> {
        let calls = Calls::Batched(BatchedCalls::new(grpc::connect(url)?, grpc::ANSWER_MAX));
        Ok(Self::new(calls, merchants, payers))
    }

    fn new(calls: Calls, merchants: u16, payers: Kind) -> Self {
        let merchants = (0..merchants).map(|_| Uuid::new_v4().to_string());
        Self {
            calls,
            merchants: merchants.collect(),
            payers: Payers::new(payers),
        }
    }
}

impl Load for Creations {
    async fn request(&self, n: u64) -> Outcome {
        let payer = Payer {
            phone: self.payers.named(n),
            ..Payer::default()
        };
        let request = CreateSessionRequest {
            merchant_id: turn(&self.merchants, n).clone(),
            amount: Some(Money {
                minor_units: 2_550,
                currency: "GHS".to_owned(),
            }),
            payer: payer.phone.is_some().then_some(payer),
            idempotency_key: format!("g:{}", Uuid::new_v4()),
            ..CreateSessionRequest::default()
        };
        let created = match &self.calls {
            Calls::Single(channels) => {
                let mut sessions = SessionsClient::new(channels.of(n));
                sessions.create_session(request).await
            }
            Calls::Batched(calls) => calls.call(Request::new(request)).await,
        };
        created.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(target: &SessionsTarget) -> anyhow::Result<Vec<Report>> {
    let SessionsTarget { common, payers } = target;
    let alone = [Service::Sessions];
    Bench::during(&common.place, &alone, &alone, async |bench| {
        let url = bench.processes.url(Service::Sessions);
        let load = Creations::batched(&url, common.merchants, *payers)?;
        bench.sweep(&common.offer, "sessions", load).await
    })
    .await
}
