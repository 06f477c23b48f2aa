//! A merchant's own keys, and when keys are used.

use chassis::{
    clock::Timestamp,
    ids::{KeyId, MerchantId, PersonId},
    page::PageRequest,
};
use db::{Conn, Db, Insert, Page, Result, Tx};
use uuid::Uuid;

use crate::merchant::{KeyUse, NewKey, OwnKey};

/// How many keys of a merchant are live.
pub async fn count_live(tx: &mut Tx, merchant: MerchantId) -> Result<i64> {
    let (live,) = tx
        .sql("select count(*) from api_keys where merchant_id = $1 and revoked_at is null")
        .bind(merchant)
        .one::<(i64,)>()
        .await?;
    Ok(live)
}

/// Writes a key, unless one was made with this nonce.
pub async fn insert(tx: &mut Tx, key: &NewKey, person: PersonId, nonce: Uuid) -> Result<Insert> {
    tx.sql(
        "insert into api_keys (key_id, merchant_id, key_sha256, label, hint, created_at, created_by,
                               nonce)
         values ($1, $2, $3, $4, $5, $6, $7, $8)
         on conflict (merchant_id, nonce) do nothing",
    )
    .bind(key.record.key_id)
    .bind(key.record.merchant_id)
    .bind(key.sha256.clone())
    .bind(key.record.label.clone())
    .bind(key.record.hint.clone())
    .bind(key.record.created_at)
    .bind(person)
    .bind(nonce)
    .insert()
    .await
}

/// A live key is listed as if it were revoked last of all, so that it comes before all that are.
const LIST: &str = "select k.key_id, k.merchant_id, k.label, k.hint, k.created_at, k.revoked_at,
            k.last_used_at, p.email as created_by,
            coalesce(k.revoked_at, '9999-12-31T00:00:00.000Z') as place_at, k.key_id as place_id
     from api_keys k left join people p on p.person_id = k.created_by
     where k.merchant_id = $1
         and (coalesce(k.revoked_at, '9999-12-31T00:00:00.000Z'), k.key_id) < ($2, $3)
     order by coalesce(k.revoked_at, '9999-12-31T00:00:00.000Z') desc, k.key_id desc limit $4";

/// A page of a merchant's keys: live ones, newest first, then those that were revoked, the last of
/// them first.
pub async fn list(
    conn: &mut Conn,
    merchant: MerchantId,
    page: PageRequest<Uuid>,
) -> Result<Page<OwnKey, Uuid>> {
    conn.sql(LIST)
        .bind(merchant)
        .bind(page.span.before.at)
        .bind(page.span.before.id)
        .bind(i64::from(page.size) + 1)
        .page(page.size)
        .await
}

/// One of a merchant's keys.
pub async fn find(conn: &mut Conn, merchant: MerchantId, key: KeyId) -> Result<Option<OwnKey>> {
    conn.sql(
        "select k.key_id, k.merchant_id, k.label, k.hint, k.created_at, k.revoked_at,
                k.last_used_at, p.email as created_by
         from api_keys k left join people p on p.person_id = k.created_by
         where k.merchant_id = $1 and k.key_id = $2",
    )
    .bind(merchant)
    .bind(key)
    .optional()
    .await
}

/// Revokes one of a merchant's keys, unless it is.
pub async fn revoke(tx: &mut Tx, merchant: MerchantId, key: KeyId, now: Timestamp) -> Result<()> {
    tx.sql(
        "update api_keys set revoked_at = $3
         where merchant_id = $1 and key_id = $2 and revoked_at is null",
    )
    .bind(merchant)
    .bind(key)
    .bind(now)
    .run()
    .await
}

/// Notes when keys were used, unless they were used since.
pub async fn note_uses(db: &Db, uses: &[KeyUse]) -> Result<()> {
    let mut tx = db.begin().await?;
    tx.sql_set(
        "given (key_id uuid, at timestamptz)
         update api_keys set last_used_at = given.at from given
         where api_keys.key_id = given.key_id
           and (api_keys.last_used_at is null or api_keys.last_used_at < given.at)",
        uses.len(),
    )
    .column(uses.iter().map(|key_use| key_use.key_id))
    .column(uses.iter().map(|key_use| key_use.at))
    .run()
    .await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn keys_are_listed_by_an_index_that_is_in_their_order() {
        let database = TestDb::new("merchants-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, LIST, "api_keys_listed").await;
        db.close().await;
    }
}
