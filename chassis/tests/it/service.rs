//! A small gRPC service that does what the caller asks it to.

use std::sync::Arc;

use chassis::{
    admin::Readiness,
    clock::Clock,
    config::Tls,
    grpc::{self, Caller, Channel, Door, Reason, ServerSetup, Sockets},
    shutdown::{Shutdown, Tasks},
    telemetry,
};
use proto::ratelimit::{
    CheckAllRequest, CheckAllResponse, CheckRequest, CheckResponse,
    rate_limits_client::RateLimitsClient,
    rate_limits_server::{RateLimits, RateLimitsServer},
};
use tokio::{net::TcpListener, sync::Notify};
use tonic::{Code, Request, Response, Status};

use super::PATIENCE;

/// Signals between a test and its service.
#[derive(Default)]
pub struct Signals {
    /// The handler of `wait` has begun.
    pub begun: Notify,
    /// It may go on.
    pub go_on: Notify,
    /// It ended or was dropped.
    pub ended: Notify,
}

pub struct Told(pub Arc<Signals>);

/// Signals the end even if the handler is dropped.
struct TellsEnd<'a>(&'a Signals);

impl Drop for TellsEnd<'_> {
    fn drop(&mut self) {
        self.0.ended.notify_one();
    }
}

/// The subject says what to do.
#[tonic::async_trait]
impl RateLimits for Told {
    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Err(Status::unimplemented("no test calls it"))
    }

    async fn check_all(
        &self,
        request: Request<CheckAllRequest>,
    ) -> Result<Response<CheckAllResponse>, Status> {
        let checks = &request.get_ref().checks;
        match checks.first().map_or("", |check| &check.subject) {
            "wait" => {
                let _ended = TellsEnd(&self.0);
                self.0.begun.notify_one();
                self.0.go_on.notified().await;
            }
            "panic" => panic!("as the test asked"),
            "refuse" => {
                return Err(grpc::status(
                    Code::FailedPrecondition,
                    Reason::CaseClosed,
                    "it is too late",
                ));
            }
            "violate" => {
                return Err(grpc::invalid(&[
                    ("name", "must be short"),
                    ("age", "must be there"),
                ]));
            }
            "trace" => {
                let context = telemetry::current_traceparent().unwrap_or_default();
                return Err(Status::already_exists(context));
            }
            _ => {}
        }
        Ok(Response::new(CheckAllResponse::default()))
    }
}

/// The service run by a test.
pub struct Running {
    pub port: u16,
    pub shutdown: Shutdown,
    pub signals: Arc<Signals>,
    /// Drained once the server has ended.
    pub served: Tasks,
}

pub async fn start() -> Running {
    start_with(Tls::default(), Clock::system()).await
}

pub async fn start_with(tls: Tls, clock: Clock) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start_on(listener, tls, clock, Reflection::Off)
}

#[derive(Clone, Copy, PartialEq)]
pub enum Reflection {
    On,
    Off,
}

pub fn start_on(listener: TcpListener, tls: Tls, clock: Clock, reflection: Reflection) -> Running {
    let running = Running {
        port: listener.local_addr().unwrap().port(),
        shutdown: Shutdown::new(),
        signals: Arc::default(),
        served: Tasks::new(),
    };
    let serving = ServerSetup {
        sockets: Sockets {
            operators: None,
            grpc: listener,
            admin: None,
        },
        tls,
        reflection: reflection == Reflection::On,
        readiness: Readiness::new(),
        clock,
        shutdown: running.shutdown.clone(),
    };
    let service = RateLimitsServer::new(Told(running.signals.clone()));
    let door = Door::default().service(service, &[Caller::Gateway, Caller::WebhooksSvc]);
    running
        .served
        .spawn(async { grpc::serve(door, serving).await.unwrap() });
    running
}

impl Running {
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn channel(&self) -> Channel {
        grpc::connect(&self.url(), &Tls::default(), PATIENCE).unwrap()
    }
}

/// Asks the service to do `what`.
pub async fn ask(channel: &Channel, what: &str) -> Result<(), Status> {
    let check = CheckRequest {
        subject: what.to_owned(),
        ..CheckRequest::default()
    };
    let request = CheckAllRequest {
        checks: vec![check],
    };
    RateLimitsClient::new(channel.clone())
        .check_all(request)
        .await
        .map(drop)
}
