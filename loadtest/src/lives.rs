//! Whole lives of charges: posted, paid by a simulated network at its fastest, settled, and told to
//! the merchant's webhook endpoint.

use crate::{
    api::Api,
    config::Receiving,
    engine::Load,
    payers::Kind,
    plan::Outcome,
    processes::{Processes, Service},
    receiver::Receiver,
    shop,
};

pub struct Lives {
    pub api: Api,
    pub receiver: Receiver,
}

impl Lives {
    pub async fn start(
        processes: &Processes,
        merchants: u16,
        receiving: &Receiving,
    ) -> anyhow::Result<Self> {
        let receiver = Receiver::start(receiving.listen, receiving.url.as_deref()).await?;
        let shops = shop::open(&processes.operators_url(Service::Merchants)?, merchants).await?;
        let webhooks = processes.operators_url(Service::Webhooks)?;
        for shop in &shops {
            let url = receiver.url(&shop.merchant_id);
            let secret = shop::set_endpoint(&webhooks, &shop.merchant_id, url).await?;
            receiver.expect(&shop.merchant_id, secret);
        }
        let api = Api::new(&processes.gateway_urls(), shops, Kind::New)?;
        Ok(Self { api, receiver })
    }
}

impl Load for Lives {
    async fn request(&self, n: u64) -> Outcome {
        let charge = self.api.charge(n).await?;
        self.receiver.arrival(&charge.session_id).await
    }
}
