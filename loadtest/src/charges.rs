//! charges-svc: charges created. It calls the simulated networks, sessions-svc and webhooks-svc,
//! and the networks call back through the gateway, so all of them run.

use proto::{
    charges::{CreateChargeRequest, Provider, charges_client::ChargesClient},
    money::Money,
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    config::Common,
    engine::{Load, turn},
    grpc::{self, Channels},
    payers::{Kind, Payers},
    plan::Outcome,
    processes::Service,
    report::Report,
};

struct Creations {
    channels: Channels,
    merchants: Vec<String>,
    payers: Payers,
}

impl Load for Creations {
    async fn request(&self, n: u64) -> Outcome {
        let request = CreateChargeRequest {
            merchant_id: turn(&self.merchants, n).clone(),
            merchant_name: "Load test".to_owned(),
            amount: Some(Money {
                minor_units: 2_550,
                currency: "GHS".to_owned(),
            }),
            mobile_number: self.payers.phone(n),
            provider: Provider::Mtn.into(),
            idempotency_key: format!("g:{}", Uuid::new_v4()),
            ..CreateChargeRequest::default()
        };
        let mut charges = ChargesClient::new(self.channels.of(n));
        let created = charges.create_charge(request).await;
        created.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(common: &Common) -> anyhow::Result<Vec<Report>> {
    let called = [Service::Charges];
    Bench::during(&common.place, &Service::ALL, &called, async |bench| {
        let merchants = 0..common.merchants;
        let load = Creations {
            channels: Channels::connect(&bench.processes.url(Service::Charges))?,
            merchants: merchants.map(|_| Uuid::new_v4().to_string()).collect(),
            payers: Payers::new(Kind::New),
        };
        bench.sweep(&common.offer, "charges", load).await
    })
    .await
}
