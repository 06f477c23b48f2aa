//! SQL of attempts: which endpoints have work, claiming it, and recording how it ended.
//!
//! A delivery has one attempt at a time: whoever sets `claim` runs it, and it ends only under that
//! claim. The attempt's row is written in the transaction that claims.

use std::collections::{HashMap, HashSet};

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EndpointId, MerchantId},
};
use db::{Db, Error, Grouped, Result, Tx, Update};
use sqlx::FromRow;
use uuid::Uuid;

use super::first_of_all;
use crate::{
    delivery::{AttemptEnd, AttemptRun},
    endpoint::Endpoint,
};

/// How many endpoints with work one query finds.
pub const ENDPOINTS_FOUND: i64 = 256;

/// How many expired claims one query finds.
const EXPIRED_FOUND: i64 = 256;

/// How long the end of an attempt waits for a lock: of a set only for a moment, because others wait
/// with it, and by itself as long as any statement.
const SET_LOCK_TIMEOUT: &str = "250ms";
const LOCK_TIMEOUT: &str = "2s";

/// What an attempt's row becomes when the attempt ends.
macro_rules! ended_attempt {
    () => {
        "set finished_at = given.finished_at, succeeded = given.succeeded,
             http_status = given.http_status, error = given.error,
             duration_ms = given.duration_ms, response_excerpt = given.response_excerpt,
             cause = given.cause, url = given.url, signature = given.signature"
    };
}

/// What a delivery becomes when its attempt ends. Its first parameter is when a delivery is due
/// that somebody asked for by hand.
macro_rules! released_delivery {
    () => {
        "set claim = null, lease_until = null, status = given.status,
             failures = given.failures, next_attempt_at = given.next_attempt_at,
             manual_waiting = deliveries.manual_waiting + given.manual_owed,
             due_at = case when deliveries.manual_waiting + given.manual_owed > 0 then $1
                           else given.next_attempt_at end"
    };
}

macro_rules! begun_columns {
    () => {
        "d.delivery_id, d.endpoint_id, d.merchant_id, d.event_id, d.event_type, d.status, d.failures,
         d.next_attempt_at, d.due_at, d.attempts_count, d.manual_running, d.claim, e.body,
         e.traceparent"
    };
}

/// `waiting`: endpoints with a waiting delivery, due or not. Steps from endpoint to endpoint over an
/// index, so that a long queue costs no more than a single delivery.
macro_rules! endpoints_with_work {
    () => {
        "waiting (endpoint_id) as (
             select (select endpoint_id from deliveries
                     where claim is null and due_at is not null
                     order by endpoint_id limit 1)
             union all
             select (select d.endpoint_id from deliveries d
                     where d.claim is null and d.due_at is not null
                       and d.endpoint_id > w.endpoint_id
                     order by d.endpoint_id limit 1)
             from waiting w where w.endpoint_id is not null
         )"
    };
}

/// Since when the first delivery is due to an endpoint that is switched on and to which no attempt
/// runs: others wait because of their endpoint, and these only for us. Or since when the lease of an
/// attempt is over, if nobody has noticed.
pub const OLDEST_DUE: &str = concat!(
    "with recursive ",
    endpoints_with_work!(),
    ", first as (
         select (select d.due_at from deliveries d
                 where d.endpoint_id = e.endpoint_id
                   and d.claim is null and d.due_at is not null
                 order by d.due_at limit 1) as due_at
         from waiting w join endpoints e on e.endpoint_id = w.endpoint_id
         where e.enabled
           and not exists (select 1 from deliveries d
                           where d.endpoint_id = e.endpoint_id and d.claim is not null)
     ),
     late as (
         select due_at from first
         union all
         select (select lease_until from deliveries
                 where claim is not null order by lease_until limit 1)
     )
     select due_at from late where due_at is not null order by due_at limit 1"
);

