//! All SQL on the customer directory.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
    page::{PageRequest, Span},
    phone::Phone,
};
use db::{Conn, Joint, Page, Result, Tx};

use crate::customer::{Customer, NamedPayer};

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
///
/// Each is looked for by a range and an order that only one index has. By an equation, all indexes of
/// a merchant's customers look alike while a table is small, and the plan is kept while it grows.
pub async fn find_alike(conn: &mut Conn, named: &[&NamedPayer]) -> Result<Vec<Customer>> {
    conn.sql_set(
        "given (of_merchant uuid, with_phone text, with_email text)
         select customer_id, merchant_id, phone, email, email_key, name, created_at,
                last_payment_at, payments_count, listed_at
         from customers where customer_id = any(array(
             select (
                 select customer_id from customers
                 where merchant_id = of_merchant and phone >= with_phone and phone <= with_phone
                 order by phone limit 1
             ) from given
             union all
             select (
                 select customer_id from customers
                 where merchant_id = of_merchant
                     and email_key >= with_email and email_key <= with_email
                 order by email_key limit 1
             ) from given
         ))",
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
    /// What a customer without a phone learns, unless another of the merchant's has it. Only under
    /// the directory's lock.
    pub wallet: Option<Phone>,
}

impl PaymentCount {
    pub fn one(customer_id: CustomerId, settled_at: Timestamp) -> Self {
        Self {
            customer_id,
            payments: 1,
            settled_at,
            wallet: None,
        }
    }
}

/// Counts payments, one row for each customer. An earlier one that is reported later does not move
/// the time back.
///
/// Others are counted, because PostgreSQL may hash a `not exists` here, and so read the whole table.
pub fn count_payments<'c>(joint: Joint<'c>, counts: &[PaymentCount]) -> Joint<'c> {
    joint
        .sql_set(
            "given (customer_id text, payments bigint, settled_at timestamptz, wallet text)
             update customers
             set phone = case when customers.phone is null and (
                                  select count(*) from customers other
                                  where other.merchant_id = customers.merchant_id
                                      and other.phone = given.wallet
                              ) = 0 then given.wallet else customers.phone end,
                 payments_count = payments_count + given.payments,
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
        .column(counts.iter().map(|count| count.wallet.clone()))
}

/// Which customers to list: those that have everything that is given.
#[derive(Clone, Debug)]
pub struct WantedCustomers {
    pub merchant_id: MerchantId,
    pub phone: Option<Phone>,
    /// In lower case.
    pub email_key: Option<String>,
}

macro_rules! columns {
    () => {
        "customer_id, merchant_id, phone, email, email_key, name, created_at, last_payment_at,
         payments_count, listed_at"
    };
}

macro_rules! listing {
    ($with:literal, $from:literal) => {
        concat!(
            $with,
            " select created_at as place_at, customer_id as place_id, ",
            columns!(),
            $from,
            "   and (created_at, customer_id) < ($2, $3)
                and (created_at, customer_id) >= ($4, $5)
                and (cast($7 as text) is null or phone = $7)
                and (cast($8 as text) is null or email_key = $8)
             order by created_at desc, customer_id desc limit $6"
        )
    };
}

const BY_TIME: &str = listing!("", " from customers where merchant_id = $1");

// The one customer is read, whatever else is wanted, so that no store prefers the index of all the
// merchant's customers.
const BY_PHONE: &str = listing!(
    "with found as materialized (
         select * from customers where merchant_id = $1 and phone = $7
     )",
    " from found where true"
);
const BY_EMAIL: &str = listing!(
    "with found as materialized (
         select * from customers where merchant_id = $1 and email_key = $8
     )",
    " from found where true"
);

/// A page of what is wanted, newest first.
pub async fn list(
    conn: &mut Conn,
    wanted: &WantedCustomers,
    page: &PageRequest<String>,
) -> Result<Page<Customer, String>> {
    let text = match (&wanted.phone, &wanted.email_key) {
        (Some(_), _) => BY_PHONE,
        (None, Some(_)) => BY_EMAIL,
        (None, None) => BY_TIME,
    };
    let Span { from, before } = &page.span;
    conn.sql(text)
        .bind(wanted.merchant_id)
        .bind(before.at)
        .bind(before.id.as_str())
        .bind(from.at)
        .bind(from.id.as_str())
        .bind(i64::from(page.size) + 1)
        .bind(wanted.phone.as_ref().map(Phone::as_e164))
        .bind(wanted.email_key.as_deref())
        .page(page.size)
        .await
}

/// A merchant's customer.
pub async fn find(
    conn: &mut Conn,
    merchant: MerchantId,
    id: &CustomerId,
) -> Result<Option<Customer>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from customers where customer_id = $1 and merchant_id = $2"
    ))
    .bind(id.as_str())
    .bind(merchant)
    .optional()
    .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index, plan};

    use super::*;

    #[tokio::test]
    async fn customers_are_listed_and_looked_up_by_index() {
        let database = TestDb::new("sessions-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, BY_TIME, "customers_newest").await;
        for (text, column) in [(BY_PHONE, "phone"), (BY_EMAIL, "email_key")] {
            let plan = plan(&db, text).await;
            let on_postgres = format!("customers_merchant_id_{column}_key");
            let on_sqlite = format!("(merchant_id=? AND {column}=?");
            let is_by_index = plan.contains(&on_postgres) || plan.contains(&on_sqlite);
            assert!(is_by_index, "{plan}");
        }
        db.close().await;
    }

    /// As the release before this one lists them, which runs beside it while it is rolled out.
    const BY_PAYMENT: &str = "select customer_id from customers
        where merchant_id = $1 and (listed_at, created_at, customer_id) < ($2, $3, $4)
        order by listed_at desc, created_at desc, customer_id desc limit $5";

    #[tokio::test]
    async fn the_release_before_still_lists_customers_by_index() {
        let database = TestDb::new("sessions-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, BY_PAYMENT, "customers_listed").await;
        db.close().await;
    }
}
