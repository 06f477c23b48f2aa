//! SQL of attempts: which endpoints have work, claiming it, and recording how it ended.
//!
//! A delivery has one attempt at a time: whoever sets `claim` runs it, and it ends only under that
//! claim. The attempt's row is written in the transaction that claims.

use chassis::{clock::Timestamp, ids::EndpointId};
use db::{Db, Grouped, Result, Tx, Update};
use sqlx::FromRow;
use uuid::Uuid;

use super::first_of_all;
use crate::{
    delivery::{AttemptEnd, AttemptRun, AttemptVerdict},
    endpoint::Endpoint,
};

/// How many endpoints with work one query finds.
const ENDPOINTS_FOUND: i64 = 256;

/// How many expired claims one query finds.
const EXPIRED_FOUND: i64 = 256;

macro_rules! begun_columns {
    () => {
        "d.delivery_id, d.endpoint_id, d.event_id, d.event_type, d.status, d.failures,
         d.next_attempt_at, d.due_at, d.attempts_count, d.manual_running, d.claim, e.body,
         e.traceparent"
    };
}

/// An endpoint with a waiting delivery and room for more attempts.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct EndpointQueue {
    pub endpoint_id: EndpointId,
    /// When the first of its deliveries is due.
    pub due_at: Timestamp,
}

/// Endpoints that are switched on, have a waiting delivery (due or not), and have fewer than
/// `running_max` running attempts. Those with something due `now` come first, and of these, those
/// with the fewest running attempts.
///
/// Steps from endpoint to endpoint over an index, so that a long queue costs no more than a single
/// delivery.
pub async fn waiting(db: &Db, running_max: i64, now: Timestamp) -> Result<Vec<EndpointQueue>> {
    db.read()
        .await?
        .sql(
            "with recursive waiting (endpoint_id) as (
                 select (select endpoint_id from deliveries
                         where claim is null and due_at is not null
                         order by endpoint_id limit 1)
                 union all
                 select (select d.endpoint_id from deliveries d
                         where d.claim is null and d.due_at is not null
                           and d.endpoint_id > w.endpoint_id
                         order by d.endpoint_id limit 1)
                 from waiting w where w.endpoint_id is not null
             ),
             found as (
                 select e.endpoint_id,
                        (select d.due_at from deliveries d
                         where d.endpoint_id = e.endpoint_id
                           and d.claim is null and d.due_at is not null
                         order by d.due_at limit 1) as due_at,
                        (select count(*) from deliveries d
                         where d.endpoint_id = e.endpoint_id and d.claim is not null) as running
                 from waiting w join endpoints e on e.endpoint_id = w.endpoint_id
                 where e.enabled
             )
             select endpoint_id, due_at from found
             where due_at is not null and running < $1
             order by case when due_at <= $3 then 0 else 1 end, running, due_at limit $2",
        )
        .bind(running_max)
        .bind(ENDPOINTS_FOUND)
        .bind(now)
        .all()
        .await
}

/// What to claim, for which endpoint, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest {
    pub endpoint_id: EndpointId,
    /// Most attempts that may run to the endpoint, these included.
    pub running_max: i64,
    /// Most attempts to claim.
    pub limit: i64,
    /// Moved time.
    pub now: Timestamp,
    /// Real time.
    pub lease_until: Timestamp,
}

/// Begins attempts of what is due for one endpoint: claims the deliveries and records the
/// attempts. `None`: the endpoint is switched off, or another process is just claiming for it.
pub async fn begin(db: &Db, request: ClaimRequest) -> Result<Option<(Endpoint, Vec<AttemptRun>)>> {
    let claim = Uuid::new_v4();
    let mut tx = db.begin().await?;
    let endpoint: Option<Endpoint> = tx
        .sql(concat!(
            "select ",
            super::endpoint_columns!(),
            " from endpoints where endpoint_id = $1 and enabled for no key update skip locked"
        ))
        .bind(request.endpoint_id)
        .optional()
        .await?;
    let Some(endpoint) = endpoint else {
        return Ok(None);
    };
    // The lock on the endpoint keeps this count true until the commit.
    let (running,): (i64,) = tx
        .sql("select count(*) from deliveries where endpoint_id = $1 and claim is not null")
        .bind(request.endpoint_id)
        .one()
        .await?;
    tx.sql(
        "with due as materialized (
             select delivery_id from deliveries
             where endpoint_id = $1 and claim is null and due_at is not null and due_at <= $2
             order by due_at limit $3
             for update skip locked
         )
         update deliveries
         set claim = $4, lease_until = $5, attempts_count = attempts_count + 1,
             manual_running = (manual_waiting > 0),
             manual_waiting = case when manual_waiting > 0 then manual_waiting - 1 else 0 end
         where delivery_id in (select delivery_id from due)",
    )
    .bind(request.endpoint_id)
    .bind(request.now)
    .bind(request.limit.min(request.running_max - running).max(0))
    .bind(claim)
    .bind(request.lease_until)
    .run()
    .await?;
    tx.sql(
        "insert into attempts (delivery_id, number, manual, started_at, succeeded, duration_ms)
         select delivery_id, attempts_count, manual_running, $3, $4, 0
         from deliveries where endpoint_id = $1 and claim = $2",
    )
    .bind(request.endpoint_id)
    .bind(claim)
    .bind(request.now)
    .bind(false)
    .run()
    .await?;
    let begun = tx
        .sql(concat!(
            "select ",
            begun_columns!(),
            " from deliveries d join events e on e.event_id = d.event_id
              where d.endpoint_id = $1 and d.claim = $2"
        ))
        .bind(request.endpoint_id)
        .bind(claim)
        .all()
        .await?;
    tx.commit().await?;
    Ok(Some((endpoint, begun)))
}

