//! Links that were mailed.

use chassis::{clock::Timestamp, ids::PersonId};
use db::{Conn, Db, Result, Tx, Update};

use crate::{link::LinkPurpose, person::EmailAddress, token::TokenSha256};

/// A link that is about to be mailed. `email` is where, if that is to become the person's address.
pub async fn insert(
    db: &Db,
    token: &TokenSha256,
    person_id: PersonId,
    purpose: LinkPurpose,
    email: Option<&EmailAddress>,
    expires_at: Timestamp,
) -> Result<()> {
    db.write()
        .await?
        .sql(
            "insert into links (token_sha256, person_id, purpose, email, expires_at)
             values ($1, $2, $3, $4, $5)",
        )
        .bind(token.as_str().to_owned())
        .bind(person_id)
        .bind(purpose)
        .bind(email.cloned())
        .bind(expires_at)
        .run()
        .await
}

/// Whose link this is, if it is still good: a used one is not.
pub async fn find(
    conn: &mut Conn,
    token: &TokenSha256,
    purpose: LinkPurpose,
    now: Timestamp,
) -> Result<Option<PersonId>> {
    let found: Option<(PersonId,)> = conn
        .sql(
            "select person_id from links
             where token_sha256 = $1 and purpose = $2 and expires_at > $3 and used_at is null",
        )
        .bind(token.as_str().to_owned())
        .bind(purpose)
        .bind(now)
        .optional()
        .await?;
    Ok(found.map(|(person_id,)| person_id))
}

/// Whose address a link makes which, if it is still good.
pub async fn find_for_email(
    conn: &mut Conn,
    token: &TokenSha256,
    purpose: LinkPurpose,
    now: Timestamp,
) -> Result<Option<(PersonId, EmailAddress)>> {
    conn.sql(
        "select person_id, email from links
         where token_sha256 = $1 and purpose = $2 and expires_at > $3 and email is not null
             and used_at is null",
    )
    .bind(token.as_str().to_owned())
    .bind(purpose)
    .bind(now)
    .optional()
    .await
}

/// Uses up a link. Not there: it is no longer good.
pub async fn take(tx: &mut Tx, token: &TokenSha256, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update links set used_at = $2
         where token_sha256 = $1 and expires_at > $2 and used_at is null",
    )
    .bind(token.as_str().to_owned())
    .bind(now)
    .update()
    .await
}

/// Uses up every link that was mailed to a later address of the person's, to undo that change.
pub async fn end_later_reverts(
    tx: &mut Tx,
    token: &TokenSha256,
    person_id: PersonId,
    now: Timestamp,
) -> Result<()> {
    tx.sql(
        "update links set used_at = $3
         where person_id = $2 and purpose = $4 and used_at is null
             and expires_at >= (select expires_at from links where token_sha256 = $1)",
    )
    .bind(token.as_str().to_owned())
    .bind(person_id)
    .bind(now)
    .bind(LinkPurpose::RevertEmail)
    .run()
    .await
}

/// Uses up every link with which a person's password can be set.
pub async fn end_for_password(tx: &mut Tx, person_id: PersonId, now: Timestamp) -> Result<()> {
    tx.sql(
        "update links set used_at = $2
         where person_id = $1 and purpose in ($3, $4) and used_at is null",
    )
    .bind(person_id)
    .bind(now)
    .bind(LinkPurpose::ResetPassword)
    .bind(LinkPurpose::AcceptInvitation)
    .run()
    .await
}
