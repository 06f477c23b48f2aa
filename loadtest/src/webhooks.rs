//! webhooks-svc alone: events published, each until its merchant has received it.

use chassis::{clock::Clock, ids::EventId};
use proto::{
    money::Money,
    webhooks::{
        EventType, Payment, PublishRequest, publish_request::Data, webhooks_client::WebhooksClient,
    },
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    config::{Receiving, WebhooksTarget},
    engine::{Load, turn},
    grpc::{self, Channels},
    plan::Outcome,
    processes::{Processes, Service},
    receiver::Receiver,
    report::Report,
    shop,
};

pub struct Deliveries {
    channels: Channels,
    receiver: Receiver,
    merchants: Vec<String>,
    clock: Clock,
}

impl Deliveries {
    /// Gives each merchant an endpoint.
    pub async fn start(
        processes: &Processes,
        merchants: u16,
        receiving: &Receiving,
    ) -> anyhow::Result<Self> {
        let operators = processes.operators_url(Service::Webhooks)?;
        let receiver = Receiver::start(receiving.listen, receiving.url.as_deref()).await?;
        let merchants = (0..merchants).map(|_| Uuid::new_v4().to_string());
        let merchants: Vec<String> = merchants.collect();
        for merchant_id in &merchants {
            let url = receiver.url(merchant_id);
            let secret = shop::set_endpoint(&operators, merchant_id, url).await?;
            receiver.expect(merchant_id, secret);
        }
        Ok(Self {
            channels: Channels::connect(&processes.url(Service::Webhooks))?,
            receiver,
            merchants,
            clock: Clock::system(),
        })
    }
}

impl Load for Deliveries {
    async fn request(&self, n: u64) -> Outcome {
        let session_id = Uuid::new_v4().to_string();
        let payment = Payment {
            tx_id_display: Some("TX-0000000000".to_owned()),
            session_id: session_id.clone(),
            amount: Some(Money {
                minor_units: 2_550,
                currency: "GHS".to_owned(),
            }),
            method: Some("MOBILE_MONEY".to_owned()),
            status: "SETTLED".to_owned(),
            session_status: "COMPLETED".to_owned(),
            ..Payment::default()
        };
        let request = PublishRequest {
            event_id: EventId::new().to_string(),
            merchant_id: turn(&self.merchants, n).clone(),
            r#type: EventType::PaymentSuccess.into(),
            created_at: self.clock.host_now().to_string(),
            data: Some(Data::Payment(payment)),
        };
        let mut webhooks = WebhooksClient::new(self.channels.of(n));
        let published = webhooks.publish(request).await;
        published.map_err(|status| grpc::code(&status))?;
        self.receiver.arrival(&session_id).await
    }
}

pub async fn run(target: &WebhooksTarget) -> anyhow::Result<Vec<Report>> {
    let WebhooksTarget { common, receiver } = target;
    let alone = [Service::Webhooks];
    Bench::during(&common.place, &alone, &alone, async |bench| {
        let load = Deliveries::start(&bench.processes, common.merchants, receiver).await?;
        bench.sweep(&common.offer, "webhooks", load).await
    })
    .await
}
