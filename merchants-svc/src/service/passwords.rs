//! Choosing another password.

use chassis::ids::{LoginId, PersonId};
use db::{Tx, Update};
use secrecy::SecretString;

use super::people::People;
use crate::{
    activity::{Action, Origin},
    error::Error,
    link::LinkPurpose,
    mail::MailKind,
    password::{self, Lane, PasswordHash},
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

    /// Sets the password by a mailed link, once. One that was mailed to the address before gives that
    /// back, too.
    pub async fn reset_password(
        &self,
        token: &TokenSha256,
        password: SecretString,
        origin: Origin,
    ) -> Result<(), Error> {
        let (person_id, reverted) = self.find_link(token).await?;
        let person = self.find(person_id).await;
        let person = person.map_err(|_| Error::LinkNotFound)?;
        self.check_new_password(&person, &password).await?;
        let hash = self.hasher.turn(Lane::Known)?.hash(password).await?;
        let mut tx = self.db.begin().await?;
        // Another link may have moved the address since it was read.
        let person = store::people::lock(&mut tx, person_id).await?;
        let person = person.ok_or(Error::LinkNotFound)?;
        let taken = store::links::take(&mut tx, token, self.clock.now()).await?;
        if taken == Update::NotThere {
            return Err(Error::LinkNotFound);
        }
        let person = match reverted {
            None => person,
            Some(email) => self.revert(&mut tx, token, person, email, &origin).await?,
        };
        if person.verified_at.is_none() {
            self.verify(&mut tx, &person, origin.clone()).await?;
        }
        self.set_password(&mut tx, &person, &hash, None).await?;
        self.note(&mut tx, person_id, Action::PasswordReset, origin)
            .await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "password reset");
        Ok(())
    }

    /// Gives a person the address back that a link was mailed to.
    async fn revert(
        &self,
        tx: &mut Tx,
        token: &TokenSha256,
        person: Person,
        email: EmailAddress,
        origin: &Origin,
    ) -> Result<Person, Error> {
        let (person_id, now) = (person.person_id, self.clock.now());
        // Else whoever has a later address could undo this in turn.
        store::links::end_later_reverts(tx, token, person_id, now).await?;
        if person.email == email {
            return Ok(person);
        }
        self.update_email(tx, &person, &email).await?;
        let object = email.as_str().to_owned();
        self.note_of(tx, person_id, Action::EmailChanged, object, origin.clone())
            .await?;
        Ok(Person { email, ..person })
    }

    /// Whose password a link may set, and which address it gives back.
    async fn find_link(
        &self,
        token: &TokenSha256,
    ) -> Result<(PersonId, Option<EmailAddress>), Error> {
        let mut conn = self.db.read().await?;
        for purpose in [LinkPurpose::ResetPassword, LinkPurpose::AcceptInvitation] {
            let found = store::links::find(&mut conn, token, purpose, self.clock.now()).await?;
            if let Some(person_id) = found {
                return Ok((person_id, None));
            }
        }
        let purpose = LinkPurpose::RevertEmail;
        let found = store::links::find_for_email(&mut conn, token, purpose, self.clock.now());
        let (person_id, email) = found.await?.ok_or(Error::LinkNotFound)?;
        Ok((person_id, Some(email)))
    }

    /// Sets another password. `login_id` is the caller's login, which goes on.
    ///
    /// # Errors
    /// [`Error::LoginEnded`] also if that login ended, or the password changed, while this one was
    /// hashed: whoever was locked out by a reset must not undo it.
    pub async fn change_password(
        &self,
        person_id: PersonId,
        login_id: LoginId,
        password: SecretString,
        origin: Origin,
    ) -> Result<(), Error> {
        let person = self.find(person_id).await?;
        self.check_new_password(&person, &password).await?;
        self.try_on(&Tried::new_password(person_id)).await?;
        let hash = self.hasher.turn(Lane::Known)?.hash(password).await?;
        let mut tx = self.db.begin().await?;
        let locked = store::people::lock(&mut tx, person_id).await?;
        let is_unchanged = locked.is_some_and(|now| now.password_hash == person.password_hash);
        if !is_unchanged || !store::logins::is_open(&mut tx, person_id, login_id).await? {
            return Err(Error::LoginEnded);
        }
        self.set_password(&mut tx, &person, &hash, Some(login_id))
            .await?;
        self.note(&mut tx, person_id, Action::PasswordChanged, origin)
            .await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "password changed");
        Ok(())
    }

    /// Refuses a new password of a person that is not good enough.
    async fn check_new_password(
        &self,
        person: &Person,
        password: &SecretString,
    ) -> Result<(), Error> {
        let mut names = vec![person.email.as_str().to_owned()];
        let mut conn = self.db.read().await?;
        let membership = store::people::find_membership(&mut conn, person.person_id).await?;
        drop(conn);
        if let Some(membership) = membership {
            let merchant = store::find_merchant(&self.db, membership.merchant_id).await?;
            names.extend(merchant.map(|merchant| merchant.name));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        password::check(password, &names).map_err(|message| Error::Invalid {
            field: "password",
            message: message.into(),
        })
    }

    /// Whoever knew the old password is logged out, in a browser that is no longer known; wrong tries
    /// are no longer counted, and no link that was mailed before sets another, or another address.
    async fn set_password(
        &self,
        tx: &mut Tx,
        person: &Person,
        hash: &PasswordHash,
        kept: Option<LoginId>,
    ) -> Result<(), Error> {
        let (person_id, now) = (person.person_id, self.clock.now());
        store::people::update_password(tx, person_id, hash).await?;
        store::logins::delete(tx, person_id, kept).await?;
        store::links::end_for_password(tx, person_id, now).await?;
        store::people::update_email_pending(tx, person_id, None).await?;
        store::tries::clear(tx, &Tried::password(&person.email)).await?;
        store::tries::clear(tx, &Tried::confirmation(person_id)).await?;
        Ok(())
    }
}
