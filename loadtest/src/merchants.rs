//! merchants-svc alone: authentications, as the gateway asks for them when it does not remember a
//! key.

use anyhow::Context as _;
use chassis::api_key::ApiKey;
use proto::merchants::{AuthenticateRequest, merchants_client::MerchantsClient};

use crate::{
    bench::Bench,
    config::Common,
    engine::{Load, turn},
    grpc::{self, Channels},
    plan::Outcome,
    processes::Service,
    report::Report,
    shop,
};

struct Authentications {
    channels: Channels,
    /// The keys' hashes.
    keys: Vec<Vec<u8>>,
}

impl Load for Authentications {
    async fn request(&self, n: u64) -> Outcome {
        let request = AuthenticateRequest {
            key_sha256: turn(&self.keys, n).clone(),
        };
        let mut merchants = MerchantsClient::new(self.channels.of(n));
        let merchant = merchants.authenticate(request).await;
        merchant.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(common: &Common) -> anyhow::Result<Vec<Report>> {
    let alone = [Service::Merchants];
    Bench::during(&common.place, &alone, &alone, async |bench| {
        let url = bench.processes.url(Service::Merchants);
        let operators_url = bench.processes.operators_url(Service::Merchants)?;
        let shops = shop::open(&operators_url, common.merchants).await?;
        let keys = shops.iter().map(|shop| {
            let key: ApiKey = shop.api_key.parse().context("a new key is none")?;
            Ok(key.sha256().to_vec())
        });
        let load = Authentications {
            channels: Channels::connect(&url)?,
            keys: keys.collect::<anyhow::Result<_>>()?,
        };
        bench.sweep(&common.offer, "merchants", load).await
    })
    .await
}
