//! What payers read.

use proto::sessions::{
    ReadSessionRequest, Session as ProtoSession, checkout_sessions_server::CheckoutSessions,
};
use tonic::{Request, Response, Status};

use super::{Grpc, parse};

#[tonic::async_trait]
impl CheckoutSessions for Grpc {
    async fn read_session(
        &self,
        request: Request<ReadSessionRequest>,
    ) -> Result<Response<ProtoSession>, Status> {
        let id = parse::session_id(&request.get_ref().session_id)?;
        Ok(Response::new(self.0.get_session(id, None).await?.into()))
    }
}
