//! Signing up, verifying an address, and what people did.

use std::time::Duration;

use chassis::{
    clock::{Alarm, Clock},
    ids::{ActivityId, MerchantId, PersonId},
    page::PageRequest,
    sealed::Keyring,
};
use db::{Conn, Db, Insert, Page, Tx, Update};
use secrecy::SecretString;
use uuid::Uuid;

use crate::{
    activity::{Action, Activity, Deed, Origin},
    error::Error,
    link::LinkPurpose,
    login::Lifetime,
    mail::{MailKind, NewMail},
    merchant::Merchant,
    password::{Hasher, Lane},
    person::{EmailAddress, Membership, Person, Role},
    store,
    token::{Token, TokenSha256},
    tries::{Tried, Try},
};

/// What merchants-svc does for the people who use the dashboard.
#[derive(Clone, Debug)]
pub struct People {
    pub db: Db,
    pub clock: Clock,
    pub hasher: Hasher,
    /// Encrypts the secrets of authenticators.
    pub keyring: Keyring,
    pub lifetime: Lifetime,
    /// The name that authenticators show.
    pub issuer: String,
    /// Of the work that sends mails.
    pub mails: Alarm,
}

/// Somebody who signs up, and their merchant. Checked when it is parsed.
#[derive(Debug)]
pub struct SignUp {
    pub business_name: String,
    pub email: EmailAddress,
    pub password: SecretString,
    pub origin: Origin,
}

impl People {
    /// Makes a person and a merchant, or mails who has the address. Does the same work for both.
    pub async fn sign_up(&self, new: SignUp) -> Result<(), Error> {
        let turn = self.hasher.turn(Lane::Stranger)?;
        self.try_on(&Tried::mail(&new.email)).await?;
        let password_hash = turn.hash(new.password).await?;
        let now = self.clock.now();
        let merchant = Merchant {
            merchant_id: MerchantId::new(),
            name: new.business_name,
            email: new.email.as_str().to_owned(),
            email_verified: false,
            kyc_status: None,
            accepting_payments: true,
            created_at: now,
        };
        let person = Person {
            person_id: PersonId::new(),
            email: new.email,
            verified_at: None,
            password_hash,
            totp_secret: None,
            totp_pending: None,
            totp_last_step: None,
            email_pending: None,
            created_at: now,
        };
        let mut tx = self.db.begin().await?;
        store::insert_merchant(&mut tx, &merchant).await?;
        if store::people::insert(&mut tx, &person).await? == Insert::AlreadyThere {
            drop(tx);
            let (kind, address) = (MailKind::AlreadyRegistered, &new.origin.address);
            let mut tx = self.db.begin().await?;
            store::mails::insert_for_address(&mut tx, &person.email, kind, address, now).await?;
            return self.commit(tx).await;
        }
        let membership = Membership {
            person_id: person.person_id,
            merchant_id: merchant.merchant_id,
            role: Role::Owner,
            created_at: now,
        };
        store::people::insert_membership(&mut tx, &membership).await?;
        let mail = NewMail {
            person_id: person.person_id,
            kind: MailKind::VerifyEmail,
            about: String::new(),
            address: new.origin.address.clone(),
            recipient: None,
            at: now,
        };
        store::mails::insert(&mut tx, &mail).await?;
        self.note(&mut tx, person.person_id, Action::SignedUp, new.origin)
            .await?;
        self.commit(tx).await?;
        tracing::info!(merchant.id = %merchant.merchant_id, person.id = %person.person_id, "signed up");
        Ok(())
    }

    /// Makes a person of this merchant, or mails who is one already.
    pub async fn invite(
        &self,
        merchant_id: MerchantId,
        email: EmailAddress,
    ) -> Result<PersonId, Error> {
        let merchant = store::find_merchant(&self.db, merchant_id).await?;
        let merchant = merchant.ok_or(Error::MerchantNotFound)?;
        // Nobody knows it: the link is the only way in.
        let password = SecretString::from(Token::new().expose().to_owned());
        let password_hash = self.hasher.turn(Lane::Known)?.hash(password).await?;
        let now = self.clock.now();
        let person = Person {
            person_id: PersonId::new(),
            email,
            verified_at: None,
            password_hash,
            totp_secret: None,
            totp_pending: None,
            totp_last_step: None,
            email_pending: None,
            created_at: now,
        };
        let mut tx = self.db.begin().await?;
        let person_id = match store::people::insert(&mut tx, &person).await? {
            Insert::Inserted => {
                let membership = Membership {
                    person_id: person.person_id,
                    merchant_id,
                    role: Role::Owner,
                    created_at: now,
                };
                store::people::insert_membership(&mut tx, &membership).await?;
                person.person_id
            }
            Insert::AlreadyThere => {
                let known = store::people::find_by_email(&mut tx, &person.email).await?;
                let known = known.ok_or(Error::EmailTaken)?;
                if !store::people::is_member(&mut tx, known.person_id, merchant_id).await? {
                    return Err(Error::EmailTaken);
                }
                known.person_id
            }
        };
        let mail = NewMail {
            person_id,
            kind: MailKind::Invited,
            about: merchant.name,
            address: String::new(),
            recipient: None,
            at: now,
        };
        store::mails::insert(&mut tx, &mail).await?;
        self.commit(tx).await?;
        tracing::info!(merchant.id = %merchant_id, person.id = %person_id, "person invited");
        Ok(person_id)
    }

