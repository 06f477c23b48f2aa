//! Reads sessions in sets: the requests that wait at the same moment share a statement.

use chassis::{clock::Timestamp, ids::SessionId, sets::LARGE_SET};
use db::{Db, Grouped};

use crate::{session::ShownSession, store};

/// A session to show as it is at a time.
#[derive(Debug)]
pub struct Reading {
    pub session_id: SessionId,
    pub now: Timestamp,
}

impl Grouped for Reading {
    type Outcome = Option<ShownSession>;

    /// While one waits for its answer, another can be formed.
    const BESIDE_MIN: usize = LARGE_SET;

    async fn run_set(db: &Db, set: &[Self]) -> db::Result<Vec<Self::Outcome>> {
        let wanted = set.iter().map(|reading| (reading.session_id, reading.now));
        let wanted: Vec<_> = wanted.collect();
        store::find_shown(db, &wanted).await
    }
}
