//! Callbacks from rails. A callback is a hint: it causes a query and is never believed.
//!
//! Promise: once a callback is acknowledged, the rail will be queried, even if this process dies.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    closed_list::count_unknown,
    ids::{ChargeId, is_segment},
};
use db::Update;
use rails::{Callback, CallbackSubject, RailName};

use crate::{
    error::{Error, Result},
    service::Service,
    store::{
        self,
        evidence::{Action, Note},
    },
};

/// Bounds of the wait before a rail that gave no answer is queried again. Between them it is as
/// long as the callback is old, so each wait doubles the callback's age.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60 * 60);

/// When to query the rail again if it gave no answer `now` and the callback came at `hinted_at`.
pub fn ask_again(hinted_at: Timestamp, now: Timestamp) -> Timestamp {
    now + now.since(hinted_at).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX)
}

impl Service {
    /// Records that the rail wants to be queried about one of its charges. Anybody can call this,
    /// so a callback about no charge of ours costs one read and no write transaction.
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
                    // It still comes from the rail, which would only send it again if refused.
                    let rail = rail.code();
                    tracing::info!(rail, "a callback is about no charge of ours");
                    Ok(())
                }
            };
        };
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        // Not there if the charge became void after it was found: there is nothing to query.
        if store::hints::put(&mut tx, id, now).await? == Update::Updated {
            let said = (Action::Callback, Note::Received.code());
            store::evidence::keep(&mut tx, id, said, None, now).await?;
        }
        tx.commit().await?;
        self.reconcile_alarms.ring(rail.code());
        Ok(())
    }

    /// The error for a callback of a rail that this version does not know. If a newer version has
    /// put charges on it, the rail is to repeat the callback, as many rails do not after "not
    /// found".
    pub async fn refuse_callback(&self, rail: &str, token: &str) -> Error {
        match self.is_newer_rail(rail, token).await {
            Ok(true) => {
                count_unknown("rail");
                Error::NothingStarted
            }
            Ok(false) => Error::CallbackNotFound,
            Err(error) => error,
        }
    }

    async fn is_newer_rail(&self, rail: &str, token: &str) -> Result<bool> {
        if !is_segment(rail) || !is_segment(token) {
            return Ok(false);
        }
        let mut conn = self.db.read().await?;
        Ok(store::charges::has_rail(&mut conn, rail, token).await?)
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
