//! Mails that wait to be sent.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    ids::{MerchantId, PersonId},
};
use db::{Db, Result, Tx, Update};
use uuid::Uuid;

use crate::{
    mail::{Mail, MailKind, NewMail},
    person::EmailAddress,
};

/// Releases every mail ([`db::Schema::release_leases`]).
pub const RELEASE_LEASES: &str =
    "update mails set claim = null, lease_until = null where claim is not null";

/// Since when the oldest mail has waited ([`db::Frame::show_oldest`]). Ids follow the time; due times
/// do not, because what is tried again is due later.
pub const OLDEST: &str = "select created_at from mails order by mail_id limit 1";

/// Most people of a merchant who are mailed at once; nobody has more.
const PEOPLE_MAILED: i64 = 100;

/// Writes a mail in the transaction that makes true what it tells. The sender finds it within a
/// second, or at once if it is rung.
pub async fn insert(tx: &mut Tx, mail: &NewMail) -> Result<()> {
    tx.sql(
        "insert into mails (mail_id, person_id, kind, about, address, created_at, due_at, attempts,
                            recipient)
         values ($1, $2, $3, $4, $5, $6, $6, 0, $7)",
    )
    .bind(Uuid::now_v7())
    .bind(mail.person_id)
    .bind(mail.kind)
    .bind(mail.about.clone())
    .bind(mail.address.clone())
    .bind(mail.at)
    .bind(mail.recipient.clone())
    .run()
    .await
}

/// The same for everyone who belongs to a merchant. `address`: where the request came from; empty
/// if it was nobody of the merchant's.
pub async fn insert_for_merchant(
    tx: &mut Tx,
    merchant: MerchantId,
    kind: MailKind,
    (about, address): (&str, &str),
    now: Timestamp,
) -> Result<()> {
    let people: Vec<(PersonId,)> = tx
        .sql("select person_id from memberships where merchant_id = $1 order by person_id limit $2")
        .bind(merchant)
        .bind(PEOPLE_MAILED)
        .all()
        .await?;
    for (person_id,) in people {
        let mail = NewMail {
            person_id,
            kind,
            about: about.to_owned(),
            address: address.to_owned(),
            recipient: None,
            at: now,
        };
        insert(tx, &mail).await?;
    }
    Ok(())
}

/// The same for whoever has this address. Does nothing else if nobody has.
pub async fn insert_for_address(
    tx: &mut Tx,
    email: &EmailAddress,
    kind: MailKind,
    address: &str,
    now: Timestamp,
) -> Result<()> {
    tx.sql(
        "insert into mails (mail_id, person_id, kind, about, address, created_at, due_at, attempts)
         select $1, person_id, $2, '', $3, $4, $4, 0 from people where email = $5",
    )
    .bind(Uuid::now_v7())
    .bind(kind)
    .bind(address.to_owned())
    .bind(now)
    .bind(email.clone())
    .run()
    .await
}

/// When the next mail that nobody holds is due.
pub async fn next_due(db: &Db, clock: &Clock) -> Result<Option<Timestamp>> {
    let (due,): (Option<Timestamp>,) = db
        .read()
        .await?
        .sql("select min(due_at) from mails where lease_until is null or lease_until <= $1")
        .bind(clock.real_now())
        .one()
        .await?;
    Ok(due)
}

/// Claims up to `limit` mails that are due and that nobody holds, those that have waited longest
/// first.
pub async fn claim(
    db: &Db,
    clock: &Clock,
    limit: i64,
    lease: Duration,
) -> Result<db::KnownRows<Mail>> {
    let real_now = clock.real_now();
    db.write()
        .await?
        .sql(
            "with due as materialized (
                 select mail_id from mails
                 where due_at <= $1 and (lease_until is null or lease_until <= $2)
                 order by due_at limit $3
                 for update skip locked
             )
             update mails set claim = $4, lease_until = $5, attempts = attempts + 1
             where mail_id = any(array(select mail_id from due))
             returning mail_id, person_id, kind, about, address, recipient, created_at, attempts,
                       claim",
        )
        .bind(clock.now())
        .bind(real_now)
        .bind(limit)
        .bind(Uuid::new_v4())
        .bind(real_now + lease)
        .known()
        .await
}

/// Forgets a mail that was sent or given up. Not there: the claim was lost to another.
pub async fn delete(db: &Db, mail: &Mail) -> Result<Update> {
    db.write()
        .await?
        .sql("delete from mails where mail_id = $1 and claim = $2")
        .bind(mail.mail_id)
        .bind(mail.claim)
        .update()
        .await
}

/// Lets a mail go that was not sent.
pub async fn release(db: &Db, mail: &Mail, due: Timestamp) -> Result<Update> {
    db.write()
        .await?
        .sql(
            "update mails set claim = null, lease_until = null, due_at = $3
             where mail_id = $1 and claim = $2",
        )
        .bind(mail.mail_id)
        .bind(mail.claim)
        .bind(due)
        .update()
        .await
}

/// Where a person's mail goes, and since when that is known to be theirs.
pub async fn addressee(
    db: &Db,
    person: PersonId,
) -> Result<Option<(EmailAddress, Option<Timestamp>)>> {
    db.read()
        .await?
        .sql("select email, verified_at from people where person_id = $1")
        .bind(person)
        .optional()
        .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, plan};

    use super::*;

    #[tokio::test]
    async fn however_many_wait_the_oldest_is_read_by_the_primary_key() {
        let database = TestDb::new("merchants-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, OLDEST).await;
        let is_by_key = plan.contains("mails_pkey") || plan.contains("sqlite_autoindex_mails_1");
        assert!(is_by_key, "{plan}");
        for costly in ["Seq Scan", "Sort", "TEMP B-TREE"] {
            assert!(!plan.contains(costly), "{plan}");
        }
        db.close().await;
    }
}
