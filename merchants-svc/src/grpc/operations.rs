//! What operators do with merchants and their keys.

use proto::merchants::{
    ApiKey, CreateKeyRequest, CreateKeyResponse, CreateMerchantRequest, GetMerchantRequest,
    ListKeysRequest, ListKeysResponse, ListMerchantsRequest, ListMerchantsResponse,
    Merchant as ProtoMerchant, RevokeKeyRequest, UpdateMerchantRequest,
    merchant_operations_server::MerchantOperations,
};
use tonic::{Request, Response, Status};

use super::{Grpc, invalid, parse_id, parse_kyc_status, parse_new_merchant, parse_text};
use crate::{error::Error, merchant::Changes};

#[tonic::async_trait]
impl MerchantOperations for Grpc {
    async fn create_merchant(
        &self,
        request: Request<CreateMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        let new = parse_new_merchant(request.into_inner())?;
        Ok(Response::new(self.0.create_merchant(new).await?.into()))
    }

    async fn get_merchant(
        &self,
        request: Request<GetMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        let id = parse_id(&request.get_ref().merchant_id, Error::MerchantNotFound)?;
        Ok(Response::new(self.0.get_merchant(id).await?.into()))
    }

    async fn update_merchant(
        &self,
        request: Request<UpdateMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        let request = request.into_inner();
        let id = parse_id(&request.merchant_id, Error::MerchantNotFound)?;
        let kyc_status = request.kyc_status;
        let kyc_status = kyc_status.map(|status| parse_kyc_status("kyc_status", status));
        let changes = Changes {
            email_verified: request.email_verified,
            kyc_status: kyc_status.transpose()?,
            accepting_payments: request.accepting_payments,
        };
        Ok(Response::new(
            self.0.update_merchant(id, changes).await?.into(),
        ))
    }

    async fn create_key(
        &self,
        request: Request<CreateKeyRequest>,
    ) -> Result<Response<CreateKeyResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_id(&request.merchant_id, Error::MerchantNotFound)?;
        let label = parse_text("label", &request.label, 0)?;
        let (key, secret) = self.0.create_key(merchant_id, label).await?;
        Ok(Response::new(CreateKeyResponse {
            key: Some(key.into()),
            api_key: secret.expose().to_owned(),
        }))
    }

    async fn revoke_key(
        &self,
        request: Request<RevokeKeyRequest>,
    ) -> Result<Response<ApiKey>, Status> {
        let id = parse_id(&request.get_ref().key_id, Error::KeyNotFound)?;
        Ok(Response::new(self.0.revoke_key(id).await?.into()))
    }

    async fn list_keys(
        &self,
        request: Request<ListKeysRequest>,
    ) -> Result<Response<ListKeysResponse>, Status> {
        let id = parse_id(&request.get_ref().merchant_id, Error::MerchantNotFound)?;
        let keys = self.0.list_keys(id).await?.into_iter().map(ApiKey::from);
        Ok(Response::new(ListKeysResponse {
            keys: keys.collect(),
        }))
    }

    async fn list_merchants(
        &self,
        request: Request<ListMerchantsRequest>,
    ) -> Result<Response<ListMerchantsResponse>, Status> {
        let after = match &*request.get_ref().after {
            "" => None,
            after => Some(parse_id(
                after,
                invalid("after", "must be a merchant's id"),
            )?),
        };
        let merchants = self.0.list_merchants(after).await?.into_iter();
        Ok(Response::new(ListMerchantsResponse {
            merchants: merchants.map(ProtoMerchant::from).collect(),
        }))
    }
}