/// An endpoint with a waiting delivery and room for more attempts.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct EndpointQueue {
    pub merchant_id: MerchantId,
    /// When the first of its deliveries is due.
    pub due_at: Timestamp,
}

/// Endpoints that are switched on, have a waiting delivery (due or not), and have fewer than
/// `running_max` running attempts. Those with something due `now` come first, and of these, those
/// with the fewest running attempts.
pub async fn waiting(db: &Db, running_max: usize, now: Timestamp) -> Result<Vec<EndpointQueue>> {
    db.read()
        .await?
        .sql(concat!(
            "with recursive ",
            endpoints_with_work!(),
            ", found as (
                 select e.merchant_id,
                        (select d.due_at from deliveries d
                         where d.endpoint_id = e.endpoint_id
                           and d.claim is null and d.due_at is not null
                         order by d.due_at limit 1) as due_at,
                        (select count(*) from deliveries d
                         where d.endpoint_id = e.endpoint_id and d.claim is not null) as running
                 from waiting w join endpoints e on e.endpoint_id = w.endpoint_id
                 where e.enabled
             )
             select merchant_id, due_at from found
             where due_at is not null and running < $1
             order by case when due_at <= $3 then 0 else 1 end, running, due_at limit $2"
        ))
        .bind(bound(running_max))
        .bind(ENDPOINTS_FOUND)
        .bind(now)
        .all()
        .await
}

/// What to claim, and how much of it.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// For the endpoints of which merchants, and the most attempts to claim for each.
    pub endpoints: Vec<(MerchantId, usize)>,
    /// Most attempts that may run to one endpoint, these included.
    pub running_max: usize,
    /// Moved time.
    pub now: Timestamp,
    /// Real time.
    pub lease_until: Timestamp,
}

/// What was claimed for one endpoint: nothing if it is switched off.
#[derive(Debug)]
pub struct EndpointClaim {
    pub endpoint: Endpoint,
    /// Attempts that ran to it before, about.
    pub running: usize,
    pub attempts: Vec<AttemptRun>,
}

#[derive(FromRow)]
struct LockedEndpoint {
    #[sqlx(flatten)]
    endpoint: Endpoint,
    /// Only nearly true: others may have claimed just before the lock.
    running: i64,
}

/// Begins attempts of what is due for these endpoints: claims the deliveries and records the
/// attempts. Leaves out endpoints that others have locked at the moment.
pub async fn begin(db: &Db, request: &ClaimRequest) -> Result<Vec<EndpointClaim>> {
    let mut tx = db.begin().await?;
    let locked: Vec<LockedEndpoint> = tx
        .sql_set(
            concat!(
                "given (merchant_id uuid)
                 select ",
                super::endpoint_columns!(),
                ", (select count(*) from deliveries d
                    where d.endpoint_id = endpoints.endpoint_id and d.claim is not null) as running
                  from endpoints where merchant_id in (select merchant_id from given)
                  order by endpoint_id for no key update skip locked"
            ),
            request.endpoints.len(),
        )
        .column(
            request
                .endpoints
                .iter()
                .map(|(merchant_id, _)| *merchant_id),
        )
        .all()
        .await?;
    let most: HashMap<MerchantId, usize> = request.endpoints.iter().copied().collect();
    let mut claims = Vec::new();
    let mut limits = Vec::new();
    for LockedEndpoint { endpoint, running } in locked {
        let most = most.get(&endpoint.merchant_id).filter(|_| endpoint.enabled);
        limits.extend(most.map(|most| (endpoint.endpoint_id, bound(*most))));
        claims.push(EndpointClaim {
            endpoint,
            running: usize::try_from(running).unwrap_or_default(),
            attempts: Vec::new(),
        });
    }
    let begun = if tx.is_postgres() {
        begin_together(&mut tx, request, &limits).await?
    } else {
        begin_each(&mut tx, request, &limits).await?
    };
    tx.commit().await?;
    for attempt in begun {
        let ours = |claim: &&mut EndpointClaim| claim.endpoint.endpoint_id == attempt.endpoint_id;
        if let Some(claim) = claims.iter_mut().find(ours) {
            claim.attempts.push(attempt);
        }
    }
    Ok(claims)
}

