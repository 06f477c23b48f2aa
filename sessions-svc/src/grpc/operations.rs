//! The calls that are about all merchants.

use proto::sessions::{
    AddWalletsRequest, AddWalletsResponse, ListTransactionsWithoutWalletRequest,
    ListTransactionsWithoutWalletResponse, TransactionPlace as ProtoPlace,
    session_operations_server::SessionOperations,
};
use tonic::{Request, Response, Status};

use super::{
    Grpc,
    parse::{self, WALLETS_MAX},
};
use crate::transaction::TransactionPlace;

#[tonic::async_trait]
impl SessionOperations for Grpc {
    async fn list_transactions_without_wallet(
        &self,
        request: Request<ListTransactionsWithoutWalletRequest>,
    ) -> Result<Response<ListTransactionsWithoutWalletResponse>, Status> {
        let after = parse::missing_after(&request.get_ref().page_token)?;
        let places = self.0.list_without_wallet(after, WALLETS_MAX).await?;
        let last = places.last().filter(|_| places.len() == WALLETS_MAX);
        let next_page_token =
            last.map(|last| format!("{}.{}", last.session_id, last.charge_number));
        Ok(Response::new(ListTransactionsWithoutWalletResponse {
            next_page_token: next_page_token.unwrap_or_default(),
            transactions: places.into_iter().map(ProtoPlace::from).collect(),
        }))
    }

    async fn add_wallets(
        &self,
        request: Request<AddWalletsRequest>,
    ) -> Result<Response<AddWalletsResponse>, Status> {
        let wallets = parse::wallets(request.into_inner())?;
        self.0.add_wallets(&wallets).await?;
        Ok(Response::new(AddWalletsResponse {}))
    }
}

impl From<TransactionPlace> for ProtoPlace {
    fn from(place: TransactionPlace) -> Self {
        Self {
            session_id: place.session_id.to_string(),
            charge_number: u32::try_from(place.charge_number).unwrap_or(u32::MAX),
            transaction_id: place.transaction_id.to_string(),
        }
    }
}
