//! Endpoints whose merchants are to be told that deliveries are exhausted.

use chassis::{clock::Timestamp, ids::EndpointId};
use db::{Conn, Result};

use super::{Endpoint, endpoint_columns};

/// The one that has waited longest.
const UNTOLD: &str = concat!(
    "select ",
    endpoint_columns!(),
    " from endpoints
     where exhausted_since is not null and (told_until is null or told_until <= exhausted_since)
     order by exhausted_since limit 1"
);

pub async fn find_untold(conn: &mut Conn) -> Result<Option<Endpoint>> {
    conn.sql(UNTOLD).optional().await
}

/// Notes that the merchant was told, and until when that is enough.
pub async fn told(conn: &mut Conn, endpoint: EndpointId, until: Timestamp) -> Result<()> {
    conn.sql("update endpoints set told_until = $2 where endpoint_id = $1")
        .bind(endpoint)
        .bind(until)
        .run()
        .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn untold_endpoints_are_found_by_an_index() {
        let database = TestDb::new("webhooks-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, UNTOLD, "endpoints_exhausted").await;
        db.close().await;
    }
}
