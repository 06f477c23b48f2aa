//! The wallets of transactions that were recorded before anybody told of them.

use chassis::ids::SessionId;
use db::{Conn, Result, Tx};
use uuid::Uuid;

use super::reports::lock_sessions;
use crate::transaction::{TransactionPlace, Wallet};

/// Transactions without a wallet, in their order, after a place.
pub async fn list_missing(
    conn: &mut Conn,
    (session, number): (Option<SessionId>, i64),
    limit: i64,
) -> Result<Vec<TransactionPlace>> {
    conn.sql(
        "select session_id, charge_number, transaction_id from transactions
         where provider is null and transaction_id is not null
             and (session_id, charge_number) > ($1, $2)
         order by session_id, charge_number limit $3",
    )
    .bind(session.map_or(Uuid::nil(), SessionId::uuid))
    .bind(number)
    .bind(limit)
    .all()
    .await
}

/// Adds wallets, without touching one that is there.
pub async fn add(tx: &mut Tx, wallets: &[(TransactionPlace, Wallet)]) -> Result<()> {
    // First, as whoever records does: so neither waits for a transaction that the other has.
    let sessions: Vec<SessionId> = wallets.iter().map(|(place, _)| place.session_id).collect();
    lock_sessions(tx, &sessions).await?;
    tx.sql_set(
        "given (session_id uuid, charge_number bigint, transaction_id uuid, provider text,
                last_four text)
         update transactions
         set provider = given.provider, payer_last_four = given.last_four
         from given
         where transactions.session_id = given.session_id
             and transactions.charge_number = given.charge_number
             and transactions.transaction_id = given.transaction_id
             and transactions.provider is null",
        wallets.len(),
    )
    .column(wallets.iter().map(|(place, _)| place.session_id))
    .column(wallets.iter().map(|(place, _)| place.charge_number))
    .column(wallets.iter().map(|(place, _)| place.transaction_id))
    .column(wallets.iter().map(|(_, wallet)| &wallet.provider))
    .column(wallets.iter().map(|(_, wallet)| &wallet.last_four))
    .run()
    .await
}
