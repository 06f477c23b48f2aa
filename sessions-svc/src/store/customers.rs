//! All SQL on the customer directory.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
};
use db::{Conn, Db, Insert, Result, Tx};

use crate::customer::{Customer, Matches, Payer};

/// Later than any time, in Unix milliseconds: 9999-12-31T23:59:59.999Z.
const END_OF_TIME: i64 = 253_402_300_799_999;

/// Locks the merchant's directory: until the transaction ends, nobody else adds to it or changes
/// an identity in it.
pub async fn lock_directory(tx: &mut Tx, merchant: MerchantId) -> Result<()> {
    tx.sql(
        "insert into directories (merchant_id) values ($1) on conflict (merchant_id) do nothing",
    )
    .bind(merchant)
    .run()
    .await?;
    let _locked: (MerchantId,) = tx
        .sql("select merchant_id from directories where merchant_id = $1 for update")
        .bind(merchant)
        .one()
        .await?;
    Ok(())
}

pub async fn find_matches(conn: &mut Conn, merchant: MerchantId, payer: &Payer) -> Result<Matches> {
    let by_phone = conn
        .sql(
            "select customer_id, merchant_id, phone, email, email_key, name, created_at,
                    last_payment_at, payments_count, listed_at
             from customers where merchant_id = $1 and phone = $2",
        )
        .bind(merchant)
        .bind(payer.phone.clone())
        .optional()
        .await?;
    let by_email = conn
        .sql(
            "select customer_id, merchant_id, phone, email, email_key, name, created_at,
                    last_payment_at, payments_count, listed_at
             from customers where merchant_id = $1 and email_key = $2",
        )
        .bind(merchant)
        .bind(payer.email_key())
        .optional()
        .await?;
    Ok(Matches { by_phone, by_email })
}

/// Adds a customer. [`Insert::AlreadyThere`]: another customer has the id, which is short.
pub async fn insert(tx: &mut Tx, customer: &Customer) -> Result<Insert> {
    tx.sql(
        "insert into customers
             (customer_id, merchant_id, phone, email, email_key, name, created_at,
              last_payment_at, payments_count, listed_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         on conflict (customer_id) do nothing",
    )
    .bind(customer.customer_id.clone())
    .bind(customer.merchant_id)
    .bind(customer.phone.clone())
    .bind(customer.email.clone())
    .bind(customer.email_key.clone())
    .bind(customer.name.clone())
    .bind(customer.created_at)
    .bind(customer.last_payment_at)
    .bind(customer.payments_count)
    .bind(customer.listed_at)
    .insert()
    .await
}

/// Writes what identifies and names a customer.
pub async fn update_identity(tx: &mut Tx, customer: &Customer) -> Result<()> {
    tx.sql(
        "update customers set phone = $2, email = $3, email_key = $4, name = $5
         where customer_id = $1",
    )
    .bind(customer.customer_id.clone())
    .bind(customer.phone.clone())
    .bind(customer.email.clone())
    .bind(customer.email_key.clone())
    .bind(customer.name.clone())
    .run()
    .await
}

/// Counts a payment. An earlier one that is reported later does not move the time back.
pub async fn count_payment(tx: &mut Tx, id: &CustomerId, settled_at: Timestamp) -> Result<()> {
    tx.sql(
        "update customers
         set payments_count = payments_count + 1,
             last_payment_at = case when listed_at < $2 then $2 else last_payment_at end,
             listed_at = case when listed_at < $2 then $2 else listed_at end
         where customer_id = $1",
    )
    .bind(id.clone())
    .bind(settled_at)
    .run()
    .await
}

/// Where a page of a merchant's list starts: after this customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageStart {
    pub listed_at: Timestamp,
    pub created_at: Timestamp,
    pub customer_id: String,
}

impl PageStart {
    /// Before the first customer.
    pub fn first() -> Self {
        let end = Timestamp::from_unix_millis(END_OF_TIME).expect("it is within the years");
        Self {
            listed_at: end,
            created_at: end,
            customer_id: String::new(),
        }
    }
}

/// Up to `limit` customers after a place, last paid first; those who never paid come last, newest
/// first.
pub async fn list_after(
    db: &Db,
    merchant: MerchantId,
    place: &PageStart,
    limit: i64,
) -> Result<Vec<Customer>> {
    db.read()
        .await?
        .sql(
            "select customer_id, merchant_id, phone, email, email_key, name, created_at,
                    last_payment_at, payments_count, listed_at
             from customers
             where merchant_id = $1 and (listed_at, created_at, customer_id) < ($2, $3, $4)
             order by listed_at desc, created_at desc, customer_id desc
             limit $5",
        )
        .bind(merchant)
        .bind(place.listed_at)
        .bind(place.created_at)
        .bind(place.customer_id.clone())
        .bind(limit)
        .all()
        .await
}