fn bound(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// One statement for all endpoints, which only PostgreSQL understands: it spares most of the round
/// trips of [`begin_each`], to which it is equal. The locks on the endpoints keep the counts true
/// until the commit.
async fn begin_together(
    tx: &mut Tx,
    request: &ClaimRequest,
    limits: &[(EndpointId, i64)],
) -> Result<Vec<AttemptRun>> {
    tx.sql_set(
        "given (endpoint_id uuid, most bigint)
         with due as materialized (
             select d.delivery_id from given cross join lateral (
                 select delivery_id from deliveries
                 where endpoint_id = given.endpoint_id
                   and claim is null and due_at is not null and due_at <= $1
                 order by due_at
                 limit greatest(0, least(given.most, $2 - (
                     select count(*) from deliveries r
                     where r.endpoint_id = given.endpoint_id and r.claim is not null)))
                 for update skip locked
             ) d
         ),
         d as (
             update deliveries
             set claim = $3, lease_until = $4, attempts_count = attempts_count + 1,
                 manual_running = (manual_waiting > 0),
                 manual_waiting = case when manual_waiting > 0 then manual_waiting - 1 else 0 end
             where delivery_id = any(array(select delivery_id from due))
             returning *
         ),
         begun as (
             insert into attempts
                 (delivery_id, number, manual, started_at, succeeded, duration_ms)
             select delivery_id, attempts_count, manual_running, $1, $5, 0 from d
         )
         select d.delivery_id, d.endpoint_id, d.merchant_id, d.event_id, d.event_type, d.status,
                d.failures, d.next_attempt_at, d.due_at, d.attempts_count, d.manual_running, d.claim,
                e.body, e.traceparent
         from d join events e on e.event_id = d.event_id",
        limits.len(),
    )
    .bind(request.now)
    .bind(bound(request.running_max))
    .bind(Uuid::new_v4())
    .bind(request.lease_until)
    .bind(false)
    .column(limits.iter().map(|(endpoint_id, _)| *endpoint_id))
    .column(limits.iter().map(|(_, most)| *most))
    .all()
    .await
}

/// One endpoint after the other, in four statements each.
async fn begin_each(
    tx: &mut Tx,
    request: &ClaimRequest,
    limits: &[(EndpointId, i64)],
) -> Result<Vec<AttemptRun>> {
    let mut all = Vec::new();
    for (endpoint_id, most) in limits {
        let claim = Uuid::new_v4();
        let (running,): (i64,) = tx
            .sql("select count(*) from deliveries where endpoint_id = $1 and claim is not null")
            .bind(*endpoint_id)
            .one()
            .await?;
        tx.sql(
            "update deliveries
             set claim = $4, lease_until = $5, attempts_count = attempts_count + 1,
                 manual_running = (manual_waiting > 0),
                 manual_waiting = case when manual_waiting > 0 then manual_waiting - 1 else 0 end
             where delivery_id in (
                 select delivery_id from deliveries
                 where endpoint_id = $1 and claim is null and due_at is not null and due_at <= $2
                 order by due_at limit $3
             )",
        )
        .bind(*endpoint_id)
        .bind(request.now)
        .bind((*most).min(bound(request.running_max) - running).max(0))
        .bind(claim)
        .bind(request.lease_until)
        .run()
        .await?;
        tx.sql(
            "insert into attempts (delivery_id, number, manual, started_at, succeeded, duration_ms)
             select delivery_id, attempts_count, manual_running, $3, $4, 0
             from deliveries where endpoint_id = $1 and claim = $2",
        )
        .bind(*endpoint_id)
        .bind(claim)
        .bind(request.now)
        .bind(false)
        .run()
        .await?;
        let begun: Vec<AttemptRun> = tx
            .sql(concat!(
                "select ",
                begun_columns!(),
                " from deliveries d join events e on e.event_id = d.event_id
                  where d.endpoint_id = $1 and d.claim = $2"
            ))
            .bind(*endpoint_id)
            .bind(claim)
            .all()
            .await?;
        all.extend(begun);
    }
    Ok(all)
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

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Update>> {
        if db.is_postgres() && !set.iter().any(Self::is_exhausting) {
            return end_together(db, set).await;
        }
        let mut tx = db.begin().await?;
        let [ended, released] = end_attempts(&mut tx, set).await?;
        if released == ended && released == set.len() as u64 {
            tx.commit().await?;
            return Ok(vec![Update::Updated; set.len()]);
        }
        if set.len() == 1 {
            return Ok(vec![Update::NotThere]);
        }
        // Whose claim was lost shows when each is written by itself.
        Err(Error::RowNotFound)
    }
}

/// See [`end_together`].
const END_TOGETHER: &str = concat!(
    "given (delivery_id text, number bigint, claim uuid, endpoint_id uuid, status text,
            failures bigint, next_attempt_at timestamptz, manual_owed bigint,
            finished_at timestamptz, succeeded boolean, http_status bigint, error text,
            duration_ms bigint, response_excerpt text, cause text, url text, signature text)
     with patience as materialized (select set_config('lock_timeout', $2, true)),
     released as (
         update deliveries ",
    released_delivery!(),
    " from given, patience
         where deliveries.delivery_id = given.delivery_id
           and deliveries.claim = given.claim
         returning deliveries.delivery_id
     ),
     ended as (
         update attempts ",
    ended_attempt!(),
    " from given join released on released.delivery_id = given.delivery_id
         where attempts.delivery_id = given.delivery_id and attempts.number = given.number
     ),
     cleared as (
         update endpoints set exhausted_since = null
         where endpoint_id in (
             select endpoint_id from endpoints
             where exhausted_since is not null and endpoint_id in (
                 select given.endpoint_id
                 from given join released on released.delivery_id = given.delivery_id
                 where given.succeeded)
             order by endpoint_id for no key update)
     )
     select delivery_id from released"
);

