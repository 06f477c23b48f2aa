//! On what processes are started, and at which addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, ToSocketAddrs as _},
    path::PathBuf,
};

use anyhow::{Context as _, anyhow, ensure};
use chassis::shutdown::Shutdown;

use super::{STOPPED, Service, ended};

/// On what processes are started.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// The folder of the binaries. By default the load tester's own.
    pub binaries: Option<PathBuf>,
    /// A PostgreSQL server. Without it, each service has an SQLite file.
    pub database_url: Option<String>,
    /// Without it, ratelimit-svc counts alone.
    pub redis_url: Option<String>,
    pub host: Host,
    /// Services that run already, with their URLs.
    pub elsewhere: BTreeMap<Service, String>,
    /// Where some of them listen to operators.
    pub operators_elsewhere: BTreeMap<Service, String>,
    /// Makes PostgreSQL scan a table sequentially only where no index serves.
    pub avoid_sequential_scans: bool,
    /// More flags of a service, each in place of our own of that name.
    pub flags: Vec<(Service, String)>,
    /// Ends every measurement.
    pub shutdown: Shutdown,
}

impl Ground {
    /// Does the work, or as much of it as is done before a signal.
    pub async fn until_signal<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            () = self.shutdown.wait() => Err(anyhow!(STOPPED)),
        }
    }

    /// Does the work with what was started, or as much of it as is done before a signal, and ends
    /// what was started, whatever happened.
    pub async fn during<S, T>(
        &self,
        mut started: S,
        work: impl AsyncFnOnce(&mut S) -> anyhow::Result<T>,
        stop: impl AsyncFnOnce(S) -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        let done = self.until_signal(work(&mut started)).await;
        ended(done, stop(started).await)
    }

    /// The path of a binary.
    pub fn binary(&self, name: &str) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.binaries {
            return Ok(folder.join(name));
        }
        let own = std::env::current_exe()?;
        Ok(own.parent().context("a binary is in a folder")?.join(name))
    }
}

/// At which name services call each other, and how many processes there are of each. They listen on
/// the same port of 127.0.0.1, 127.0.0.2 and so on, and calls are spread over the name's addresses.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub replicas: u8,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            name: Ipv4Addr::LOCALHOST.to_string(),
            replicas: 1,
        }
    }
}

impl Host {
    /// The host with so many replicas. Several need a name that has exactly their addresses, because
    /// a call to any other would be refused and cost a try.
    pub fn with(replicas: u8) -> anyhow::Result<Self> {
        if replicas == 1 {
            return Ok(Self::default());
        }
        let name = format!("pay{replicas}.test");
        let addresses: BTreeSet<_> = (1..=replicas).map(loopback).map(IpAddr::from).collect();
        let found = (name.as_str(), 0).to_socket_addrs();
        let found = found.map(|found| found.map(|address| address.ip()).collect());
        let lines = addresses
            .iter()
            .map(|address| format!("\n{address} {name}"));
        ensure!(
            found.is_ok_and(|found: BTreeSet<_>| found == addresses),
            "{replicas} replicas need exactly these addresses of {name} in /etc/hosts:{}",
            lines.collect::<String>()
        );
        Ok(Self { name, replicas })
    }
}

/// The address of the `number`th replica of each service.
pub fn loopback(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}
