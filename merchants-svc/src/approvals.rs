//! Ends approvals whose last day is over, and tells merchants a month before.

use anyhow::Context as _;
use chassis::{clock::Timestamp, error_chain::chain};
use db::work::{Claimed, TaskSet, Work};

use crate::{service::Service, store};

/// The name of the work, in logs and metrics.
pub const WORK: &str = "ends of approvals";

/// Merchants per turn, of those to tell and of those whose approval ends.
const DUE_MAX: i64 = 100;

/// Does what is due for merchants' approvals.
#[derive(Debug)]
pub struct Approvals(pub Service);

impl Work for Approvals {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let mut conn = self.0.db.read().await.context("nothing is read")?;
        let due = store::businesses::next_due(&mut conn).await;
        due.context("nobody knows which approval ends next")
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        let now = self.0.clock.now();
        let mut conn = self.0.db.read().await.context("nothing is read")?;
        let due = store::businesses::list_due(&mut conn, now, DUE_MAX)
            .await
            .context("nobody knows which approvals end")?;
        drop(conn);
        let mut is_done = false;
        for merchant_id in due {
            match self.0.end_approval_if_due(merchant_id).await {
                Ok(()) => is_done = true,
                // One that fails does not keep the others from theirs.
                Err(error) => {
                    tracing::error!(
                        merchant.id = %merchant_id,
                        error = %chain(&error),
                        "an approval that is over is not ended"
                    );
                }
            }
        }
        Ok(match is_done {
            true => Claimed::All,
            false => Claimed::Nothing,
        })
    }
}
