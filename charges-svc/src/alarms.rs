//! The alarms that wake a rail's works: its reconciler, or its disburser.

use chassis::clock::{Alarm, Timestamp, Worker};
use rails::RailName;

/// Wakes one kind of work, at the rail that something is due at.
#[derive(Clone, Debug)]
pub struct Alarms(Vec<(RailName, Alarm)>);

impl Alarms {
    pub fn of(workers: &[(RailName, Worker)]) -> Self {
        let each = workers.iter();
        Self(each.map(|(rail, worker)| (*rail, worker.alarm())).collect())
    }

    /// The work is to look for what is due.
    pub fn ring(&self, rail: &str) {
        self.each(rail).for_each(Alarm::ring);
    }

    /// Something of this rail is due then.
    pub fn ring_at(&self, rail: &str, due: Timestamp) {
        self.each(rail).for_each(|alarm| alarm.ring_at(due));
    }

    /// A rail that only a newer version knows has no work here to wake.
    fn each(&self, rail: &str) -> impl Iterator<Item = &Alarm> {
        let each = self.0.iter().filter(move |(name, _)| name.code() == rail);
        each.map(|(_, alarm)| alarm)
    }
}
