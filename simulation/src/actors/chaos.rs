//! Kills replicas and brings them back: at a given time, or at exactly the n-th message that they
//! send to a database, a service or a rail, before or after it takes effect.

use chassis::error_chain::chain;
use futures::future::join_all;
use tokio::sync::oneshot;

use super::Stage;
use crate::{
    choice::Choices,
    line::When,
    routes,
    time::{HOUR, MINUTE, Millis, SECOND},
    world::World,
};

/// Until then links fail all the time; afterwards only in short storms.
const FIRST_STORM: Millis = 30 * MINUTE;

/// Gusts while most orders are in progress.
const GUSTS: u32 = 3;

/// When failed charges are looked at again, the networks fail for some minutes too.
const LATER_STORMS: [Millis; 4] = [HOUR, 24 * HOUR, 25 * HOUR, 72 * HOUR];

/// Storms, hosts whose clocks leap or that lose their network, and the death of every replica.
pub async fn rage(stage: Stage) {
    let storms = storms(stage.clone());
    let leaps = stage
        .world
        .aligned()
        .into_iter()
        .map(|place| leap(stage.clone(), place));
    let mortal = stage.world.mortal();
    let partitions = mortal.iter().map(|place| part(stage.clone(), *place));
    let deaths = mortal.iter().map(|place| die(stage.clone(), *place));
    tokio::join!(
        storms,
        join_all(leaps),
        join_all(partitions),
        join_all(deaths)
    );
}

/// Restarts whatever ended by itself, such as a replica that found no database at its start. Never
/// returns.
pub async fn mend(world: &World) {
    let mut choices = Choices::of(world.seed, "mending");
    while let Some(place) = world.endings.lock().await.recv().await {
        world.time.sleep(choices.between(SECOND, 10 * SECOND)).await;
        if let Err(error) = world.crash(place).await {
            tracing::info!(error = %chain(error.as_ref()), "a replica is started again");
        }
        if let Err(error) = world.start_replica(place).await {
            tracing::error!(
                error = %chain(error.as_ref()),
                "a replica does not start again"
            );
        }
    }
}

async fn storms(stage: Stage) {
    let mut choices = Choices::of(stage.world.seed, "storms");
    let (time, faults) = (&stage.world.time, &stage.world.faults);
    faults.on();
    for _ in 0..GUSTS {
        time.sleep(choices.between(5 * SECOND, 80 * SECOND)).await;
        faults.gust();
        time.sleep(choices.between(2 * SECOND, 15 * SECOND)).await;
        faults.on();
    }
    time.sleep_until(FIRST_STORM).await;
    faults.pause();
    for storm in LATER_STORMS {
        if choices.chance(500) {
            time.sleep_until(storm + choices.below(8 * MINUTE)).await;
            faults.on();
            time.sleep(choices.between(MINUTE, 12 * MINUTE)).await;
            faults.pause();
        }
    }
}

/// Sets a host's clock right, or wrong, by minutes or by more than a day.
async fn leap(stage: Stage, place: usize) {
    let name = stage.world.name_of(place);
    let mut choices = Choices::of(stage.world.seed, &format!("leaps of {name}"));
    if !choices.chance(200) {
        return;
    }
    let when = choices.below(10 * MINUTE);
    let most = choices.weighted(&[(3, 20 * MINUTE), (1, 30 * HOUR)]);
    let length = i64::try_from(choices.below(most)).unwrap_or_default();
    let by_ms = if choices.chance(750) { length } else { -length };
    stage.world.time.sleep(when).await;
    stage.world.step_host(place, by_ms);
}

/// A host loses its whole network just as it calls a service or a rail, so that it cannot record
/// the failure either.
async fn part(stage: Stage, place: usize) {
    let name = stage.world.name_of(place);
    let mut choices = Choices::of(stage.world.seed, &format!("partitions of {name}"));
    let (time, links) = (&stage.world.time, stage.world.links_of(place));
    let partitions = choices.weighted(&[(50, 0), (30, 1), (20, 3)]);
    for _ in 0..partitions {
        time.sleep(choices.between(SECOND, 2 * MINUTE)).await;
        let chosen = choices.below(links.len().max(1).try_into().unwrap_or_default());
        let Some(link) = links.get(usize::try_from(chosen).unwrap_or_default()) else {
            return;
        };
        let (trip, tripped) = oneshot::channel();
        link.trip(choices.below(6), When::Before, trip);
        let length = choices.between(SECOND, 12 * SECOND);
        tokio::select! {
            _ = tripped => {}
            () = time.sleep(3 * MINUTE) => continue,
        }
        for link in &links {
            link.freeze(length);
        }
        if let Some(database) = stage.world.database_of(place) {
            database.freeze(length);
        }
        time.sleep(length).await;
        link.mend();
    }
}

async fn die(stage: Stage, place: usize) {
    let name = stage.world.name_of(place);
    let mut choices = Choices::of(stage.world.seed, &format!("deaths of {name}"));
    let deaths = choices.weighted(&[(35, 0), (30, 1), (20, 2), (15, 4)]);
    for _ in 0..deaths {
        stage
            .world
            .time
            .sleep(choices.between(5 * SECOND, 4 * MINUTE))
            .await;
        die_once(&stage, place, &mut choices).await;
    }
    // Whoever changes the routes starts every replica again, one after the other.
    let changed_at = routes::changed_at(stage.world.seed);
    if let Some(at) = changed_at.filter(|_| stage.world.is_charges(place)) {
        let later = choices.below(4 * MINUTE);
        stage.world.time.sleep_until(at + later).await;
        die_once(&stage, place, &mut choices).await;
    }
}

async fn die_once(stage: &Stage, place: usize, choices: &mut Choices) {
    wait_for_the_moment(stage, place, choices).await;
    if let Err(error) = stage.world.crash(place).await {
        tracing::error!(error = %chain(error.as_ref()), "a replica had ended before");
    }
    let away = choices.weighted(&[(40, SECOND), (40, 40 * SECOND), (20, 3 * MINUTE)]);
    stage.world.time.sleep(choices.between(50, away)).await;
    if let Err(error) = stage.world.start_replica(place).await {
        tracing::error!(
            error = %chain(error.as_ref()),
            "a replica does not start again"
        );
    }
}

/// Waits for the replica's n-th message, but not for ever.
async fn wait_for_the_moment(stage: &Stage, place: usize, choices: &mut Choices) {
    let when = choices.weighted(&[(1, When::Before), (1, When::After), (1, When::AfterAnswer)]);
    let (number, at_once) = (choices.below(40), choices.chance(200));
    let links = stage.world.links_of(place);
    let database = stage
        .world
        .database_of(place)
        .filter(|_| choices.chance(600));
    let chosen = choices.below(links.len().try_into().unwrap_or_default());
    let (trip, tripped) = oneshot::channel();
    match (
        database,
        links.get(usize::try_from(chosen).unwrap_or_default()),
    ) {
        _ if at_once => return,
        (Some(database), _) => database.trip(number, when, trip),
        (None, Some(link)) => link.trip(number % 8, when, trip),
        (None, None) => return,
    }
    tokio::select! {
        _ = tripped => {}
        () = stage.world.time.sleep(3 * MINUTE) => {}
    }
}
