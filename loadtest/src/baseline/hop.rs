//! One hop of a bare path, in a process of its own, as each service is: what is left of a service
//! when it does only what none can leave out. Nothing is checked, limited, traced or counted.

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use proto::{
    ratelimit::{
        CheckAllRequest, CheckAllResponse, CheckRequest, CheckResponse,
        rate_limits_client::RateLimitsClient,
        rate_limits_server::{RateLimits, RateLimitsServer},
    },
    sessions::{sessions_client::SessionsClient, sessions_server::SessionsServer},
};
use redis::aio::MultiplexedConnection;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    service::Routes,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};

use super::{edge::Edge, sessions::Sessions, store::Store};
use crate::config::{Hop, HopKind};

/// Serves until the process is killed.
pub async fn serve(hop: Hop) -> anyhow::Result<()> {
    let listener = TcpListener::bind(hop.listen).await?;
    let store = match &hop.database_url {
        Some(url) => Some(Store::connect(url).await?),
        None => None,
    };
    match hop.kind {
        HopKind::Edge => {
            let edge = Edge {
                limits: channel(hop.limits_url)?.map(RateLimitsClient::new),
                sessions: channel(hop.sessions_url)?.map(SessionsClient::new),
                store,
            };
            let listener = listener.tap_io(|stream| {
                // Without it, answers are only slower.
                drop(stream.set_nodelay(true));
            });
            axum::serve(listener, edge.router()).await?;
        }
        HopKind::Limits => {
            let redis = match hop.redis_url {
                Some(url) => Some(connect(&url).await?),
                None => None,
            };
            serve_grpc(listener, Routes::new(RateLimitsServer::new(Limits(redis)))).await?;
        }
        HopKind::Sessions => {
            let sessions = Sessions::new(&hop, store)?;
            serve_grpc(listener, Routes::new(SessionsServer::new(sessions))).await?;
        }
    }
    Ok(())
}

fn channel(url: Option<String>) -> anyhow::Result<Option<Channel>> {
    let endpoint = url.map(Endpoint::from_shared).transpose()?;
    Ok(endpoint.map(|endpoint| endpoint.connect_lazy()))
}

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let redis = redis::Client::open(url)?;
    let connection = redis.get_multiplexed_async_connection().await;
    connection.context("Redis cannot be reached")
}

async fn serve_grpc(listener: TcpListener, routes: Routes) -> Result<(), tonic::transport::Error> {
    // The gateway is ready only when those behind it say that they serve.
    let (_reporter, health) = tonic_health::server::health_reporter();
    let routes = routes.add_service(health);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_routes(routes);
    server.serve_with_incoming(incoming).await
}

/// Counts by one INCR, or not at all.
struct Limits(Option<MultiplexedConnection>);

/// More than any measurement sends.
const LIMIT: u32 = u32::MAX;

#[tonic::async_trait]
impl RateLimits for Limits {
    async fn check_all(
        &self,
        request: Request<CheckAllRequest>,
    ) -> Result<Response<CheckAllResponse>, Status> {
        let mut decisions = Vec::new();
        for check in request.into_inner().checks {
            decisions.push(self.count(check).await?);
        }
        Ok(Response::new(CheckAllResponse { decisions }))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let decision = self.count(request.into_inner()).await?;
        Ok(Response::new(decision))
    }
}

impl Limits {
    async fn count(&self, check: CheckRequest) -> Result<CheckResponse, Status> {
        let CheckRequest { subject, bucket } = check;
        let mut count = 0;
        if let Some(redis) = &self.0 {
            let mut incr = redis::cmd("INCR");
            incr.arg(format!("bare:{{{subject}}}:{bucket}"));
            let counted = incr.query_async(&mut redis.clone()).await;
            count = counted.map_err(|error| Status::unavailable(error.to_string()))?;
        }
        Ok(CheckResponse {
            allowed: true,
            limit: LIMIT,
            remaining: LIMIT.saturating_sub(count),
            reset_seconds: 60,
            window_seconds: 60,
        })
    }
}
