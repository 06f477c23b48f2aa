//! The customer directory: finds the customer that a payer is, or adds one. The rules are in
//! `customer.rs`.
//!
//! Runs inside the transaction that made the payer known.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
};
use db::{Insert, Result, Tx};

use crate::{
    customer::{Customer, Matches, Payer},
    store::customers,
};

/// `listed_at` before the first payment, in Unix milliseconds.
const NEVER: i64 = 0;

/// Returns the payer's entry, adding or completing it if need be. `None`: there is nothing to
/// recognise the payer by.
pub async fn identify(
    tx: &mut Tx,
    merchant: MerchantId,
    payer: &Payer,
    now: Timestamp,
) -> Result<Option<CustomerId>> {
    if !payer.is_identified() {
        return Ok(None);
    }
    let matches = customers::find_matches(tx, merchant, payer).await?;
    if let Some(known) = unchanged(&matches, payer) {
        return Ok(Some(known));
    }
    customers::lock_directory(tx, merchant).await?;
    // Again: somebody may have added the same payer before this had the lock.
    let matches = customers::find_matches(tx, merchant, payer).await?;
    match matches.recognise(payer) {
        Some(customer) => {
            customers::update_identity(tx, &customer).await?;
            Ok(Some(customer.customer_id))
        }
        None => add(tx, merchant, payer, now).await.map(Some),
    }
}

/// The usual case, which needs no lock: a returning payer about whom nothing is new.
fn unchanged(matches: &Matches, payer: &Payer) -> Option<CustomerId> {
    let recognised = matches.recognise(payer)?;
    (matches.recorded() == Some(&recognised)).then_some(recognised.customer_id)
}

async fn add(
    tx: &mut Tx,
    merchant: MerchantId,
    payer: &Payer,
    now: Timestamp,
) -> Result<CustomerId> {
    loop {
        let customer = Customer {
            customer_id: CustomerId::new(),
            merchant_id: merchant,
            phone: payer.phone.clone(),
            email: payer.email.clone(),
            email_key: payer.email_key(),
            name: payer.name.clone(),
            created_at: now,
            last_payment_at: None,
            payments_count: 0,
            listed_at: Timestamp::from_unix_millis(NEVER).expect("1970 is a time"),
        };
        // Another customer may have this id, which has only 50 random bits.
        if customers::insert(tx, &customer).await? == Insert::Inserted {
            return Ok(customer.customer_id);
        }
    }
}