    /// Takes a mailed link, as often as it is followed with the password while it lasts.
    pub async fn verify_email(
        &self,
        token: &TokenSha256,
        password: SecretString,
        origin: Origin,
    ) -> Result<EmailAddress, Error> {
        let mut conn = self.db.read().await?;
        let purpose = LinkPurpose::VerifyEmail;
        let found = store::links::find(&mut conn, token, purpose, self.clock.now()).await?;
        let person = match found {
            Some(person_id) => store::people::find(&mut conn, person_id).await?,
            None => None,
        };
        drop(conn);
        let email = person.ok_or(Error::LinkNotFound)?.email;
        let tried = Tried::password(&email);
        let (person, renewed) = self
            .check_password(&email, password, &tried, Lane::Known)
            .await?;
        let mut tx = self.db.begin().await?;
        let locked = store::people::lock(&mut tx, person.person_id).await?;
        // Changed since it was read: by who has reset it.
        if locked.is_none_or(|now| now.password_hash != person.password_hash) {
            return Err(Error::WrongPassword);
        }
        self.store_renewed(&mut tx, person.person_id, renewed)
            .await?;
        store::tries::clear(&mut tx, &tried).await?;
        self.verify(&mut tx, &person, origin).await?;
        self.commit(tx).await?;
        Ok(email)
    }

    /// Notes that the address is the person's.
    pub(super) async fn verify(
        &self,
        tx: &mut Tx,
        person: &Person,
        origin: Origin,
    ) -> Result<(), Error> {
        let verified = store::people::verify(tx, person, self.clock.now()).await?;
        if verified == Update::Updated {
            let person_id = person.person_id;
            self.note(tx, person_id, Action::EmailVerified, origin)
                .await?;
            tracing::info!(person.id = %person_id, "e-mail address verified");
        }
        Ok(())
    }

    /// Mails the link again, unless it is no longer needed.
    pub async fn send_verification(&self, person_id: PersonId) -> Result<(), Error> {
        let person = self.find(person_id).await?;
        if person.verified_at.is_some() {
            return Ok(());
        }
        self.mail_to(&person.email, MailKind::VerifyEmail, "").await
    }

    /// Notes what another service is about to do for a person, and mails them.
    /// `form` is empty, or one of its own of the form that does it.
    pub async fn note_activity(&self, deed: Deed, form: &str) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        let (person_id, merchant_id) = (deed.person_id, deed.merchant_id);
        if !store::people::is_member(&mut tx, person_id, merchant_id).await? {
            return Err(Error::MerchantNotFound);
        }
        let person = store::people::find(&mut tx, person_id).await?;
        // Strangers would be mailed.
        if person.is_none_or(|person| person.verified_at.is_none()) {
            return Err(Error::EmailNotVerified);
        }
        let activity_id = match form {
            "" => ActivityId::new(),
            form => deed.id_by_form(form),
        };
        store::activities::note_as(&mut tx, activity_id, &deed).await?;
        self.commit(tx).await
    }

    pub async fn list_activity(
        &self,
        merchant_id: MerchantId,
        page: PageRequest<Uuid>,
    ) -> Result<Page<Activity, Uuid>, Error> {
        let mut conn = self.db.read().await?;
        Ok(store::activities::list(&mut conn, merchant_id, page).await?)
    }

    /// A person whom a caller knows by a login.
    pub(super) async fn find(&self, person_id: PersonId) -> Result<Person, Error> {
        let found = store::people::find(&mut self.db.read().await?, person_id).await?;
        found.ok_or(Error::LoginEnded)
    }

    /// Notes what a person does to themselves, where everyone of their merchant can see it.
    pub(super) async fn note(
        &self,
        tx: &mut Tx,
        person_id: PersonId,
        action: Action,
        origin: Origin,
    ) -> Result<(), Error> {
        self.note_of(tx, person_id, action, String::new(), origin)
            .await
    }

    /// The same, with what it is done to.
    pub(super) async fn note_of(
        &self,
        tx: &mut Tx,
        person_id: PersonId,
        action: Action,
        object: String,
        origin: Origin,
    ) -> Result<(), Error> {
        let found = store::people::find_membership(tx, person_id).await?;
        let Some(membership) = found else {
            return Ok(());
        };
        let deed = Deed {
            merchant_id: membership.merchant_id,
            person_id,
            action,
            object,
            origin,
            at: self.clock.now(),
        };
        Ok(store::activities::note(tx, &deed).await?)
    }

    /// Mails whoever has this address, in the same statements as if nobody had. Counts the try in
    /// the same transaction, so that its commit writes, and takes as long, for nobody too.
    pub(super) async fn mail_to(
        &self,
        email: &EmailAddress,
        kind: MailKind,
        address: &str,
    ) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        self.try_in(&mut tx, &Tried::mail(email)).await?;
        let now = self.clock.now();
        store::mails::insert_for_address(&mut tx, email, kind, address, now).await?;
        self.commit(tx).await
    }

    /// Commits what may have written a mail.
    pub(super) async fn commit(&self, tx: Tx) -> Result<(), Error> {
        tx.commit().await?;
        self.mails.ring_at(self.clock.now());
        Ok(())
    }

    /// Counts a try.
    ///
    /// # Errors
    /// [`Error::TooManyTries`] if it must wait.
    pub(super) async fn try_on(&self, tried: &Tried) -> Result<(), Error> {
        self.try_in(&mut self.db.write().await?, tried).await
    }

    pub(super) async fn try_in(&self, conn: &mut Conn, tried: &Tried) -> Result<(), Error> {
        let now = self.clock.now();
        match store::tries::take(conn, tried, now).await? {
            Try::Allowed | Try::LastBeforePause => Ok(()),
            Try::Paused(until) => Err(Error::TooManyTries(
                until.since(now).max(Duration::from_secs(1)),
            )),
        }
    }
}
