//! The customer directory: finds the customers that payers are, or adds them. The rules are in
//! `customer.rs`.
//!
//! Entries change in the transaction that made the payers known, under the directory's lock, because
//! the change follows from what was read. Additions need no lock: nobody else can add the same phone
//! or e-mail, whose columns are unique. Nor does finding an entry, whose phone and e-mail never become
//! another's.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
};
use db::{Conn, Db, Result, Tx, is_incomplete};

use crate::{
    contention::{Attempt, Interruption},
    customer::{Customer, Matches, NamedPayer, Payer},
    store::customers,
};

/// `listed_at` before the first payment, in Unix milliseconds.
const NEVER: i64 = 0;

/// Returns the entry of each payer, as if they had been named one after the other, adding or
/// completing it if need be. `None`: there is nothing to recognise the payer by. Leaves these other
/// merchants' directories locked as well: an entry in them is to learn a wallet.
pub async fn identify(
    tx: &mut Tx,
    named: &[NamedPayer],
    learning: &[MerchantId],
) -> Attempt<Vec<Option<CustomerId>>> {
    let is_anybody_identified = named.iter().any(|named| named.payer.is_identified());
    if !is_anybody_identified && learning.is_empty() {
        return Ok(vec![None; named.len()]);
    }
    let (mut entries, mut ids) = look(tx, named).await?;
    let mut changing = entries.merchants_with(Entry::is_changed);
    changing.extend(learning);
    if !changing.is_empty() {
        // In one order everywhere, so that two sets never wait for each other.
        changing.sort();
        changing.dedup();
        customers::lock_directories(tx, &changing).await?;
        // Again: somebody may have changed the same entries before this had the locks.
        (entries, ids) = look(tx, named).await?;
        let late = entries.merchants_with(Entry::is_changed);
        if !late.iter().all(|merchant| changing.contains(merchant)) {
            return Err(Interruption::Contended);
        }
    }
    let added = entries.customers_that(Entry::is_added);
    match customers::insert(tx.joint(), &added).run().await {
        Err(error) if is_incomplete(&error) => return Err(Interruption::Contended),
        inserted => inserted?,
    }
    let changed = entries.customers_that(Entry::is_changed);
    if !changed.is_empty() {
        customers::update_identities(tx, &changed).await?;
    }
    Ok(ids)
}

/// Who payers are, as long as none of them completes an entry.
#[derive(Debug, Default)]
pub struct Recognised {
    /// The entry of each.
    pub customers: Vec<Option<CustomerId>>,
    /// To be added with what names them.
    pub added: Vec<Customer>,
}

/// Like [`identify`], but leaves adding to the caller, whose write fails if somebody else was
/// quicker. `None`: an entry changes, which takes its directory's lock.
pub async fn recognise(db: &Db, named: &[NamedPayer]) -> Result<Option<Recognised>> {
    if !named.iter().any(|named| named.payer.is_identified()) {
        return Ok(Some(Recognised {
            customers: vec![None; named.len()],
            added: Vec::new(),
        }));
    }
    let (entries, customers) = look(&mut db.read().await?, named).await?;
    if entries.0.iter().any(Entry::is_changed) {
        return Ok(None);
    }
    let added = entries.0.into_iter().filter(Entry::is_added);
    Ok(Some(Recognised {
        customers,
        added: added.map(|entry| entry.customer).collect(),
    }))
}

/// Reads the entries that these payers may be, and recognises each.
async fn look(conn: &mut Conn, named: &[NamedPayer]) -> Result<(Entries, Vec<Option<CustomerId>>)> {
    let identified: Vec<&NamedPayer> = named
        .iter()
        .filter(|named| named.payer.is_identified())
        .collect();
    let found = customers::find_alike(conn, &identified).await?;
    let mut entries = Entries::of(found);
    let ids = named.iter().map(|named| entries.recognise(named)).collect();
    Ok((entries, ids))
}

/// The entries of a few payers, as they become when one payer after the other is recognised.
#[derive(Debug)]
struct Entries(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    customer: Customer,
    /// As it is recorded, if it is.
    recorded: Option<Customer>,
}

impl Entry {
    fn is_added(&self) -> bool {
        self.recorded.is_none()
    }

    fn is_changed(&self) -> bool {
        let recorded = self.recorded.as_ref();
        recorded.is_some_and(|recorded| *recorded != self.customer)
    }
}

impl Entries {
    fn of(found: Vec<Customer>) -> Self {
        let mut entries: Vec<Entry> = Vec::with_capacity(found.len());
        for customer in found {
            // Found by its phone and by its e-mail.
            if !entries
                .iter()
                .any(|entry| entry.customer.customer_id == customer.customer_id)
            {
                entries.push(Entry {
                    recorded: Some(customer.clone()),
                    customer,
                });
            }
        }
        Self(entries)
    }

    fn recognise(&mut self, named: &NamedPayer) -> Option<CustomerId> {
        let NamedPayer {
            merchant_id,
            payer,
            named_at,
        } = named;
        if !payer.is_identified() {
            return None;
        }
        let email_key = payer.email_key();
        let alike = |is_alike: &dyn Fn(&Customer) -> bool| {
            let mut customers = self.0.iter().map(|entry| &entry.customer);
            customers
                .find(|customer| customer.merchant_id == *merchant_id && is_alike(customer))
                .cloned()
        };
        let matches = Matches {
            by_phone: payer
                .phone
                .as_ref()
                .and_then(|phone| alike(&|customer| customer.phone.as_ref() == Some(phone))),
            by_email: email_key
                .as_ref()
                .and_then(|key| alike(&|customer| customer.email_key.as_ref() == Some(key))),
        };
        let Some(recognised) = matches.recognise(payer) else {
            let customer = new_customer(*merchant_id, payer, *named_at);
            let id = customer.customer_id.clone();
            self.0.push(Entry {
                customer,
                recorded: None,
            });
            return Some(id);
        };
        let id = recognised.customer_id.clone();
        let mut entries = self.0.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.customer.customer_id == id) {
            entry.customer = recognised;
        }
        Some(id)
    }

    fn customers_that(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<&Customer> {
        let meant = self.0.iter().filter(|entry| is_meant(entry));
        meant.map(|entry| &entry.customer).collect()
    }

    fn merchants_with(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<MerchantId> {
        let customers = self.customers_that(is_meant);
        customers
            .iter()
            .map(|customer| customer.merchant_id)
            .collect()
    }
}

fn new_customer(merchant_id: MerchantId, payer: &Payer, created_at: Timestamp) -> Customer {
    Customer {
        customer_id: CustomerId::new(),
        merchant_id,
        phone: payer.phone.clone(),
        email: payer.email.clone(),
        email_key: payer.email_key(),
        name: payer.name.clone(),
        created_at,
        last_payment_at: None,
        payments_count: 0,
        listed_at: Timestamp::from_unix_millis(NEVER).expect("1970 is a time"),
    }
}