/// Releases every lease ([`db::Schema::release_leases`]), so that its attempt counts as interrupted.
pub const RELEASE_LEASES: &str =
    "update deliveries set lease_until = '1970-01-01T00:00:00.000Z' where claim is not null";

/// Attempts whose lease is over, so that nobody runs them any more.
pub async fn expired(db: &Db, real_now: Timestamp) -> Result<Vec<AttemptRun>> {
    db.read()
        .await?
        .sql(concat!(
            "select ",
            begun_columns!(),
            " from deliveries d join events e on e.event_id = d.event_id
              where d.claim is not null and d.lease_until <= $1
              order by d.lease_until limit $2"
        ))
        .bind(real_now)
        .bind(EXPIRED_FOUND)
        .all()
        .await
}

impl Grouped for AttemptEnd {
    /// [`Update::NotThere`] means that the claim was lost to another.
    type Outcome = Update;

    async fn write(db: &Db, set: &[Self]) -> Result<Vec<Update>> {
        let mut tx = db.begin().await?;
        let mut written = Vec::new();
        for end in set {
            written.push(end_attempt(&mut tx, end).await?);
        }
        let ours = set.iter().zip(&written);
        let ours = ours.filter(|(_, written)| **written == Update::Updated);
        let mut ours: Vec<&Self> = ours.map(|(end, _)| end).collect();
        // Every replica locks endpoints in this order, and last, so that there is no deadlock.
        ours.sort_by_key(|end| (end.attempt.endpoint_id.uuid(), end.at));
        for ends in ours.chunk_by(|a, b| a.attempt.endpoint_id == b.attempt.endpoint_id) {
            let Some(first) = ends.first() else { continue };
            mark_endpoint(&mut tx, first.attempt.endpoint_id, ends).await?;
        }
        tx.commit().await?;
        Ok(written)
    }
}

/// Releases the delivery, in its new state, and completes the attempt's row.
async fn end_attempt(tx: &mut Tx, end: &AttemptEnd) -> Result<Update> {
    let (attempt, outcome, state) = (&end.attempt, &end.outcome, &end.state);
    let released = tx
        .sql(
            "update deliveries
             set claim = null, lease_until = null, status = $3, failures = $4,
                 next_attempt_at = $5, manual_waiting = manual_waiting + $6,
                 due_at = case when manual_waiting + $6 > 0 then $7 else $5 end
             where delivery_id = $1 and claim = $2",
        )
        .bind(attempt.delivery_id.clone())
        .bind(attempt.claim)
        .bind(state.status)
        .bind(state.failures)
        .bind(state.next_attempt_at)
        .bind(i64::from(state.manual_owed))
        .bind(first_of_all())
        .update()
        .await?;
    if released == Update::NotThere {
        return Ok(released);
    }
    tx.sql(
        "update attempts
         set finished_at = $3, succeeded = $4, http_status = $5, error = $6, duration_ms = $7,
             response_excerpt = $8
         where delivery_id = $1 and number = $2",
    )
    .bind(attempt.delivery_id.clone())
    .bind(attempt.attempts_count)
    .bind(end.at)
    .bind(outcome.verdict == AttemptVerdict::Succeeded)
    .bind(outcome.http_status.map(i64::from))
    .bind(outcome.error.clone())
    .bind(i64::try_from(outcome.duration.as_millis()).unwrap_or(i64::MAX))
    .bind(outcome.response_excerpt.clone())
    .run()
    .await?;
    Ok(released)
}

/// Records since when the endpoint's deliveries are exhausted: a success clears it, and the first
/// delivery exhausted after that sets it. `ends` are this endpoint's, in the order of time.
async fn mark_endpoint(tx: &mut Tx, endpoint_id: EndpointId, ends: &[&AttemptEnd]) -> Result<()> {
    let (mut has_success, mut exhausted_since) = (false, None);
    for end in ends {
        if end.outcome.verdict == AttemptVerdict::Succeeded {
            (has_success, exhausted_since) = (true, None);
        } else if end.is_exhausting() {
            exhausted_since = exhausted_since.or(Some(end.at));
        }
    }
    if has_success {
        tx.sql(
            "update endpoints set exhausted_since = null
             where endpoint_id = $1 and exhausted_since is not null",
        )
        .bind(endpoint_id)
        .run()
        .await?;
    }
    if exhausted_since.is_some() {
        tx.sql(
            "update endpoints set exhausted_since = $2
             where endpoint_id = $1 and exhausted_since is null",
        )
        .bind(endpoint_id)
        .bind(exhausted_since)
        .run()
        .await?;
    }
    Ok(())
}
