//! Creates sessions in sets: the requests that wait at the same moment share a transaction, and
//! each keeps its own outcome.

use std::collections::HashMap;

use chassis::ids::SessionId;
use db::{
    Db, Grouped, Tx,
    idempotency::{IdempotencyKey, KeyUse, WantedKey},
    is_retryable,
};

use crate::{
    contention::{ATTEMPTS_MAX, Attempt, Interruption, out_of_attempts},
    customer::NamedPayer,
    directory,
    session::{Session, SessionStatus},
    store,
};

/// A session to create under a key.
#[derive(Debug)]
pub struct Creation {
    pub key: IdempotencyKey,
    /// Its customer is found on the way.
    pub session: Session,
}

#[derive(Debug)]
pub enum CreationOutcome {
    Created,
    /// The key created this session before, which is shown as it was then.
    Replayed(Box<Session>),
    /// The key was used with another request.
    Reused,
    /// It waited in vain for the transaction that is taking the key.
    InProgress,
    /// The key was taken, and has become free meanwhile.
    Freed,
    /// The key's session is gone.
    Gone,
}

impl Grouped for Creation {
    type Outcome = CreationOutcome;

    async fn write(db: &Db, set: &[Self]) -> db::Result<Vec<CreationOutcome>> {
        for _ in 0..ATTEMPTS_MAX {
            match create(db, set).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Interruption::Contended) => {}
                Err(Interruption::Failed(error)) => return Err(error),
            }
        }
        Err(out_of_attempts())
    }
}

async fn create(db: &Db, set: &[Creation]) -> Attempt<Vec<CreationOutcome>> {
    let mut tx = db.begin().await?;
    let wanted: Vec<WantedKey<'_>> = set.iter().map(Creation::wanted_key).collect();
    let uses = match store::KEYS.take_set(&mut tx, &wanted).await {
        // One that waits in vain for its key fails the set, and is told so when it is alone.
        Err(error) if set.len() == 1 && is_retryable(&error) => {
            return Ok(vec![CreationOutcome::InProgress]);
        }
        uses => uses?,
    };
    insert_first(&mut tx, set, &uses).await?;
    let replayed = find_replayed(&mut tx, &uses).await?;
    tx.commit().await?;
    let outcomes = set
        .iter()
        .zip(uses)
        .map(|(creation, key_use)| match key_use {
            KeyUse::First => CreationOutcome::Created,
            // Its commit had succeeded although the answer was lost.
            KeyUse::Repeat((id,)) if id == creation.session.session_id => CreationOutcome::Created,
            KeyUse::Repeat((id,)) => match replayed.get(&id) {
                Some(session) => CreationOutcome::Replayed(Box::new(session.clone())),
                None => CreationOutcome::Gone,
            },
            KeyUse::Reuse => CreationOutcome::Reused,
            KeyUse::Freed => CreationOutcome::Freed,
        });
    Ok(outcomes.collect())
}

impl Creation {
    fn wanted_key(&self) -> WantedKey<'_> {
        WantedKey {
            key: &self.key,
            subject: self.session.session_id.uuid(),
            now: self.session.created_at,
        }
    }
}

/// Creates the sessions for which the transaction has taken the keys.
async fn insert_first(tx: &mut Tx, set: &[Creation], uses: &[KeyUse<(SessionId,)>]) -> Attempt<()> {
    let first = set.iter().zip(uses);
    let mut first: Vec<Session> = first
        .filter(|(_, key_use)| matches!(key_use, KeyUse::First))
        .map(|(creation, _)| creation.session.clone())
        .collect();
    if first.is_empty() {
        return Ok(());
    }
    let named: Vec<NamedPayer> = first
        .iter()
        .map(|session| NamedPayer {
            merchant_id: session.merchant_id,
            payer: session.payer.clone(),
            named_at: session.created_at,
        })
        .collect();
    let customers = directory::identify(tx, &named).await?;
    for (session, customer) in first.iter_mut().zip(customers) {
        session.customer_id = customer;
    }
    let first: Vec<&Session> = first.iter().collect();
    store::insert_sessions(tx.joint(), &first).run().await?;
    Ok(())
}

/// The sessions that keys stand for, as they were created.
async fn find_replayed(
    tx: &mut Tx,
    uses: &[KeyUse<(SessionId,)>],
) -> Attempt<HashMap<SessionId, Session>> {
    let ids = uses.iter().filter_map(|key_use| match key_use {
        KeyUse::Repeat((id,)) => Some(*id),
        KeyUse::First | KeyUse::Reuse | KeyUse::Freed => None,
    });
    let ids: Vec<SessionId> = ids.collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found = store::find_sessions(tx, &ids).await?;
    let as_created = found.into_iter().map(|session| Session {
        status: SessionStatus::Pending,
        ..session
    });
    Ok(as_created
        .map(|session| (session.session_id, session))
        .collect())
}
