//! A sessions-svc that gives every charge the same answer, perhaps after its machine, which is
//! also ours, has stood still.

use std::time::Duration;

use chassis::{
    admin::Readiness,
    clock::Clock,
    config::Tls,
    grpc::{self, Serving, Sockets},
    shutdown::Shutdown,
};
use proto::sessions::{
    CreateSessionRequest, CreateSessionResponse, GetSessionRequest, ListCustomersRequest,
    ListCustomersResponse, RecordTransactionRequest, RecordTransactionResponse, Session,
    record_transaction_request::Step,
    record_transaction_response::Outcome,
    sessions_server::{Sessions, SessionsServer},
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, service::Routes};

struct Stalling {
    outcome: Outcome,
    stall: Duration,
}

/// Serves until `shutdown`.
pub async fn serve(listener: TcpListener, outcome: Outcome, stall: Duration, shutdown: Shutdown) {
    let serving = Serving {
        sockets: Sockets {
            grpc: listener,
            admin: None,
        },
        tls: Tls::default(),
        reflection: false,
        readiness: Readiness::new(),
        clock: Clock::system(),
        shutdown,
    };
    let routes = Routes::new(SessionsServer::new(Stalling { outcome, stall }));
    grpc::serve(routes, serving).await.unwrap();
}

#[tonic::async_trait]
impl Sessions for Stalling {
    async fn record_transaction(
        &self,
        request: Request<RecordTransactionRequest>,
    ) -> Result<Response<RecordTransactionResponse>, Status> {
        if matches!(request.get_ref().step, Some(Step::Open(_))) {
            // Blocks the thread, on which charges-svc also runs, so that nobody notices time
            // passing.
            std::thread::sleep(self.stall);
        }
        Ok(Response::new(RecordTransactionResponse {
            outcome: self.outcome.into(),
            ..RecordTransactionResponse::default()
        }))
    }

    async fn create_session(
        &self,
        _: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        Err(Status::unimplemented("not asked by charges-svc"))
    }

    async fn get_session(
        &self,
        _: Request<GetSessionRequest>,
    ) -> Result<Response<Session>, Status> {
        Err(Status::unimplemented("not asked by charges-svc"))
    }

    async fn list_customers(
        &self,
        _: Request<ListCustomersRequest>,
    ) -> Result<Response<ListCustomersResponse>, Status> {
        Err(Status::unimplemented("not asked by charges-svc"))
    }
}