/// One statement, which commits by itself and which only PostgreSQL understands: it spares most of
/// the round trips of [`end_attempts`], to which it is equal for ends that exhaust no delivery. What
/// a lost claim was for stays as it is, and the other ends of the set are recorded nevertheless.
async fn end_together(db: &Db, set: &[AttemptEnd]) -> Result<Vec<Update>> {
    let lock_timeout = if set.len() > 1 {
        SET_LOCK_TIMEOUT
    } else {
        LOCK_TIMEOUT
    };
    let released: Vec<(DeliveryId,)> = db
        .write()
        .await?
        .sql_set(END_TOGETHER, set.len())
        .bind(first_of_all())
        .bind(lock_timeout)
        .column(set.iter().map(|end| end.attempt.delivery_id.clone()))
        .column(set.iter().map(|end| end.attempt.attempts_count))
        .column(set.iter().map(|end| end.attempt.claim))
        .column(set.iter().map(|end| end.attempt.endpoint_id))
        .column(set.iter().map(|end| end.state.status))
        .column(set.iter().map(|end| end.state.failures))
        .column(set.iter().map(|end| end.state.next_attempt_at))
        .column(set.iter().map(|end| i64::from(end.state.manual_owed)))
        .column(set.iter().map(|end| end.at))
        .column(set.iter().map(AttemptEnd::is_success))
        .column(set.iter().map(|end| end.outcome.http_status.map(i64::from)))
        .column(set.iter().map(|end| end.outcome.error.clone()))
        .column(set.iter().map(AttemptEnd::duration_ms))
        .column(set.iter().map(|end| end.outcome.response_excerpt.clone()))
        .column(set.iter().map(|end| end.outcome.cause))
        .column(set.iter().map(AttemptEnd::url))
        .column(set.iter().map(AttemptEnd::signature))
        .all()
        .await?;
    let released: HashSet<DeliveryId> = released.into_iter().map(|(id,)| id).collect();
    let recorded = |end: &AttemptEnd| match released.contains(&end.attempt.delivery_id) {
        true => Update::Updated,
        false => Update::NotThere,
    };
    Ok(set.iter().map(recorded).collect())
}

