//! Creates sessions in sets: the requests that wait at the same moment share a transaction, and
//! each keeps its own outcome.
//!
//! Nearly every key is new, so a set is first written by one statement that commits by itself and
//! writes nothing if a key is taken. Only then does a transaction, with a round trip for each step,
//! find out which key stands for what. A repeat costs that statement in vain; looking at the keys
//! first would cost every set a round trip.

use std::collections::HashMap;

use chassis::{
    ids::{CustomerId, SessionId},
    sets::LARGE_SET,
};
use db::{
    Db, Grouped, Tx,
    idempotency::{IdempotencyKey, KeyUse, WantedKey},
    is_incomplete, is_retryable, is_unique_violation,
};

use crate::{
    contention::{ATTEMPTS_MAX, Attempt, Interruption, out_of_attempts},
    customer::{Customer, NamedPayer},
    directory,
    session::{Session, SessionStatus},
    store::{self, customers},
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

    /// While one waits for the disk, another can be written.
    const BESIDE_MIN: usize = LARGE_SET;

    async fn run_set(db: &Db, set: &[Self]) -> db::Result<Vec<CreationOutcome>> {
        if let Some(outcomes) = create_at_once(db, set).await? {
            return Ok(outcomes);
        }
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

/// Creates all of them by one statement. `None`: nothing was written, because a key is taken or wanted
/// twice, or because a customer changes or was added by somebody else.
async fn create_at_once(db: &Db, set: &[Creation]) -> db::Result<Option<Vec<CreationOutcome>>> {
    let mut sessions: Vec<Session> = set.iter().map(|one| one.session.clone()).collect();
    let Some(recognised) = directory::recognise(db, &named_payers(&sessions)).await? else {
        return Ok(None);
    };
    assign_customers(&mut sessions, recognised.customers);
    let wanted: Vec<WantedKey<'_>> = set.iter().map(Creation::wanted_key).collect();
    let added: Vec<&Customer> = recognised.added.iter().collect();
    let sessions: Vec<&Session> = sessions.iter().collect();
    let joint = store::KEYS.take_free_set(db.joint(), &wanted);
    let joint = customers::insert(joint, &added);
    match store::insert_sessions(joint, &sessions).run().await {
        Ok(()) => Ok(Some(set.iter().map(|_| CreationOutcome::Created).collect())),
        // In whichever order the parts run: a session whose answer was lost is there with its key.
        Err(error) if is_incomplete(&error) || is_unique_violation(&error) => Ok(None),
        // It waited in vain. The transaction finds out whether for its key.
        Err(error) if set.len() == 1 && is_retryable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds out what each key stands for, and creates what is new.
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
    let customers = directory::identify(tx, &named_payers(&first), &[]).await?;
    assign_customers(&mut first, customers);
    let first: Vec<&Session> = first.iter().collect();
    store::insert_sessions(tx.joint(), &first).run().await?;
    Ok(())
}

fn named_payers(sessions: &[Session]) -> Vec<NamedPayer> {
    let named = sessions.iter().map(|session| NamedPayer {
        merchant_id: session.merchant_id,
        payer: session.payer.clone(),
        named_at: session.created_at,
    });
    named.collect()
}

fn assign_customers(sessions: &mut [Session], customers: Vec<Option<CustomerId>>) {
    for (session, customer) in sessions.iter_mut().zip(customers) {
        session.customer_id = customer;
    }
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
