//! Callbacks that come before the reply to their charge's request is recorded, as they do from a
//! network that pays at once. Such a callback waits for the reply and is recorded in its step, with
//! the claim under which the rail is then queried.
//!
//! Promise: a callback that is not recorded with the reply is recorded by itself. Its rail is told
//! that it was heard only after either.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::ids::RailReference;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    charge::{Charge, Claim, Facts},
    store::{hints::About, steps::ReceivedCallback},
    turns::{RailTurns, Turn},
};

/// How long a callback waits for the reply. It races the reply's record, or comes long after it; and
/// meanwhile it holds its place at the gateway.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The requests of this process to whose replies nothing is recorded yet, by the address of their
/// charges' callbacks.
#[derive(Debug, Default)]
pub struct AwaitedReplies(Mutex<HashMap<String, AwaitedReply>>);

#[derive(Debug)]
struct AwaitedReply {
    rail: String,
    reference: RailReference,
    early: Option<WaitingCallback>,
}

/// A callback that waits for the reply.
#[derive(Debug)]
struct WaitingCallback {
    callback: ReceivedCallback,
    turns: Arc<RailTurns>,
    /// Taken when the callback becomes part of a step that is being written.
    turn: Option<Turn>,
    recorded: oneshot::Sender<(Charge, Turn)>,
}

/// Held while a reply is awaited.
#[derive(Debug)]
pub struct ReplyPlace {
    replies: Arc<AwaitedReplies>,
    token: String,
}

impl AwaitedReplies {
    /// The rail is about to be asked to take this charge.
    pub fn enter(self: &Arc<Self>, charge: &Facts) -> ReplyPlace {
        let token = charge.callback_token.clone();
        let awaited = AwaitedReply {
            rail: charge.rail.clone(),
            reference: charge.rail_reference,
            early: None,
        };
        self.awaited().insert(token.clone(), awaited);
        ReplyPlace {
            replies: Arc::clone(self),
            token,
        }
    }

    /// If the callback's charge still waits for its reply, waits for it, too. Returns the charge if
    /// the callback was recorded with the reply: this process holds it by that lease, and it is its
    /// turn to query the rail.
    pub async fn record_with_reply(
        &self,
        turns: &Arc<RailTurns>,
        about: &About,
        callback: ReceivedCallback,
    ) -> Option<(Charge, Turn)> {
        let (recorded, mut told) = oneshot::channel();
        let early = WaitingCallback {
            callback,
            turns: Arc::clone(turns),
            turn: None,
            recorded,
        };
        let token = self.wait_for(about, early)?;
        match timeout(WAIT_MAX, &mut told).await {
            Ok(told) => told.ok(),
            Err(_) if self.withdraw(&token) => None,
            // It is being recorded.
            Err(_) => told.await.ok(),
        }
    }

    /// Returns the token of the charge. One callback of a charge waits at a time.
    fn wait_for(&self, about: &About, early: WaitingCallback) -> Option<String> {
        let mut awaited = self.awaited();
        let rail = early.turns.rail().code();
        let (token, charge) = match about {
            About::Token(token) => awaited.get_mut(token).map(|charge| (token.clone(), charge)),
            About::Reference(reference) => awaited
                .iter_mut()
                .find(|(_, charge)| charge.reference == *reference)
                .map(|(token, charge)| (token.clone(), charge)),
        }?;
        if charge.rail != rail || charge.early.is_some() {
            return None;
        }
        charge.early = Some(early);
        Some(token)
    }

    /// Whether the callback is certainly not recorded with the reply.
    fn withdraw(&self, token: &str) -> bool {
        let mut awaited = self.awaited();
        let Some(charge) = awaited.get_mut(token) else {
            return false;
        };
        charge.early.take_if(|early| early.turn.is_none());
        charge.early.is_none()
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<String, AwaitedReply>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplyPlace {
    /// The callback that waits, to be recorded with the reply, if its rail may be queried then.
    pub fn callback(&self) -> Option<ReceivedCallback> {
        let mut awaited = self.replies.awaited();
        let early = awaited.get_mut(&self.token)?.early.as_mut()?;
        if early.turn.is_none() {
            // The reply ends the claim of the request.
            early.turn = early.turns.take(Claim::default(), early.callback.lease);
        }
        early.turn.as_ref().map(|_| early.callback.clone())
    }

    /// The reply is recorded, and the callback with it: the charge is now like this.
    pub fn tell(&self, charge: Charge) {
        let early = self.leave();
        if let Some((early, turn)) =
            early.and_then(|mut early| early.turn.take().map(|turn| (early, turn)))
        {
            // Gone only if its task panicked. Then the claim's end finds the charge.
            early.recorded.send((charge, turn)).ok();
        }
    }

    /// The reply is recorded, without a callback.
    pub fn close(&self) {
        drop(self.leave());
    }

    fn leave(&self) -> Option<WaitingCallback> {
        self.replies.awaited().remove(&self.token)?.early
    }
}

impl Drop for ReplyPlace {
    fn drop(&mut self) {
        // A callback that still waits is recorded by itself.
        self.close();
    }
}
