//! Choosing another password.

use chassis::ids::{LoginId, PersonId};
use db::{Tx, Update};
use secrecy::SecretString;

use super::people::People;
use crate::{
    activity::{Action, Origin},
    error::Error,
    link::LinkPurpose,
    login::Ended,
    mail::MailKind,
    password::{self, PasswordHash},
    person::{EmailAddress, Person},
    store,
    token::TokenSha256,
    tries::Tried,
};

impl People {
    /// Mails a link to whoever has this address.
    pub async fn request_reset(&self, email: &EmailAddress, origin: &Origin) -> Result<(), Error> {
        self.mail_to(email, MailKind::ResetPassword, &origin.address)
            .await
    }

    /// Sets the password by a mailed link, once.
    pub async fn reset_password(
        &self,
        token: &TokenSha256,
        password: SecretString,
        origin: Origin,
    ) -> Result<(), Error> {
        let person_id = self.find_link(token).await?;
        let person = self.find(person_id).await;
        let person = person.map_err(|_| Error::LinkNotFound)?;
        let hash = self.hash(&person, password).await?;
        let mut tx = self.db.begin().await?;
        store::people::lock(&mut tx, person_id).await?;
        let taken = store::links::take(&mut tx, token, self.clock.now()).await?;
        if taken == Update::NotThere {
            return Err(Error::LinkNotFound);
        }
        if person.verified_at.is_none() {
            self.verify(&mut tx, &person, origin.clone()).await?;
        }
        self.set_password(&mut tx, &person, &hash, Ended::All)
            .await?;
        self.note(&mut tx, person_id, Action::PasswordReset, origin)
            .await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "password reset");
        Ok(())
    }

    /// Whose password a link may set.
    async fn find_link(&self, token: &TokenSha256) -> Result<PersonId, Error> {
        let mut conn = self.db.read().await?;
        for purpose in [LinkPurpose::ResetPassword, LinkPurpose::AcceptInvitation] {
            let found = store::links::find(&mut conn, token, purpose, self.clock.now()).await?;
            if let Some(person_id) = found {
                return Ok(person_id);
            }
        }
        Err(Error::LinkNotFound)
    }

    /// Sets another password. `login_id` is the caller's login, which goes on.
    pub async fn change_password(
        &self,
        person_id: PersonId,
        login_id: LoginId,
        password: SecretString,
        origin: Origin,
    ) -> Result<(), Error> {
        let person = self.find(person_id).await?;
        let hash = self.hash(&person, password).await?;
        let mut tx = self.db.begin().await?;
        store::people::lock(&mut tx, person_id).await?;
        self.set_password(&mut tx, &person, &hash, Ended::AllBut(login_id))
            .await?;
        self.note(&mut tx, person_id, Action::PasswordChanged, origin)
            .await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "password changed");
        Ok(())
    }

    /// Hashes a person's new password if it is good enough.
    async fn hash(&self, person: &Person, password: SecretString) -> Result<PasswordHash, Error> {
        let mut names = vec![person.email.as_str().to_owned()];
        let mut conn = self.db.read().await?;
        let membership = store::people::find_membership(&mut conn, person.person_id).await?;
        drop(conn);
        if let Some(membership) = membership {
            let merchant = store::find_merchant(&self.db, membership.merchant_id).await?;
            names.extend(merchant.map(|merchant| merchant.name));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        password::check(&password, &names).map_err(|message| Error::Invalid {
            field: "password",
            message: message.into(),
        })?;
        Ok(self.hasher.turn()?.hash(password).await?)
    }

    /// Whoever knew the old password is logged out, wrong tries are no longer counted, and no link
    /// that was mailed before sets another, or another address.
    async fn set_password(
        &self,
        tx: &mut Tx,
        person: &Person,
        hash: &PasswordHash,
        ended: Ended,
    ) -> Result<(), Error> {
        let (person_id, now) = (person.person_id, self.clock.now());
        store::people::update_password(tx, person_id, hash).await?;
        store::logins::end(tx, person_id, ended, now).await?;
        store::links::end_for_password(tx, person_id, now).await?;
        store::people::update_email_pending(tx, person_id, None).await?;
        store::tries::clear(tx, &Tried::password(&person.email)).await?;
        store::tries::clear(tx, &Tried::confirmation(person_id)).await?;
        Ok(())
    }
}
