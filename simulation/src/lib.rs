//! Searches for histories in which the three promises break: seeded runs of the real services, in
//! one process, against rails that answer anything they may, networks that lose and delay, clocks
//! that disagree and replicas that die anywhere.

pub mod choice;
pub mod rails;
pub mod time;