/// Completes the attempts' rows, releases their deliveries, in their new state, and marks their
/// endpoints. Returns how many rows and deliveries were as expected; if one was not, nothing may be
/// committed.
async fn end_attempts(tx: &mut Tx, set: &[AttemptEnd]) -> Result<[u64; 2]> {
    let marks = EndpointMark::of(set);
    let [ended, released, _] = tx
        .joint()
        .sql_set(
            concat!(
                "given (delivery_id text, number bigint, finished_at timestamptz,
                        succeeded boolean, http_status bigint, error text, duration_ms bigint,
                        response_excerpt text, cause text, url text, signature text)
                 update attempts ",
                ended_attempt!(),
                " from given
                 where attempts.delivery_id = given.delivery_id
                   and attempts.number = given.number and attempts.finished_at is null"
            ),
            set.len(),
        )
        .column(set.iter().map(|end| end.attempt.delivery_id.clone()))
        .column(set.iter().map(|end| end.attempt.attempts_count))
        .column(set.iter().map(|end| end.at))
        .column(set.iter().map(AttemptEnd::is_success))
        .column(set.iter().map(|end| end.outcome.http_status.map(i64::from)))
        .column(set.iter().map(|end| end.outcome.error.clone()))
        .column(set.iter().map(AttemptEnd::duration_ms))
        .column(set.iter().map(|end| end.outcome.response_excerpt.clone()))
        .column(set.iter().map(|end| end.outcome.cause))
        .column(set.iter().map(AttemptEnd::url))
        .column(set.iter().map(AttemptEnd::signature))
        .sql_set(
            concat!(
                "given (delivery_id text, claim uuid, status text, failures bigint,
                        next_attempt_at timestamptz, manual_owed bigint)
                 update deliveries ",
                released_delivery!(),
                " from given
                 where deliveries.delivery_id = given.delivery_id
                   and deliveries.claim = given.claim"
            ),
            set.len(),
        )
        .bind(first_of_all())
        .column(set.iter().map(|end| end.attempt.delivery_id.clone()))
        .column(set.iter().map(|end| end.attempt.claim))
        .column(set.iter().map(|end| end.state.status))
        .column(set.iter().map(|end| end.state.failures))
        .column(set.iter().map(|end| end.state.next_attempt_at))
        .column(set.iter().map(|end| i64::from(end.state.manual_owed)))
        .sql_set(
            "given (endpoint_id uuid, has_success boolean, exhausted_since timestamptz)
             update endpoints
             set exhausted_since = given.exhausted_since
             from given
             where endpoints.endpoint_id = given.endpoint_id
               and ((given.has_success and endpoints.exhausted_since is not null)
                 or (given.exhausted_since is not null and endpoints.exhausted_since is null))",
            marks.len(),
        )
        .column(marks.iter().map(|mark| mark.endpoint_id))
        .column(marks.iter().map(|mark| mark.has_success))
        .column(marks.iter().map(|mark| mark.exhausted_since))
        .rows_affected()
        .await?;
    Ok([ended, released])
}

/// Since when an endpoint's deliveries are exhausted: a success clears it, and the first delivery
/// exhausted after that sets it.
struct EndpointMark {
    endpoint_id: EndpointId,
    has_success: bool,
    exhausted_since: Option<Timestamp>,
}

