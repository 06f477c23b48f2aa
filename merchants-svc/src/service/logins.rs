//! Logging in and out, and proving again who one is.

use std::time::Duration;

use chassis::ids::PersonId;
use db::{Tx, Update};
use secrecy::SecretString;

use super::people::People;
use crate::{
    activity::{Action, Origin},
    error::Error,
    login::{BegunLogin, Ended, Identity, Login},
    password::{Lane, PasswordHash, Verdict},
    person::{EmailAddress, Person},
    store,
    token::{Token, TokenSha256},
    totp::TypedCode,
    tries::Tried,
};

/// How often a login's use is noted.
const SEEN_EVERY: Duration = Duration::from_mins(1);

/// What a person proves again who they are with.
#[derive(Debug)]
pub enum Proof {
    Password(SecretString),
    Code(TypedCode),
}

impl People {
    /// Begins a login. Does the same for an address that nobody has. `earlier` is a login that the
    /// browser had before.
    pub async fn log_in(
        &self,
        email: &EmailAddress,
        password: SecretString,
        earlier: Option<TokenSha256>,
        origin: Origin,
    ) -> Result<BegunLogin, Error> {
        let (tried, lane) = self.tried_as(email, earlier).await?;
        let (person, renewed) = self.check_password(email, password, &tried, lane).await?;
        let needs_code = person.totp_secret.is_some();
        let login = Login::begin(
            person.person_id,
            needs_code,
            origin.clone(),
            self.clock.now(),
        );
        let token = Token::new();
        let mut tx = self.db.begin().await?;
        let locked = store::people::lock(&mut tx, person.person_id).await?;
        // Changed since it was read: by another who knows the password, or has reset it.
        if locked.is_none_or(|now| {
            now.password_hash != person.password_hash || now.totp_secret != person.totp_secret
        }) {
            return Err(Error::WrongPassword);
        }
        if let Some(hash) = renewed {
            store::people::update_password(&mut tx, person.person_id, &hash).await?;
        }
        store::logins::insert(&mut tx, &login, &token.sha256()).await?;
        if !needs_code {
            self.note(&mut tx, person.person_id, Action::LoggedIn, origin)
                .await?;
        }
        store::tries::clear(&mut tx, &tried).await?;
        tx.commit().await?;
        Ok(BegunLogin { token, needs_code })
    }

    /// How the tries of a browser are counted: by themselves in one that had a login of whoever has
    /// this address, so that strangers who try it keep nobody out, and together in all others.
    async fn tried_as(
        &self,
        email: &EmailAddress,
        earlier: Option<TokenSha256>,
    ) -> Result<(Tried, Lane), Error> {
        if let Some(earlier) = earlier {
            let mut conn = self.db.read().await?;
            if store::logins::was_of(&mut conn, &earlier, email).await? {
                return Ok((Tried::password_after(email, &earlier), Lane::Known));
            }
        }
        Ok((Tried::password(email), Lane::Stranger))
    }

    /// Ends the login that waits for a code, and begins one that has passed it: whoever knew the
    /// first token does not know the second.
    pub async fn enter_code(
        &self,
        token: &TokenSha256,
        code: &TypedCode,
        origin: Origin,
    ) -> Result<BegunLogin, Error> {
        let waiting = self.find_login(token).await?;
        if !waiting.needs_code {
            return Err(Error::LoginEnded);
        }
        let person_id = waiting.person_id;
        let mut tx = self.begin_with_code(person_id, code, &origin).await?;
        let login = Login::begin(person_id, false, origin.clone(), self.clock.now());
        let token = Token::new();
        let which = Ended::One(waiting.login_id);
        if store::logins::end(&mut tx, person_id, which, self.clock.now()).await? == 0 {
            return Err(Error::LoginEnded);
        }
        store::logins::insert(&mut tx, &login, &token.sha256()).await?;
        self.note(&mut tx, person_id, Action::LoggedIn, origin)
            .await?;
        self.commit(tx).await?;
        Ok(BegunLogin {
            token,
            needs_code: false,
        })
    }

    /// Who is logged in.
    pub async fn get_login(&self, token: &TokenSha256) -> Result<Identity, Error> {
        let login = self.find_login(token).await?;
        let now = self.clock.now();
        if now >= login.last_seen_at + SEEN_EVERY {
            store::logins::see(&mut self.db.write().await?, login.login_id, now).await?;
        }
        self.identify(login).await
    }

