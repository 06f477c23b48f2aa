//! Authenticators and recovery codes.

use chassis::{ids::PersonId, sealed::SealedSecret};
use db::{Tx, Update};
use secrecy::{ExposeSecret as _, SecretString};

use super::people::People;
use crate::{
    activity::{Action, Origin},
    error::Error,
    store,
    token::sha256,
    totp::{self, RECOVERY_CODES, TotpSecret, TypedCode},
    tries::{Tried, Try},
};

/// A secret to show, for an authenticator to take.
#[derive(Debug)]
pub struct BegunTotp {
    pub uri: SecretString,
    pub secret: SecretString,
}

impl People {
    /// Makes a secret that counts only once a right code has confirmed it.
    pub async fn begin_totp(&self, person_id: PersonId) -> Result<BegunTotp, Error> {
        let secret = TotpSecret::new();
        let shown = SecretString::from(secret.base_32());
        let mut tx = self.db.begin().await?;
        let person = store::people::lock(&mut tx, person_id).await?;
        let mut person = person.ok_or(Error::LoginEnded)?;
        // Whoever signed up with somebody else's address must not lock that person out for ever.
        if person.verified_at.is_none() {
            return Err(Error::EmailNotVerified);
        }
        person.totp_pending = Some(self.keyring.seal(&shown, &totp::owner(person_id)));
        store::people::update_totp(&mut tx, &person).await?;
        tx.commit().await?;
        Ok(BegunTotp {
            uri: secret.uri(&self.issuer, person.email.as_str()).into(),
            secret: shown,
        })
    }

    /// Confirms the newest secret. Returns the recovery codes, which replace those before.
    pub async fn confirm_totp(
        &self,
        person_id: PersonId,
        code: &TypedCode,
        origin: Origin,
    ) -> Result<Vec<SecretString>, Error> {
        let tried = Tried::code(person_id);
        if self.find(person_id).await?.totp_pending.is_none() {
            return Err(Error::TotpNotBegun);
        }
        self.try_on(&tried).await?;
        let mut tx = self.db.begin().await?;
        let person = store::people::lock(&mut tx, person_id).await?;
        let mut person = person.ok_or(Error::LoginEnded)?;
        let pending = person.totp_pending.take().ok_or(Error::TotpNotBegun)?;
        // Another secret, so that the steps of the one before do not matter.
        let step = self.find_step(person_id, &pending, code, None)?;
        person.totp_last_step = Some(step.ok_or(Error::WrongCode)?);
        person.totp_secret = Some(pending);
        store::people::update_totp(&mut tx, &person).await?;
        let codes = self.make_recovery_codes(&mut tx, person_id).await?;
        self.note(&mut tx, person_id, Action::TotpChanged, origin)
            .await?;
        store::tries::clear(&mut tx, &tried).await?;
        self.commit(tx).await?;
        tracing::info!(person.id = %person_id, "authenticator confirmed");
        Ok(codes)
    }

    pub async fn renew_recovery_codes(
        &self,
        person_id: PersonId,
        origin: Origin,
    ) -> Result<Vec<SecretString>, Error> {
        let mut tx = self.db.begin().await?;
        let person = store::people::lock(&mut tx, person_id).await?;
        let person = person.ok_or(Error::LoginEnded)?;
        if person.totp_secret.is_none() {
            return Err(Error::TotpNotBegun);
        }
        let codes = self.make_recovery_codes(&mut tx, person_id).await?;
        self.note(&mut tx, person_id, Action::RecoveryCodesRenewed, origin)
            .await?;
        self.commit(tx).await?;
        Ok(codes)
    }

    /// Begins a transaction that uses up a code of the person, and forgets the tries. Counts the try
    /// first. Tells the person of many wrong ones, with or without pauses between: one who guesses for
    /// long enough is right some day.
    pub(super) async fn begin_with_code(
        &self,
        person_id: PersonId,
        code: &TypedCode,
        origin: &Origin,
    ) -> Result<Tx, Error> {
        self.try_on(&Tried::code(person_id)).await?;
        let mut tx = self.db.begin().await?;
        match self.take_code(&mut tx, person_id, code, origin).await {
            Ok(()) => Ok(tx),
            Err(Error::WrongCode) => {
                drop(tx);
                self.count_wrong_code(person_id, origin).await?;
                Err(Error::WrongCode)
            }
            Err(error) => Err(error),
        }
    }

    async fn count_wrong_code(&self, person_id: PersonId, origin: &Origin) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        let (tried, now) = (Tried::wrong_code(person_id), self.clock.now());
        if store::tries::take(&mut tx, &tried, now).await? == Try::LastBeforePause {
            self.note(&mut tx, person_id, Action::WrongCodes, origin.clone())
                .await?;
            tracing::warn!(person.id = %person_id, "many wrong codes");
        }
        self.commit(tx).await
    }

    /// # Errors
    /// [`Error::WrongCode`]; the transaction must then not be committed.
    async fn take_code(
        &self,
        tx: &mut Tx,
        person_id: PersonId,
        code: &TypedCode,
        origin: &Origin,
    ) -> Result<(), Error> {
        let person = store::people::lock(tx, person_id).await?;
        let mut person = person.ok_or(Error::LoginEnded)?;
        let secret = person.totp_secret.as_ref().ok_or(Error::WrongCode)?;
        match code {
            TypedCode::Totp(_) => {
                let step = self.find_step(person_id, secret, code, person.totp_last_step)?;
                person.totp_last_step = Some(step.ok_or(Error::WrongCode)?);
                store::people::update_totp(tx, &person).await?;
            }
            TypedCode::Recovery(code) => {
                let taken = store::people::take_recovery_code(tx, person_id, code).await?;
                if taken == Update::NotThere {
                    return Err(Error::WrongCode);
                }
                let action = Action::RecoveryCodeUsed;
                self.note(tx, person_id, action, origin.clone()).await?;
            }
        }
        store::tries::clear(tx, &Tried::code(person_id)).await?;
        Ok(())
    }

    fn find_step(
        &self,
        person_id: PersonId,
        sealed: &SealedSecret,
        code: &TypedCode,
        last: Option<i64>,
    ) -> Result<Option<i64>, Error> {
        let TypedCode::Totp(code) = code else {
            return Ok(None);
        };
        let secret = self.keyring.open(sealed, &totp::owner(person_id))?;
        let secret = TotpSecret::parse_base_32(secret.expose_secret());
        let now = self.clock.now();
        Ok(secret.and_then(|secret| secret.find_step(code, now, last)))
    }

    async fn make_recovery_codes(
        &self,
        tx: &mut Tx,
        person_id: PersonId,
    ) -> Result<Vec<SecretString>, Error> {
        let codes: Vec<SecretString> = (0..RECOVERY_CODES).map(|_| totp::recovery_code()).collect();
        // As they are read when somebody types them.
        let stored = codes
            .iter()
            .map(|code| sha256(&code.expose_secret().replace('-', "")));
        let stored: Vec<String> = stored.collect();
        store::people::replace_recovery_codes(tx, person_id, &stored).await?;
        Ok(codes)
    }
}
