//! Merchants to send requests for: verified, with a key, and with a webhook endpoint if wanted.

use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{SetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};

use crate::grpc;

pub struct Shop {
    pub merchant_id: String,
    pub api_key: String,
}

/// Makes merchants where merchants-svc listens to operators.
pub async fn open(operators_url: &str, count: u16) -> anyhow::Result<Vec<Shop>> {
    let mut merchants = MerchantOperationsClient::new(grpc::connect(operators_url)?);
    let mut shops = Vec::new();
    for number in 1..=count {
        let new = CreateMerchantRequest {
            name: format!("Load test {number}"),
            email: format!("loadtest-{number}@example.com"),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        let merchant = merchants.create_merchant(new).await?.into_inner();
        let request = CreateKeyRequest {
            merchant_id: merchant.merchant_id.clone(),
            label: "loadtest".to_owned(),
        };
        let key = merchants.create_key(request).await?.into_inner();
        shops.push(Shop {
            merchant_id: merchant.merchant_id,
            api_key: key.api_key,
        });
    }
    Ok(shops)
}

/// Sets a merchant's endpoint where webhooks-svc listens to operators. Returns its signing secret.
pub async fn set_endpoint(
    operators_url: &str,
    merchant_id: &str,
    url: String,
) -> anyhow::Result<String> {
    let mut webhooks = WebhookOperationsClient::new(grpc::connect(operators_url)?);
    let request = SetEndpointRequest {
        merchant_id: merchant_id.to_owned(),
        url,
        events: Vec::new(),
    };
    let endpoint = webhooks.set_endpoint(request).await?;
    Ok(endpoint.into_inner().signing_secret)
}
