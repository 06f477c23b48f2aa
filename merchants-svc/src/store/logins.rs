//! Logins, by the SHA-256 of their tokens.

use chassis::{
    clock::Timestamp,
    ids::{LoginId, PersonId},
};
use db::{Conn, Result, Tx, Update};

use crate::{
    login::{Ended, Lifetime, Login},
    person::EmailAddress,
    token::TokenSha256,
};

/// Most logins that are listed; nobody has more.
const LISTED: i64 = 100;

pub async fn insert(tx: &mut Tx, login: &Login, token: &TokenSha256) -> Result<()> {
    tx.sql(
        "insert into logins (login_id, person_id, token_sha256, needs_code, address, user_agent,
                             created_at, last_seen_at, confirmed_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(login.login_id)
    .bind(login.person_id)
    .bind(token.as_str().to_owned())
    .bind(login.needs_code)
    .bind(login.origin.address.clone())
    .bind(login.origin.user_agent.clone())
    .bind(login.created_at)
    .bind(login.last_seen_at)
    .bind(login.confirmed_at)
    .run()
    .await
}

/// A login that has not been ended.
pub async fn find(conn: &mut Conn, token: &TokenSha256) -> Result<Option<Login>> {
    conn.sql(
        "select login_id, person_id, needs_code, address, user_agent, created_at, last_seen_at,
                confirmed_at
         from logins where token_sha256 = $1 and ended_at is null",
    )
    .bind(token.as_str().to_owned())
    .optional()
    .await
}

/// Whether this was a whole login of whoever has this address, ended or not.
pub async fn was_of(conn: &mut Conn, token: &TokenSha256, email: &EmailAddress) -> Result<bool> {
    let found: Option<(LoginId,)> = conn
        .sql(
            "select login_id from logins join people on people.person_id = logins.person_id
             where token_sha256 = $1 and email = $2 and not needs_code",
        )
        .bind(token.as_str().to_owned())
        .bind(email.clone())
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Notes that a login was used.
pub async fn see(conn: &mut Conn, login: LoginId, now: Timestamp) -> Result<()> {
    conn.sql("update logins set last_seen_at = $2 where login_id = $1 and last_seen_at < $2")
        .bind(login)
        .bind(now)
        .run()
        .await
}

/// Notes that a password or a code was taken. Not there: the login was ended.
pub async fn confirm(tx: &mut Tx, login: LoginId, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update logins set confirmed_at = $2, last_seen_at = $2
         where login_id = $1 and ended_at is null",
    )
    .bind(login)
    .bind(now)
    .update()
    .await
}

/// A person's logins that are good for something, newest use first.
pub async fn list(
    conn: &mut Conn,
    person: PersonId,
    lifetime: Lifetime,
    now: Timestamp,
) -> Result<Vec<Login>> {
    conn.sql(
        "select login_id, person_id, needs_code, address, user_agent, created_at, last_seen_at,
                confirmed_at
         from logins
         where person_id = $1 and last_seen_at > $2 and created_at > $3
           and ended_at is null and not needs_code
         order by last_seen_at desc, login_id desc limit $4",
    )
    .bind(person)
    .bind(now - lifetime.idle)
    .bind(now - lifetime.most)
    .bind(LISTED)
    .all()
    .await
}

/// Ends logins of a person. Returns how many were not ended yet.
pub async fn end(tx: &mut Tx, person: PersonId, which: Ended, now: Timestamp) -> Result<u64> {
    let ending = match which {
        Ended::One(login) => tx
            .sql(
                "update logins set ended_at = $2
                 where person_id = $1 and login_id = $3 and ended_at is null",
            )
            .bind(person)
            .bind(now)
            .bind(login),
        Ended::AllBut(login) => tx
            .sql(
                "update logins set ended_at = $2
                 where person_id = $1 and login_id <> $3 and ended_at is null",
            )
            .bind(person)
            .bind(now)
            .bind(login),
        Ended::All => tx
            .sql("update logins set ended_at = $2 where person_id = $1 and ended_at is null")
            .bind(person)
            .bind(now),
    };
    ending.rows_affected().await
}

/// Forgets a person's logins, all but one: they are over, and their browsers are no longer known.
pub async fn delete(tx: &mut Tx, person: PersonId, kept: Option<LoginId>) -> Result<()> {
    tx.sql("delete from logins where person_id = $1 and ($2 is null or login_id <> $2)")
        .bind(person)
        .bind(kept)
        .run()
        .await
}

/// Whether the person has such a login, ended or not.
pub async fn exists(conn: &mut Conn, person: PersonId, login: LoginId) -> Result<bool> {
    let found: Option<(LoginId,)> = conn
        .sql("select login_id from logins where person_id = $1 and login_id = $2")
        .bind(person)
        .bind(login)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Whether this login of a person has not been ended.
pub async fn is_open(tx: &mut Tx, person: PersonId, login: LoginId) -> Result<bool> {
    let found: Option<(LoginId,)> = tx
        .sql(
            "select login_id from logins
             where person_id = $1 and login_id = $2 and ended_at is null",
        )
        .bind(person)
        .bind(login)
        .optional()
        .await?;
    Ok(found.is_some())
}
