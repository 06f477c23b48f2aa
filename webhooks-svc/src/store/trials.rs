//! SQL of what merchants try: tests, and conformance runs.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::MerchantId};
use db::{Conn, Insert, Result, Tx, Update};

use crate::conformance::Run;

/// Starts one more trial of a merchant, unless `most` were started within the time.
pub async fn start(
    tx: &mut Tx,
    merchant_id: MerchantId,
    now: Timestamp,
    (most, within): (i64, Duration),
) -> Result<Insert> {
    tx.sql(
        "insert into trials (merchant_id, begun_at, started) values ($1, $2, 1)
         on conflict (merchant_id) do update
             set started = case when trials.begun_at > $3 then trials.started + 1 else 1 end,
                 begun_at = case when trials.begun_at > $3 then trials.begun_at
                                 else excluded.begun_at end
             where trials.begun_at <= $3 or trials.started < $4",
    )
    .bind(merchant_id)
    .bind(now)
    .bind(now - within)
    .bind(most)
    .insert()
    .await
}

/// Makes a run in the place of the merchant's last one, unless that runs.
pub async fn replace_run(tx: &mut Tx, run: &Run, real_now: Timestamp) -> Result<Insert> {
    tx.sql(
        "insert into conformance_runs (merchant_id, run_id, secret, results, created_at)
         values ($1, $2, $3, $4, $5)
         on conflict (merchant_id) do update
             set run_id = excluded.run_id, secret = excluded.secret, url = null,
                 results = excluded.results, lease_until = null, created_at = excluded.created_at,
                 finished_at = null
             where conformance_runs.lease_until is null or conformance_runs.lease_until <= $6
                 or conformance_runs.finished_at is not null",
    )
    .bind(run.merchant_id)
    .bind(run.run_id)
    .bind(run.secret.clone())
    .bind(run.results.clone())
    .bind(run.created_at)
    .bind(real_now)
    .insert()
    .await
}

pub async fn find_run(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<Run>> {
    conn.sql(
        "select merchant_id, run_id, secret, url, results, lease_until, created_at, finished_at
         from conformance_runs where merchant_id = $1",
    )
    .bind(merchant_id)
    .optional()
    .await
}

/// Starts a run that nobody has started.
pub async fn start_run(
    tx: &mut Tx,
    run: &Run,
    url: &str,
    lease_until: Timestamp,
) -> Result<Update> {
    tx.sql(
        "update conformance_runs set url = $3, lease_until = $4
         where merchant_id = $1 and run_id = $2 and lease_until is null and finished_at is null",
    )
    .bind(run.merchant_id)
    .bind(run.run_id)
    .bind(url)
    .bind(lease_until)
    .update()
    .await
}

/// Records how far a run has come.
pub async fn update_run(
    tx: &mut Tx,
    run: &Run,
    results: &str,
    lease_until: Timestamp,
    finished_at: Option<Timestamp>,
) -> Result<Update> {
    tx.sql(
        "update conformance_runs set results = $3, lease_until = $4, finished_at = $5
         where merchant_id = $1 and run_id = $2",
    )
    .bind(run.merchant_id)
    .bind(run.run_id)
    .bind(results)
    .bind(lease_until)
    .bind(finished_at)
    .update()
    .await
}

/// Ends the leases of runs ([`db::Schema::release_leases`]), which then count as interrupted.
pub const RELEASE_LEASES: &str =
    "update conformance_runs set lease_until = '1970-01-01T00:00:00.000Z'
    where lease_until is not null and finished_at is null";
