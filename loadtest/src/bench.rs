//! A measurement's surroundings: what it needs is started, measured at each pace, and ended,
//! whatever happens.

use std::sync::Arc;

use anyhow::bail;

use crate::{
    config::{Offer, Place},
    engine::{Load, measure},
    processes::{Ground, Processes, Service, ended},
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
        let ground = place.ground()?;
        if ground.elsewhere.is_empty() {
            return Self::on(&ground, services, work).await;
        }
        if let Some(missing) = called.iter().find(|of| !ground.elsewhere.contains_key(of)) {
            bail!("the address of {missing} is needed too");
        }
        let processes = Processes::start(&ground, &[]).await?;
        Self::with(processes, place.watched(), &ground, work).await
    }

    /// The same on fresh processes.
    pub async fn on<T>(
        ground: &Ground,
        services: &[Service],
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let processes = Processes::start(ground, services).await?;
        let watched = processes.watched();
        Self::with(processes, watched, ground, work).await
    }

    async fn with<T>(
        processes: Processes,
        watched: Vec<Watched>,
        ground: &Ground,
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let meter = match Meter::new(watched) {
            Ok(meter) => meter,
            Err(error) => return ended(Err(error), processes.stop().await),
        };
        let work = async |bench: &mut Self| work(bench).await;
        let stop = async |bench: Self| bench.processes.stop().await;
        ground.during(Self { processes, meter }, work, stop).await
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
