//! What the tests of links share: time that they step, and waits for what must happen.

use std::{fmt::Debug, future::Future, time::Duration};

use chassis::clock::Timestamp;
use simulation::{
    faults::{Faults, Rates},
    time::{START_UNIX_MS, Time},
};

pub fn time() -> Time {
    Time::starting_at(Timestamp::from_unix_millis(START_UNIX_MS).unwrap())
}

/// These faults, switched on.
pub fn faults(rates: Rates) -> Faults {
    let faults = Faults::off().with(rates);
    faults.on();
    faults
}

/// The output of what must happen soon.
pub async fn soon<T>(coming: impl Future<Output = T>) -> T {
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, coming)
        .await
        .expect("it comes")
}

pub async fn until(is_true: impl Fn() -> bool) {
    soon(async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Steps time by more than any fault lasts.
pub fn step(time: &Time) {
    time.step_to(time.now() + 60_000);
}

pub fn is_err<T: Debug, E>(outcome: Result<T, E>) {
    assert!(outcome.is_err(), "it fails, instead of {:?}", outcome.ok());
}