impl EndpointMark {
    /// What these ends mean for their endpoints, in the order in which every replica locks them.
    fn of(set: &[AttemptEnd]) -> Vec<Self> {
        let mut ends: Vec<&AttemptEnd> = set
            .iter()
            .filter(|end| end.is_success() || end.is_exhausting())
            .collect();
        ends.sort_by_key(|end| (end.attempt.endpoint_id.uuid(), end.at));
        let mut marks: Vec<Self> = Vec::new();
        for end in ends {
            let endpoint_id = end.attempt.endpoint_id;
            if marks
                .last()
                .is_none_or(|mark| mark.endpoint_id != endpoint_id)
            {
                marks.push(Self {
                    endpoint_id,
                    has_success: false,
                    exhausted_since: None,
                });
            }
            let Some(mark) = marks.last_mut() else {
                continue;
            };
            if end.is_success() {
                (mark.has_success, mark.exhausted_since) = (true, None);
            } else {
                mark.exhausted_since = mark.exhausted_since.or(Some(end.at));
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use db::testing::TestDb;

    use super::*;

    #[tokio::test]
    async fn only_what_waits_for_us_is_the_oldest() {
        let database = TestDb::new("webhooks-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let mut tx = db.begin().await.unwrap();
        let oldest = tx.sql(OLDEST_DUE).optional::<(Timestamp,)>().await;
        assert_eq!(oldest.unwrap(), None);
        // Its queue waits for what runs; nobody delivers to the second; the third has room.
        for (endpoint, is_enabled, due, leases) in [
            (1, true, 1, &[None, Some(at(9))][..]),
            (2, false, 2, &[None]),
            (3, true, 3, &[None]),
            (4, true, 4, &[None]),
        ] {
            insert(&mut tx, endpoint, is_enabled, at(due), leases).await;
        }
        let oldest = tx.sql(OLDEST_DUE).optional::<(Timestamp,)>().await;
        assert_eq!(oldest.unwrap(), Some((at(3),)));
        // Whoever held it is gone.
        insert(&mut tx, 5, true, at(5), &[Some(at(0))]).await;
        let oldest = tx.sql(OLDEST_DUE).optional::<(Timestamp,)>().await;
        assert_eq!(oldest.unwrap(), Some((at(0),)));
        drop(tx);
        db.close().await;
    }

    fn at(minute: u32) -> Timestamp {
        format!("2026-11-29T09:0{minute}:00.000Z").parse().unwrap()
    }

    /// An endpoint with deliveries: one that waits, or that somebody has claimed until then.
    async fn insert(
        tx: &mut Tx,
        endpoint: u128,
        is_enabled: bool,
        due_at: Timestamp,
        leases: &[Option<Timestamp>],
    ) {
        let endpoint = Uuid::from_u128(endpoint);
        tx.sql(
            "insert into endpoints (endpoint_id, merchant_id, url, events, enabled, secret,
                                    created_at, updated_at)
             values ($1, $1, '', '', $2, '', $3, $3)",
        )
        .bind(endpoint)
        .bind(is_enabled)
        .bind(due_at)
        .run()
        .await
        .unwrap();
        for (n, lease) in leases.iter().enumerate() {
            let id = format!("{endpoint} {n}");
            tx.sql(
                "insert into events (event_id, merchant_id, event_type, body, created_at)
                 values ($1, $2, '', '', $3)",
            )
            .bind(id.clone())
            .bind(endpoint)
            .bind(due_at)
            .run()
            .await
            .unwrap();
            tx.sql(
                "insert into deliveries (delivery_id, event_id, event_type, merchant_id,
                     endpoint_id, status, attempts_count, failures, manual_waiting, manual_running,
                     due_at, created_at, claim, lease_until)
                 values ($1, $1, '', $2, $2, 'PENDING', 0, 0, 0, false, $3, $3, $4, $5)",
            )
            .bind(id)
            .bind(endpoint)
            .bind(due_at)
            .bind(lease.map(|_| Uuid::from_u128(9)))
            .bind(*lease)
            .run()
            .await
            .unwrap();
        }
    }
}
