//! People, their memberships, authenticators and recovery codes.

use chassis::{
    clock::Timestamp,
    ids::{MerchantId, PersonId},
    sealed::SealedSecret,
};
use db::{Conn, Insert, Result, Tx, Update};

use crate::{
    password::PasswordHash,
    person::{EmailAddress, Membership, Person},
};

/// Writes a person unless somebody has this address.
pub async fn insert(tx: &mut Tx, person: &Person) -> Result<Insert> {
    tx.sql(
        "insert into people (person_id, email, password_hash, created_at) values ($1, $2, $3, $4)
         on conflict (email) do nothing",
    )
    .bind(person.person_id)
    .bind(person.email.clone())
    .bind(person.password_hash.clone())
    .bind(person.created_at)
    .insert()
    .await
}

pub async fn insert_membership(tx: &mut Tx, membership: &Membership) -> Result<()> {
    tx.sql(
        "insert into memberships (person_id, merchant_id, role, created_at)
         values ($1, $2, $3, $4)",
    )
    .bind(membership.person_id)
    .bind(membership.merchant_id)
    .bind(membership.role)
    .bind(membership.created_at)
    .run()
    .await
}

pub async fn find(conn: &mut Conn, person: PersonId) -> Result<Option<Person>> {
    conn.sql(
        "select person_id, email, verified_at, password_hash, totp_secret, totp_pending,
                totp_last_step, email_pending, created_at
         from people where person_id = $1",
    )
    .bind(person)
    .optional()
    .await
}

pub async fn find_by_email(conn: &mut Conn, email: &EmailAddress) -> Result<Option<Person>> {
    conn.sql(
        "select person_id, email, verified_at, password_hash, totp_secret, totp_pending,
                totp_last_step, email_pending, created_at
         from people where email = $1",
    )
    .bind(email.clone())
    .optional()
    .await
}

/// The person, whom nobody else changes until the transaction ends.
pub async fn lock(tx: &mut Tx, person: PersonId) -> Result<Option<Person>> {
    tx.sql(
        "select person_id, email, verified_at, password_hash, totp_secret, totp_pending,
                totp_last_step, email_pending, created_at
         from people where person_id = $1 for update",
    )
    .bind(person)
    .optional()
    .await
}

/// The merchant that a person looks at: their first.
pub async fn find_membership(conn: &mut Conn, person: PersonId) -> Result<Option<Membership>> {
    conn.sql(
        "select person_id, merchant_id, role, created_at from memberships
         where person_id = $1 order by created_at, merchant_id limit 1",
    )
    .bind(person)
    .optional()
    .await
}

pub async fn is_member(conn: &mut Conn, person: PersonId, merchant: MerchantId) -> Result<bool> {
    let found: Option<(PersonId,)> = conn
        .sql("select person_id from memberships where person_id = $1 and merchant_id = $2")
        .bind(person)
        .bind(merchant)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Notes that the address is the person's, and so are those of the merchants that they own under
/// the same address. Not there: it was noted before.
pub async fn verify(tx: &mut Tx, person: &Person, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update merchants set email_verified = true
         where lower(email) = $2 and merchant_id in (
             select merchant_id from memberships where person_id = $1 and role = 'OWNER'
         )",
    )
    .bind(person.person_id)
    .bind(person.email.clone())
    .run()
    .await?;
    tx.sql("update people set verified_at = $2 where person_id = $1 and verified_at is null")
        .bind(person.person_id)
        .bind(now)
        .update()
        .await
}

/// Sets the address that a person has asked for, or that they no longer ask for one.
pub async fn update_email_pending(
    tx: &mut Tx,
    person: PersonId,
    email: Option<&EmailAddress>,
) -> Result<()> {
    tx.sql("update people set email_pending = $2 where person_id = $1")
        .bind(person)
        .bind(email.cloned())
        .run()
        .await
}

