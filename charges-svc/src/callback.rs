//! Callbacks from rails. A callback is a hint: it causes a query and is never believed.
//!
//! Promise: once a callback is acknowledged, the rail will be queried, even if this process dies.

use std::{sync::Arc, time::Duration};

use chassis::{closed_list::count_unknown, error_chain::chain, ids::is_segment};
use db::Update;
use rails::{Callback, CallbackSubject, RailName};
use tokio::sync::oneshot;

use crate::{
    charge::Lease,
    error::{Error, Result},
    hint::{Hint, Kept},
    reconcile,
    service::Service,
    store::{
        self,
        evidence::{Action, Note},
        hints::About,
        steps::ReceivedCallback,
    },
};

/// How often, and after which wait, a callback looks whether its charge is free again. Then it
/// waits for it in the database.
const LOOKS_MAX: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Service {
    /// Records a callback about a charge or a disbursement, so that its rail is queried. Anybody can
    /// call this, so a callback about nothing of ours costs two reads and no write transaction.
    pub async fn receive_callback(
        self: &Arc<Self>,
        rail: RailName,
        callback: &Callback,
    ) -> Result<()> {
        if !is_segment(&callback.token) {
            return Err(Error::CallbackNotFound);
        }
        let subject = self.rails.get(rail).read_callback(callback)?;
        let rail_text = self.rails.get(rail).callback_text(callback);
        let about = match subject {
            CallbackSubject::Address => Some(About::Token(callback.token.clone())),
            CallbackSubject::Reference(reference) => Some(About::Reference(reference)),
            CallbackSubject::Nothing => None,
        };
        let is_kept = match about {
            Some(about) => {
                let words = rail_text.as_deref();
                self.keep_and_ask(rail, about.clone(), rail_text.clone())
                    .await?
                    || self.keep_transfer_hint(rail, &about, words).await?
            }
            None => false,
        };
        match (is_kept, subject) {
            (true, _) => Ok(()),
            (false, CallbackSubject::Address) => Err(Error::CallbackNotFound),
            (false, CallbackSubject::Reference(_) | CallbackSubject::Nothing) => {
                // It still comes from the rail, which would only send it again if refused.
                let rail = rail.code();
                tracing::info!(rail, "a callback is about nothing of ours");
                Ok(())
            }
        }
    }

    /// Records a callback and, once that is told, queries the rail about its charge, or leaves that
    /// to the reconciler. Goes on by itself, whether or not the rail still waits for its answer.
    /// Returns whether the callback is about a charge of ours.
    async fn keep_and_ask(
        self: &Arc<Self>,
        rail: RailName,
        about: About,
        rail_text: Option<String>,
    ) -> Result<bool> {
        let (service, activity) = (Arc::clone(self), self.clock.activity());
        let (done, outcome) = oneshot::channel();
        self.tasks.spawn(async move {
            let (kept, asked) = match service.keep_hint(rail, about, rail_text).await {
                Ok(Kept::Claimed(charge, turn)) => (Ok(true), Some((charge, turn))),
                Ok(Kept::Done) => {
                    service.turns.at(rail).leave();
                    let now = service.clock.now();
                    service.reconcile_alarms.ring_at(rail.code(), now);
                    (Ok(true), None)
                }
                Ok(Kept::NotThere | Kept::Locked) => (Ok(false), None),
                Err(error) => (Err(error), None),
            };
            if let Err(Err(error)) = done.send(kept) {
                tracing::warn!(error = %chain(&error), "not recorded, and the rail waits no more");
            }
            if let Some((charge, turn)) = asked {
                turn.using(reconcile::asking(&service, rail, *charge)).await;
            }
            drop(activity);
        });
        // The sender is gone only after a panic.
        outcome
            .await
            .unwrap_or(Err(db::Error::WorkerCrashed.into()))
    }

    /// A rail often calls back while its reply is being written, so the hint waits for the reply,
    /// and then for its charge, here and not in the database with a connection of its own.
    async fn keep_hint(
        &self,
        rail: RailName,
        about: About,
        rail_text: Option<String>,
    ) -> Result<Kept> {
        let at = self.clock.now();
        let callback = ReceivedCallback {
            at,
            rail_text,
            lease: Lease::new(&self.clock, self.settings.lease),
            asked_until: at + self.settings.lease,
        };
        let turns = self.turns.at(rail);
        let with_reply = self
            .awaited
            .record_with_reply(turns, &about, callback.clone());
        if let Some((charge, turn)) = with_reply.await {
            return Ok(Kept::Claimed(Box::new(charge), turn));
        }
        for _ in 0..LOOKS_MAX {
            let hint = Hint {
                rail,
                about: about.clone(),
                at,
                rail_text: callback.rail_text.clone(),
                turns: Arc::clone(turns),
                // The same, in case it was written with a reply and nobody was told.
                lease: callback.lease,
                asked_until: callback.asked_until,
            };
            match self.hints.run(hint).await? {
                Kept::Locked => tokio::time::sleep(LOOK_AGAIN).await,
                kept => return Ok(kept),
            }
        }
        let mut conn = self.db.read().await?;
        let Some(id) = store::hints::find(&mut conn, rail, &about).await? else {
            return Ok(Kept::NotThere);
        };
        drop(conn);
        let mut tx = self.db.begin().await?;
        // Not there if the charge became void after it was found: there is nothing to query.
        if store::hints::put(&mut tx, id, at).await? == Update::Updated {
            let said = (Action::Callback, Note::Received.code());
            let words = callback.rail_text.as_deref();
            store::evidence::keep(&mut tx, id.uuid(), said, words, at).await?;
        }
        tx.commit().await?;
        Ok(Kept::Done)
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
}
