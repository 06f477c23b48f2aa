//! Endpoints whose merchants are to be told that deliveries are exhausted.

use chassis::{clock::Timestamp, ids::EndpointId};
use db::{Conn, Result};
use sqlx::FromRow;

use super::endpoint_columns;
use crate::endpoint::Endpoint;

/// The one whose merchant may be told first.
const UNTOLD: &str = concat!(
    "select ",
    endpoint_columns!(),
    ", told_until from endpoints
     where exhausted_since is not null and (told_since is null or told_since <> exhausted_since)
     order by case when told_until > exhausted_since then told_until else exhausted_since end
     limit $1"
);

/// An endpoint whose merchant has not been told since when deliveries are exhausted.
#[derive(Debug, FromRow)]
pub struct Untold {
    #[sqlx(flatten)]
    pub endpoint: Endpoint,
    /// Until when it is not told again.
    told_until: Option<Timestamp>,
}

impl Untold {
    pub fn since(&self) -> Option<Timestamp> {
        self.endpoint.exhausted_since
    }

    /// When its merchant is to be told.
    pub fn due(&self) -> Option<Timestamp> {
        let since = self.since()?;
        Some(self.told_until.map_or(since, |until| until.max(since)))
    }
}

pub async fn find_untold(conn: &mut Conn) -> Result<Option<Untold>> {
    conn.sql(UNTOLD).bind(1_i64).optional().await
}

/// Notes of what the merchant was told, and until when that is enough.
pub async fn told(
    conn: &mut Conn,
    endpoint: EndpointId,
    since: Timestamp,
    until: Timestamp,
) -> Result<()> {
    conn.sql("update endpoints set told_since = $2, told_until = $3 where endpoint_id = $1")
        .bind(endpoint)
        .bind(since)
        .bind(until)
        .run()
        .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, plan};

    use super::*;

    #[tokio::test]
    async fn untold_endpoints_are_found_by_an_index() {
        let database = TestDb::new("webhooks-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, UNTOLD).await;
        assert!(plan.contains("endpoints_exhausted"), "{plan}");
        db.close().await;
    }
}
