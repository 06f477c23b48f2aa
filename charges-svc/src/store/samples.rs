//! Samples of the charges of all merchants, by when they were made: their ids are UUIDv7, so the
//! primary key is in that order.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::MerchantId, provider::Provider};
use db::{Conn, Result};
use sqlx::FromRow;
use uuid::{Builder, Uuid};

use crate::charge::State;

/// What a sample holds of a charge.
#[derive(Clone, Debug, FromRow)]
pub struct Sampled {
    pub merchant_id: MerchantId,
    pub provider: Provider,
    pub state: State,
    pub created_at: Timestamp,
    /// When it ended, if it has.
    pub updated_at: Timestamp,
}

const SAMPLE: &str = "select merchant_id, provider, state, created_at, updated_at from charges
     where transaction_id >= $1 and transaction_id < $2
     order by transaction_id limit $3";

/// The first charges that were made from then on and before then, by real time, void or not.
pub async fn of(
    conn: &mut Conn,
    (from, before): (Timestamp, Timestamp),
    limit: i64,
) -> Result<Vec<Sampled>> {
    let sample = conn
        .sql(SAMPLE)
        .bind(first_id(from))
        .bind(first_id(before))
        .bind(limit);
    Ok(sample.known().await?.rows)
}

/// No id that was made then, or later, is smaller.
fn first_id(at: Timestamp) -> Uuid {
    let since: Duration = at.since(Timestamp::EPOCH);
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

#[cfg(test)]
mod tests {
    use chassis::ids::ChargeId;
    use db::testing::{TestDb, plan};

    use super::*;

    #[test]
    fn ids_are_in_the_order_of_time() {
        let at = |at: &str| first_id(at.parse().expect("a timestamp"));
        let id = ChargeId::new().uuid();
        assert!(at("2026-01-31T09:00:00.000Z") < id);
        assert!(id < at("2096-01-31T09:00:00.000Z"));
        let moment = at("2026-01-31T09:00:00.000Z");
        assert!(moment < at("2026-01-31T09:00:00.001Z"));
    }

    #[tokio::test]
    async fn a_sample_is_read_by_the_primary_key_and_nothing_is_sorted() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, SAMPLE).await;
        let is_by_key =
            plan.contains("charges_pkey") || plan.contains("sqlite_autoindex_charges_1");
        assert!(is_by_key, "{plan}");
        for costly in ["SCAN charges", "Seq Scan", "Sort", "TEMP B-TREE"] {
            assert!(!plan.contains(costly), "{plan}");
        }
        db.close().await;
    }
}
