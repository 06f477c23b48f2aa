//! sessions-svc alone: sessions created.

use proto::{
    money::Money,
    sessions::{CreateSessionRequest, Payer, sessions_client::SessionsClient},
};
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
    channels: Channels,
    merchants: Vec<String>,
    payers: Payers,
}

impl Creations {
    pub fn new(url: &str, merchants: u16, payers: Kind) -> anyhow::Result<Self> {
        let merchants = (0..merchants).map(|_| Uuid::new_v4().to_string());
        Ok(Self {
            channels: Channels::connect(url)?,
            merchants: merchants.collect(),
            payers: Payers::new(payers),
        })
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
        let mut sessions = SessionsClient::new(self.channels.of(n));
        let created = sessions.create_session(request).await;
        created.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(target: &SessionsTarget) -> anyhow::Result<Vec<Report>> {
    let SessionsTarget { common, payers } = target;
    let alone = [Service::Sessions];
    Bench::during(&common.place, &alone, &alone, async |bench| {
        let url = bench.processes.url(Service::Sessions);
        let load = Creations::new(&url, common.merchants, *payers)?;
        bench.sweep(&common.offer, "sessions", load).await
    })
    .await
}
