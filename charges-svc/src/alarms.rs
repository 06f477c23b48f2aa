//! The alarms that wake reconcilers.

use chassis::clock::{Alarm, Worker};
use rails::RailName;

/// Wakes the reconcilers, each by its rail.
#[derive(Clone, Debug)]
pub struct Alarms(Vec<(RailName, Alarm)>);

impl Alarms {
    pub fn of(workers: &[(RailName, Worker)]) -> Self {
        let each = workers.iter();
        Self(each.map(|(rail, worker)| (*rail, worker.alarm())).collect())
    }

    /// A rail that only a newer version knows has no reconciler to wake.
    pub fn ring(&self, rail: &str) {
        for (_, alarm) in self.0.iter().filter(|(name, _)| name.code() == rail) {
            alarm.ring();
        }
    }
}