/// Gives a person another address, which is known to be theirs, and so the merchants that they own
/// under the one before. Not there, or a unique violation: it is somebody's.
pub async fn update_email(
    tx: &mut Tx,
    person: &Person,
    email: &EmailAddress,
    now: Timestamp,
) -> Result<Update> {
    let updated = tx
        .sql(
            "update people set email = $2, verified_at = $3, email_pending = null
             where person_id = $1 and not exists (select 1 from people where email = $2)",
        )
        .bind(person.person_id)
        .bind(email.clone())
        .bind(now)
        .update()
        .await?;
    if updated == Update::Updated {
        tx.sql(
            "update merchants set email = $3, email_verified = true
             where lower(email) = $2 and merchant_id in (
                 select merchant_id from memberships where person_id = $1 and role = 'OWNER'
             )",
        )
        .bind(person.person_id)
        .bind(person.email.clone())
        .bind(email.clone())
        .run()
        .await?;
    }
    Ok(updated)
}

pub async fn update_password(tx: &mut Tx, person: PersonId, hash: &PasswordHash) -> Result<()> {
    tx.sql("update people set password_hash = $2 where person_id = $1")
        .bind(person)
        .bind(hash.clone())
        .run()
        .await
}

/// Writes back what [`lock`] read of the person's authenticator.
pub async fn update_totp(tx: &mut Tx, person: &Person) -> Result<()> {
    tx.sql(
        "update people set totp_secret = $2, totp_pending = $3, totp_last_step = $4
         where person_id = $1",
    )
    .bind(person.person_id)
    .bind(person.totp_secret.clone())
    .bind(person.totp_pending.clone())
    .bind(person.totp_last_step)
    .run()
    .await
}

/// The next people after this one who have secrets.
pub async fn list_with_secrets(conn: &mut Conn, after: PersonId) -> Result<Vec<Person>> {
    conn.sql(
        "select person_id, email, verified_at, password_hash, totp_secret, totp_pending,
                totp_last_step, email_pending, created_at
         from people
         where person_id > $1 and (totp_secret is not null or totp_pending is not null)
         order by person_id limit 100",
    )
    .bind(after)
    .all()
    .await
}

/// The keys with which secrets are encrypted.
pub async fn list_secrets(conn: &mut Conn) -> Result<Vec<SealedSecret>> {
    // The key's id is the beginning of the text, so a secret of each is enough.
    let found: Vec<(SealedSecret,)> = conn
        .sql(
            "select min(secret) from (
                 select totp_secret as secret from people where totp_secret is not null
                 union all
                 select totp_pending from people where totp_pending is not null
             ) as secrets
             group by substr(secret, 1, 8) limit 1000",
        )
        .all()
        .await?;
    Ok(found.into_iter().map(|(secret,)| secret).collect())
}

/// Replaces a person's recovery codes.
pub async fn replace_recovery_codes(
    tx: &mut Tx,
    person: PersonId,
    codes_sha256: &[String],
) -> Result<()> {
    tx.sql("delete from recovery_codes where person_id = $1")
        .bind(person)
        .run()
        .await?;
    for code in codes_sha256 {
        tx.sql("insert into recovery_codes (person_id, code_sha256) values ($1, $2)")
            .bind(person)
            .bind(code.clone())
            .run()
            .await?;
    }
    Ok(())
}

/// Uses up a recovery code. Not there: the person has no such code.
pub async fn take_recovery_code(
    tx: &mut Tx,
    person: PersonId,
    code_sha256: &str,
) -> Result<Update> {
    tx.sql("delete from recovery_codes where person_id = $1 and code_sha256 = $2")
        .bind(person)
        .bind(code_sha256.to_owned())
        .update()
        .await
}

pub async fn count_recovery_codes(conn: &mut Conn, person: PersonId) -> Result<i64> {
    let (count,) = conn
        .sql("select count(*) from recovery_codes where person_id = $1")
        .bind(person)
        .one::<(i64,)>()
        .await?;
    Ok(count)
}
