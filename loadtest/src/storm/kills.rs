//! Processes are killed (SIGKILL) and started again, one at a time, all but the networks.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::sleep;

use super::{choices::Choices, world::World};
use crate::processes::{Processes, Service};

/// Who is killed, by weight.
const KILLED: [(u64, Service); 6] = [
    (5, Service::Charges),
    (3, Service::Webhooks),
    (2, Service::Sessions),
    (2, Service::Gateway),
    (1, Service::Merchants),
    (1, Service::Ratelimit),
];

/// Longest time that a killed process is gone, in milliseconds.
const GONE_MS_MAX: u64 = 1_000;

/// How often each service was killed.
pub type Kills = BTreeMap<&'static str, u64>;

/// Kills about once in `every` until the storm calms down; never if that is nothing. Replicas are
/// killed in turns.
pub async fn until_calm(
    processes: &mut Processes,
    world: &World,
    every: Duration,
) -> anyhow::Result<Kills> {
    let mut kills = Kills::new();
    if every.is_zero() {
        world.calm.wait().await;
        return Ok(kills);
    }
    let mut choices = Choices::of(world.seed, "kills");
    let every_ms = u64::try_from(every.as_millis())?;
    loop {
        let pause = choices.between(every_ms / 2, every_ms * 3 / 2);
        tokio::select! {
            () = world.calm.wait() => return Ok(kills),
            () = sleep(Duration::from_millis(pause)) => {}
        }
        let service = choices.weighted(&KILLED);
        let gone = Duration::from_millis(choices.below(GONE_MS_MAX));
        let count = kills.entry(service.name()).or_default();
        processes.restart(service, *count, gone).await?;
        *count += 1;
    }
}
