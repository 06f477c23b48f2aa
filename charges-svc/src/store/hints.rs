//! Callbacks that wait for their rail's answer to a query.
//!
//! Promise: only an answer to a query that began after a callback ends it. Whoever writes a charge
//! without having queried its rail leaves these columns alone. During a query the callback is not
//! due; if the process dies then, it is due again when the lease ends.

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, RailReference},
};
use db::{Conn, Result, Tx, Update};
use rails::RailName;

use super::evidence::{self, Statement};
use crate::charge::Claim;

/// How a callback says which charge it is about.
#[derive(Clone, Debug)]
pub enum About {
    /// By its address.
    Token(String),
    Reference(RailReference),
}

impl About {
    pub(super) fn token(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(token),
            Self::Reference(_) => None,
        }
    }

    pub(super) fn reference(&self) -> Option<RailReference> {
        match self {
            Self::Token(_) => None,
            Self::Reference(reference) => Some(*reference),
        }
    }
}

/// The charge that a callback is about, unless it is void.
pub async fn find(conn: &mut Conn, rail: RailName, about: &About) -> Result<Option<ChargeId>> {
    let found = find_set(conn, &[(rail, about)]).await?;
    Ok(found.first().map(|(_, id)| *id))
}

/// The charges that these callbacks are about, each with the place of its callback, without void
/// ones. Each is looked for by a range and an order that only one index has: by an equation, a small
/// table looks best read whole, and the plan is kept while it grows.
pub async fn find_set(
    conn: &mut Conn,
    called: &[(RailName, &About)],
) -> Result<Vec<(i64, ChargeId)>> {
    let finding = conn.sql_set(
        "given (place bigint, from_rail text, token text, reference_there uuid)
         select place, coalesce((
             select transaction_id from charges
             where callback_token >= token and callback_token <= token
                 and rail = from_rail and state <> 'VOID'
             order by callback_token limit 1
         ), (
             select transaction_id from charges
             where rail_reference >= reference_there and rail_reference <= reference_there
                 and rail = from_rail and state <> 'VOID'
             order by rail_reference limit 1
         )) from given",
        called.len(),
    );
    let found: Vec<(i64, Option<ChargeId>)> = finding
        .column((0..).zip(called).map(|(place, _)| place))
        .column(called.iter().map(|(rail, _)| *rail))
        .column(called.iter().map(|(_, about)| about.token()))
        .column(called.iter().map(|(_, about)| about.reference()))
        .all()
        .await?;
    let found = found.into_iter();
    Ok(found.filter_map(|(place, id)| Some((place, id?))).collect())
}

/// A charge that its rail has called back about.
#[derive(Clone, Debug)]
pub struct Called {
    pub id: ChargeId,
    pub at: Timestamp,
    /// The rail's words, for operators.
    pub rail_text: Option<String>,
    /// When its rail is to be queried: at once, or when the query that now begins has no end.
    pub due_at: Timestamp,
    /// Who holds it from then on.
    pub claim: Claim,
}

/// Like [`put`] for charges that the transaction has locked, with the evidence that their rail
/// called back.
pub async fn put_set(tx: &mut Tx, called: &[&Called]) -> Result<()> {
    let said = called.iter();
    let said: Vec<_> = said
        .map(|one| (one.id, Statement::callback(one.rail_text.clone(), one.at)))
        .collect();
    let said: Vec<_> = said.iter().map(|(id, said)| (*id, said)).collect();
    let putting = tx.joint().sql_set(
        "given (id uuid, at timestamptz, due_at timestamptz, held_until timestamptz,
                held_by uuid)
         update charges set hints = hints + 1, hinted_at = given.at, hint_due_at = given.due_at,
             lease_until = given.held_until, fence = given.held_by
         from given
         where transaction_id = any(array(select id from given))
             and transaction_id = given.id",
        called.len(),
    );
    let putting = putting
        .column(called.iter().map(|one| one.id))
        .column(called.iter().map(|one| one.at))
        .column(called.iter().map(|one| one.due_at))
        .column(called.iter().map(|one| one.claim.lease_until))
        .column(called.iter().map(|one| one.claim.fence));
    evidence::keep_set(putting, &said).run().await
}

/// Makes the rail's query of the charge due at once. Returns [`Update::NotThere`] if the charge is
/// void.
pub async fn put(tx: &mut Tx, id: ChargeId, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update charges set hints = hints + 1, hinted_at = $2, hint_due_at = $2
         where transaction_id = $1 and state <> 'VOID'",
    )
    .bind(id)
    .bind(now)
    .update()
    .await
}
