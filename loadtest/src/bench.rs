//! A measurement's surroundings: what it needs is started, measured at each pace, and ended,
//! whatever happens.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use chassis::shutdown::Shutdown;

use crate::{
    config::{Offer, Place},
    engine::{Load, measure},
    processes::{Ground, Processes, Service},
    report::Report,
    usage::{Meter, Watched},
};

pub struct Bench {
    pub processes: Processes,
    pub meter: Meter,
}

impl Bench {
    /// Starts `services`, or uses those whose addresses are given, which then must include
    /// `called`. Does the work, or as much as was done before a signal, and ends what was started.
    pub async fn during<T>(
        place: &Place,
        services: &[Service],
        called: &[Service],
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let ground = place.ground();
        if ground.elsewhere.is_empty() {
            return Self::on(&ground, services, work).await;
        }
        if let Some(missing) = called.iter().find(|of| !ground.elsewhere.contains_key(of)) {
            bail!("the address of {missing} is needed too");
        }
        let processes = Processes::start(&ground, &[]).await?;
        Self::new(processes, place.watched())?.end_after(work).await
    }

    /// The same on fresh processes.
    pub async fn on<T>(
        ground: &Ground,
        services: &[Service],
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let processes = Processes::start(ground, services).await?;
        let watched = processes.watched();
        Self::new(processes, watched)?.end_after(work).await
    }

    async fn end_after<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let shutdown = Shutdown::on_signals();
        let done = tokio::select! {
            done = work(&self) => done,
            () = shutdown.wait() => Err(anyhow!("stopped by a signal")),
        };
        self.processes.stop().await?;
        done
    }

    fn new(processes: Processes, watched: Vec<Watched>) -> anyhow::Result<Self> {
        let meter = Meter::new(watched)?;
        Ok(Self { processes, meter })
    }

    /// Measures one kind of request at each pace that is offered.
    pub async fn sweep<L: Load>(
        &self,
        offer: &Offer,
        name: &str,
        load: L,
    ) -> anyhow::Result<Vec<Report>> {
        let load = Arc::new(load);
        let mut reports = Vec::new();
        for plan in offer.plans(name) {
            reports.push(measure(load.clone(), &plan, &self.meter).await?);
        }
        Ok(reports)
    }
}
