//! limitador, where it is installed: a limiter of others on the same Redis, asked as Envoy asks it.

use std::{
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use prost::Message;
use tempfile::NamedTempFile;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};
use tonic::{Request, Response, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use super::{LOOK_AGAIN, MERCHANTS};
use crate::{
    engine::{Load, turn},
    grpc::{self, Channels},
    plan::{Code, Outcome},
    processes::{Ground, STOPPED, end, free_ports},
    rounds::Probe,
    usage::Watched,
};

const BINARY: &str = "limitador-server";

/// Longest wait until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// The same counts as ours: each merchant's requests in a minute, more than any measurement sends.
const LIMITS: &str = "\
- namespace: payments
  max_value: 4000000000
  seconds: 60
  conditions: []
  variables:
    - descriptors[0]['merchant_id']
";

const NAMESPACE: &str = "payments";

const KEY: &str = "merchant_id";

/// A running limitador.
pub struct Limitador {
    child: Child,
    url: String,
    /// It watches this file.
    _limits: NamedTempFile,
}

/// Checks, each counted.
struct Checks {
    channels: Channels,
    merchants: Vec<String>,
}

/// The part of Envoy's `envoy.service.ratelimit.v3` that a check needs.
#[derive(Clone, PartialEq, Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

/// The code of a request that is within its limits.
const OK: i32 = 1;

impl Limitador {
    /// Starts it and waits until it listens. `None` if it is not installed.
    pub async fn start(ground: &Ground) -> anyhow::Result<Option<Self>> {
        ensure!(!ground.shutdown.has_begun(), STOPPED);
        let redis = ground.redis_url.as_ref();
        let redis = redis.context("limitador needs --redis-url")?;
        let mut limits = NamedTempFile::with_suffix(".yaml")?;
        limits.write_all(LIMITS.as_bytes())?;
        let [port, http_port] = free_ports()?;
        let child = Command::new(BINARY)
            .args(["--rls-ip=127.0.0.1", "--http-ip=127.0.0.1"])
            .arg(format!("--rls-port={port}"))
            .arg(format!("--http-port={http_port}"))
            .arg(limits.path())
            .args(["redis", redis])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let child = match child {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            child => child?,
        };
        let mut limitador = Self {
            child,
            url: format!("http://127.0.0.1:{port}"),
            _limits: limits,
        };
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            let has_ended = limitador.child.try_wait()?.is_some();
            ensure!(!has_ended, "{BINARY} has ended");
            ensure!(Instant::now() < deadline, "{BINARY} does not listen");
            sleep(LOOK_AGAIN).await;
        }
        Ok(Some(limitador))
    }

    /// The requests that measure it.
    pub fn probe(&self) -> anyhow::Result<Probe> {
        let merchants = (0..MERCHANTS).map(|_| Uuid::new_v4().to_string());
        let load = Checks {
            channels: Channels::connect(&self.url)?,
            merchants: merchants.collect(),
        };
        let watched = Watched {
            name: "limitador".to_owned(),
            id: self.child.id(),
            admin: None,
        };
        Probe::new("limitador", load, vec![watched])
    }

    pub async fn stop(mut self) -> anyhow::Result<()> {
        end(&mut self.child).await
    }
}

impl Load for Checks {
    async fn request(&self, n: u64) -> Outcome {
        let checked = self.check(n).await;
        let answer = checked.map_err(|status| grpc::code(&status))?.into_inner();
        match answer.overall_code {
            OK => Ok(()),
            code => Err(Code::Owned(format!("limitador {code}"))),
        }
    }
}

impl Checks {
    async fn check(&self, n: u64) -> Result<Response<RateLimitResponse>, Status> {
        let request = RateLimitRequest {
            domain: NAMESPACE.to_owned(),
            descriptors: vec![Descriptor {
                entries: vec![Entry {
                    key: KEY.to_owned(),
                    value: turn(&self.merchants, n).clone(),
                }],
            }],
        };
        let path = PathAndQuery::from_static(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        );
        let mut limitador = Grpc::new(self.channels.of(n));
        let ready = limitador.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::default();
        limitador.unary(Request::new(request), path, codec).await
    }
}
