//! Changing one's e-mail address.

use chassis::ids::PersonId;
use db::{Tx, Update};
use secrecy::SecretString;

use super::people::People;
use crate::{
    activity::{Action, Origin},
    error::Error,
    link::LinkPurpose,
    login::Ended,
    mail::{MailKind, NewMail},
    password::Lane,
    person::{EmailAddress, Person},
    store,
    token::TokenSha256,
    tries::Tried,
};

impl People {
    /// Mails a link to another address, which is the person's from when it is followed. If it is
    /// somebody's already, they are mailed that it was tried, and nothing else tells.
    pub async fn request_email_change(
        &self,
        person_id: PersonId,
        email: EmailAddress,
        origin: Origin,
    ) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        let person = store::people::lock(&mut tx, person_id).await?;
        let person = person.ok_or(Error::LoginEnded)?;
        if person.email == email {
            return Err(Error::Invalid {
                field: "email",
                message: "is the address that you have".into(),
            });
        }
        self.try_in(&mut tx, &Tried::email_change(person_id))
            .await?;
        self.try_in(&mut tx, &Tried::mail(&email)).await?;
        let (address, now) = (&origin.address, self.clock.now());
        match store::people::find_by_email(&mut tx, &email).await? {
            Some(_) => {
                let kind = MailKind::AddressWanted;
                store::mails::insert_for_address(&mut tx, &email, kind, address, now).await?;
            }
            None => {
                let mail = NewMail {
                    recipient: Some(email.clone()),
                    ..self.mail(person_id, MailKind::ConfirmEmail, &origin)
                };
                store::mails::insert(&mut tx, &mail).await?;
            }
        }
        store::people::update_email_pending(&mut tx, person_id, Some(&email)).await?;
        // An address that nobody has verified may be a stranger's.
        if person.verified_at.is_some() {
            let mail = NewMail {
                about: email.as_str().to_owned(),
                recipient: Some(person.email),
                ..self.mail(person_id, MailKind::EmailChangeRequested, &origin)
            };
            store::mails::insert(&mut tx, &mail).await?;
            let object = email.as_str().to_owned();
            self.note_of(
                &mut tx,
                person_id,
                Action::EmailChangeRequested,
                object,
                origin,
            )
            .await?;
        }
        self.commit(tx).await
    }

    /// Makes the address that a link was mailed to the person's, for whoever also knows the password.
    /// Once done, the same link succeeds again for as long as it lasts.
    pub async fn change_email(
        &self,
        token: &TokenSha256,
        password: SecretString,
        origin: Origin,
    ) -> Result<EmailAddress, Error> {
        let mut conn = self.db.read().await?;
        let found = store::links::find_for_email(
            &mut conn,
            token,
            LinkPurpose::ChangeEmail,
            self.clock.now(),
        )
        .await?;
        let (person_id, new) = found.ok_or(Error::LinkNotFound)?;
        let person = store::people::find(&mut conn, person_id).await?;
        drop(conn);
        let old = person.ok_or(Error::LinkNotFound)?.email;
        let tried = Tried::password(&old);
        let (person, renewed) = self
            .check_password(&old, password, &tried, Lane::Known)
            .await?;
        let mut tx = self.db.begin().await?;
        let locked = store::people::lock(&mut tx, person_id).await?;
        let locked = locked.ok_or(Error::LinkNotFound)?;
        // Changed since it was read: by who has reset the password, or moved to another address.
        if locked.password_hash != person.password_hash || locked.email != person.email {
            return Err(Error::WrongPassword);
        }
        self.store_renewed(&mut tx, person_id, renewed).await?;
        store::tries::clear(&mut tx, &tried).await?;
        if locked.email == new {
            self.commit(tx).await?;
            return Ok(new);
        }
        if locked.email_pending.as_ref() != Some(&new) {
            return Err(Error::LinkNotFound);
        }
        self.move_to(&mut tx, &locked, &new, origin).await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "e-mail address changed");
        Ok(new)
    }

    /// Gives a person their new address. Links to set the password were mailed to the old one, and
    /// whoever could read that mailbox may be logged in.
    async fn move_to(
        &self,
        tx: &mut Tx,
        person: &Person,
        new: &EmailAddress,
        origin: Origin,
    ) -> Result<(), Error> {
        let (person_id, now) = (person.person_id, self.clock.now());
        self.update_email(tx, person, new).await?;
        store::links::end_for_password(tx, person_id, now).await?;
        store::logins::end(tx, person_id, Ended::All, now).await?;
        if person.verified_at.is_some() {
            let mail = NewMail {
                about: new.as_str().to_owned(),
                recipient: Some(person.email.clone()),
                ..self.mail(person_id, MailKind::EmailChanged, &origin)
            };
            store::mails::insert(tx, &mail).await?;
        }
        let object = new.as_str().to_owned();
        self.note_of(tx, person_id, Action::EmailChanged, object, origin)
            .await
    }

    /// Gives a person this address, if nobody has it.
    pub(super) async fn update_email(
        &self,
        tx: &mut Tx,
        person: &Person,
        email: &EmailAddress,
    ) -> Result<(), Error> {
        match store::people::update_email(tx, person, email, self.clock.now()).await {
            Ok(Update::Updated) => Ok(()),
            // Somebody has signed up with it meanwhile.
            Ok(Update::NotThere) => Err(Error::LinkNotFound),
            Err(error) if db::is_unique_violation(&error) => Err(Error::LinkNotFound),
            Err(error) => Err(error.into()),
        }
    }

    fn mail(&self, person_id: PersonId, kind: MailKind, origin: &Origin) -> NewMail {
        NewMail {
            person_id,
            kind,
            about: String::new(),
            address: origin.address.clone(),
            recipient: None,
            at: self.clock.now(),
        }
    }
}
