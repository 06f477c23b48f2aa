//! All SQL on the customer directory.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
};
use db::{Conn, Db, Joint, Result, Tx};

use crate::customer::{Customer, NamedPayer};

/// Later than any time, in Unix milliseconds: 9999-12-31T23:59:59.999Z.
const END_OF_TIME: i64 = 253_402_300_799_999;

/// Locks these merchants' directories: until the transaction ends, nobody else changes an identity
/// in them.
pub async fn lock_directories(tx: &mut Tx, merchants: &[MerchantId]) -> Result<()> {
    let _locked: Vec<(MerchantId,)> = tx
        .sql_set(
            "given (merchant_id uuid)
             select directories.merchant_id
             from given join directories on directories.merchant_id = given.merchant_id
             order by directories.merchant_id for no key update",
            merchants.len(),
        )
        .column(merchants.iter().copied())
        .all()
        .await?;
    Ok(())
}

/// The customers with the phone or the e-mail of one of these payers.
pub async fn find_alike(conn: &mut Conn, named: &[&NamedPayer]) -> Result<Vec<Customer>> {
    conn.sql_set(
        "given (merchant_id uuid, phone text, email_key text)
         select customers.customer_id, customers.merchant_id, customers.phone, customers.email,
                customers.email_key, customers.name, customers.created_at,
                customers.last_payment_at, customers.payments_count, customers.listed_at
         from given join customers
             on customers.merchant_id = given.merchant_id and customers.phone = given.phone
         union all
         select customers.customer_id, customers.merchant_id, customers.phone, customers.email,
                customers.email_key, customers.name, customers.created_at,
                customers.last_payment_at, customers.payments_count, customers.listed_at
         from given join customers
             on customers.merchant_id = given.merchant_id
             and customers.email_key = given.email_key",
        named.len(),
    )
    .column(named.iter().map(|named| named.merchant_id))
    .column(named.iter().map(|named| named.payer.phone.clone()))
    .column(named.iter().map(|named| named.payer.email_key()))
    .all()
    .await
}

/// Adds customers, and their merchants' directories. Nothing is written if another customer has the
/// phone or e-mail of one by now, or its id, which is short.
pub fn insert<'c>(joint: Joint<'c>, added: &[&Customer]) -> Joint<'c> {
    // In one order everywhere, so that two sets never wait for each other.
    let mut added = added.to_vec();
    added.sort_by_key(|customer| {
        (
            customer.merchant_id,
            customer.phone.as_ref().map(|phone| phone.as_e164()),
            &customer.email_key,
        )
    });
    joint
        .sql_set(
            "given (merchant_id uuid)
             insert into directories (merchant_id)
             select given.merchant_id from given where true
             on conflict (merchant_id) do nothing",
            added.len(),
        )
        .column(added.iter().map(|customer| customer.merchant_id))
        .sql_set(
            "given (customer_id text, merchant_id uuid, phone text, email text, email_key text,
                    name text, created_at timestamptz, last_payment_at timestamptz,
                    payments_count bigint, listed_at timestamptz)
             insert into customers
                 (customer_id, merchant_id, phone, email, email_key, name, created_at,
                  last_payment_at, payments_count, listed_at)
             select given.customer_id, given.merchant_id, given.phone, given.email,
                    given.email_key, given.name, given.created_at, given.last_payment_at,
                    given.payments_count, given.listed_at
             from given where true
             on conflict do nothing",
            added.len(),
        )
        .column(added.iter().map(|customer| customer.customer_id.clone()))
        .column(added.iter().map(|customer| customer.merchant_id))
        .column(added.iter().map(|customer| customer.phone.clone()))
        .column(added.iter().map(|customer| customer.email.clone()))
        .column(added.iter().map(|customer| customer.email_key.clone()))
        .column(added.iter().map(|customer| customer.name.clone()))
        .column(added.iter().map(|customer| customer.created_at))
        .column(added.iter().map(|customer| customer.last_payment_at))
        .column(added.iter().map(|customer| customer.payments_count))
        .column(added.iter().map(|customer| customer.listed_at))
        .whole()
}

/// Writes what identifies and names these customers. Only under their directories' locks.
pub async fn update_identities(tx: &mut Tx, changed: &[&Customer]) -> Result<()> {
    tx.sql_set(
        "given (customer_id text, phone text, email text, email_key text, name text)
         update customers set phone = given.phone, email = given.email,
                email_key = given.email_key, name = given.name
         from given where customers.customer_id = given.customer_id",
        changed.len(),
    )
    .column(changed.iter().map(|customer| customer.customer_id.clone()))
    .column(changed.iter().map(|customer| customer.phone.clone()))
    .column(changed.iter().map(|customer| customer.email.clone()))
    .column(changed.iter().map(|customer| customer.email_key.clone()))
    .column(changed.iter().map(|customer| customer.name.clone()))
    .run()
    .await
}

/// What a customer paid.
#[derive(Clone, Debug)]
pub struct PaymentCount {
    pub customer_id: CustomerId,
    pub payments: i64,
    /// When the latest of them settled.
    pub settled_at: Timestamp,
}

/// Counts payments, one row for each customer. An earlier one that is reported later does not move
/// the time back.
pub fn count_payments<'c>(joint: Joint<'c>, counts: &[PaymentCount]) -> Joint<'c> {
    joint
        .sql_set(
            "given (customer_id text, payments bigint, settled_at timestamptz)
             update customers
             set payments_count = payments_count + given.payments,
                 last_payment_at = case when listed_at < given.settled_at then given.settled_at
                                        else last_payment_at end,
                 listed_at = case when listed_at < given.settled_at then given.settled_at
                                  else listed_at end
             from given where customers.customer_id = given.customer_id",
            counts.len(),
        )
        .column(counts.iter().map(|count| count.customer_id.clone()))
        .column(counts.iter().map(|count| count.payments))
        .column(counts.iter().map(|count| count.settled_at))
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
