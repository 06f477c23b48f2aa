//! What rails send to us. A hint: it makes the rail be asked, and is never believed.
//!
//! Promise: once it is acknowledged, the rail will be asked, even if this process ends now.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, is_segment},
};
use rails::{Callback, CallbackSubject, RailName};

use crate::{
    error::{Error, Result},
    service::Service,
    store,
};

/// A rail that gave no answer is asked again for a callback after this long at first, then always
/// after twice as long.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60 * 60);

/// When the rail is asked again that gave no answer `now` for a callback which came at `hinted_at`.
pub fn ask_again(hinted_at: Timestamp, now: Timestamp) -> Timestamp {
    now + now.since(hinted_at).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX)
}

impl Service {
    /// Notes that the rail wants to be asked about one of its charges. Anybody can call: what is
    /// about no charge of ours costs one read, and opens no transaction that writes.
    pub async fn receive_callback(&self, rail: RailName, callback: &Callback) -> Result<()> {
        if !is_segment(&callback.token) {
            return Err(Error::CallbackNotFound);
        }
        let subject = self.rails.get(rail).read_callback(callback)?;
        let found = self.find_called_back(rail, subject, &callback.token);
        let Some(id) = found.await? else {
            return match subject {
                CallbackSubject::Address => Err(Error::CallbackNotFound),
                CallbackSubject::Reference(_) | CallbackSubject::Nothing => {
                    // It is the rail's all the same. Told otherwise, the rail would only send it
                    // again.
                    let rail = rail.code();
                    tracing::info!(rail, "a callback is about no charge of ours");
                    Ok(())
                }
            };
        };
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        // Void since it was found: there is nothing to ask about.
        if store::hints::put(&mut tx, id, now).await? {
            store::evidence::keep(&mut tx, id, ("callback", "received"), None, now).await?;
        }
        tx.commit().await?;
        self.reconcile_alarms.ring(rail);
        Ok(())
    }

    async fn find_called_back(
        &self,
        rail: RailName,
        subject: CallbackSubject,
        token: &str,
    ) -> Result<Option<ChargeId>> {
        let mut conn = self.db.read().await?;
        Ok(match subject {
            CallbackSubject::Address => {
                store::charges::find_by_callback_token(&mut conn, rail, token).await?
            }
            CallbackSubject::Reference(reference) => {
                store::charges::find_by_rail_reference(&mut conn, rail, reference).await?
            }
            CallbackSubject::Nothing => None,
        })
    }
}
