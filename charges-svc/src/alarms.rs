//! The alarms that wake reconcilers.

use chassis::clock::{Alarm, Timestamp, Worker};
use rails::RailName;

/// Wakes the reconcilers, each by its rail.
#[derive(Clone, Debug)]
pub struct Alarms(Vec<(RailName, Alarm)>);

impl Alarms {
    pub fn of(workers: &[(RailName, Worker)]) -> Self {
        let each = workers.iter();
        Self(each.map(|(rail, worker)| (*rail, worker.alarm())).collect())
    }

    /// The reconciler is to look for what is due.
    pub fn ring(&self, rail: &str) {
        self.each(rail).for_each(Alarm::ring);
    }

    /// This is when one of its charges is due.
    pub fn ring_at(&self, rail: &str, due: Timestamp) {
        self.each(rail).for_each(|alarm| alarm.ring_at(due));
    }

    /// A rail that only a newer version knows has no reconciler to wake.
    fn each(&self, rail: &str) -> impl Iterator<Item = &Alarm> {
        let each = self.0.iter().filter(move |(name, _)| name.code() == rail);
        each.map(|(_, alarm)| alarm)
    }
}