    async fn identify(&self, login: Login) -> Result<Identity, Error> {
        let mut conn = self.db.read().await?;
        let person = store::people::find(&mut conn, login.person_id).await?;
        let person = person.ok_or(Error::LoginEnded)?;
        let membership = store::people::find_membership(&mut conn, login.person_id).await?;
        let membership = membership.ok_or(Error::LoginEnded)?;
        let codes = store::people::count_recovery_codes(&mut conn, login.person_id).await?;
        drop(conn);
        let merchant = store::find_merchant(&self.db, membership.merchant_id).await?;
        Ok(Identity {
            login,
            person,
            recovery_codes_left: codes,
            merchant: merchant.ok_or(Error::LoginEnded)?,
            role: membership.role,
        })
    }

    pub async fn log_out(&self, token: &TokenSha256) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        let Some(login) = store::logins::find(&mut tx, token).await? else {
            return Ok(());
        };
        let which = Ended::One(login.login_id);
        let now = self.clock.now();
        let ended = store::logins::end(&mut tx, login.person_id, which, now).await?;
        if ended > 0 && !login.needs_code {
            self.note(&mut tx, login.person_id, Action::LoggedOut, login.origin)
                .await?;
        }
        Ok(tx.commit().await?)
    }

    pub async fn list_logins(&self, person_id: PersonId) -> Result<Vec<Login>, Error> {
        let now = self.clock.now();
        let mut conn = self.db.read().await?;
        Ok(store::logins::list(&mut conn, person_id, self.lifetime, now).await?)
    }

    /// Returns how many were ended.
    pub async fn end_logins(
        &self,
        person_id: PersonId,
        which: Ended,
        origin: Origin,
    ) -> Result<u64, Error> {
        let mut tx = self.db.begin().await?;
        if let Ended::One(login) | Ended::AllBut(login) = which
            && !store::logins::exists(&mut tx, person_id, login).await?
        {
            return Err(Error::LoginNotFound);
        }
        let ended = store::logins::end(&mut tx, person_id, which, self.clock.now()).await?;
        if ended > 0 {
            self.note(&mut tx, person_id, Action::LoginsEnded, origin)
                .await?;
        }
        tx.commit().await?;
        Ok(ended)
    }

    /// Takes the password or a code again, and notes it on the login.
    pub async fn confirm(
        &self,
        token: &TokenSha256,
        proof: Proof,
        origin: &Origin,
    ) -> Result<Identity, Error> {
        let login = self.find_login(token).await?;
        if login.needs_code {
            return Err(Error::LoginEnded);
        }
        let person_id = login.person_id;
        let mut tx = match proof {
            Proof::Password(password) => {
                let email = self.find(person_id).await?.email;
                let tried = Tried::confirmation(person_id);
                let (_, renewed) = self
                    .check_password(&email, password, &tried, Lane::Known)
                    .await?;
                let mut tx = self.db.begin().await?;
                self.store_renewed(&mut tx, person_id, renewed).await?;
                store::tries::clear(&mut tx, &tried).await?;
                tx
            }
            Proof::Code(code) => self.begin_with_code(person_id, &code, origin).await?,
        };
        let now = self.clock.now();
        if store::logins::confirm(&mut tx, login.login_id, now).await? == Update::NotThere {
            return Err(Error::LoginEnded);
        }
        self.commit(tx).await?;
        let confirmed = Login {
            confirmed_at: now,
            last_seen_at: now,
            ..login
        };
        self.identify(confirmed).await
    }

    pub(super) async fn store_renewed(
        &self,
        tx: &mut Tx,
        person_id: PersonId,
        renewed: Option<PasswordHash>,
    ) -> Result<(), Error> {
        if let Some(hash) = renewed {
            store::people::update_password(tx, person_id, &hash).await?;
        }
        Ok(())
    }

    /// The login of this token, unless it is over.
    async fn find_login(&self, token: &TokenSha256) -> Result<Login, Error> {
        let found = store::logins::find(&mut self.db.read().await?, token).await?;
        let now = self.clock.now();
        found
            .filter(|login| !login.is_over(self.lifetime, now))
            .ok_or(Error::LoginEnded)
    }

    /// Counts a try and compares a password with that of whoever has this address, in the same time
    /// if nobody has. Returns the person, and the hash to store if the old one was made with other
    /// parameters.
    pub(super) async fn check_password(
        &self,
        email: &EmailAddress,
        password: SecretString,
        tried: &Tried,
        lane: Lane,
    ) -> Result<(Person, Option<PasswordHash>), Error> {
        let turn = self.hasher.turn(lane)?;
        self.try_on(tried).await?;
        let found = store::people::find_by_email(&mut self.db.read().await?, email).await?;
        let stored = found.as_ref().map(|person| person.password_hash.clone());
        let verdict = turn.verify(password, stored).await?;
        match (verdict, found) {
            (Verdict::Right(renewed), Some(person)) => Ok((person, renewed)),
            (Verdict::Right(_) | Verdict::Wrong, _) => Err(Error::WrongPassword),
        }
    }
}
