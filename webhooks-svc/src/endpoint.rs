//! Where a merchant wants its events delivered, and which of them.

use std::{convert::Infallible, str::FromStr};

use chassis::{
    clock::Timestamp,
    closed_list::count_unknown,
    ids::{EndpointId, MerchantId},
    sealed::{Keyring, SealedSecret, SecretError},
};
use secrecy::SecretString;
use sqlx::FromRow;

use crate::{event::EventType, secret};

/// A merchant's endpoint, its secrets encrypted.
#[derive(Clone, Debug, FromRow)]
pub struct Endpoint {
    pub endpoint_id: EndpointId,
    pub merchant_id: MerchantId,
    pub url: String,
    pub events: Subscription,
    pub enabled: bool,
    pub secret: SealedSecret,
    pub previous_secret: Option<SealedSecret>,
    pub previous_signs_until: Option<Timestamp>,
    pub exhausted_since: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The secrets that sign now, newest first.
#[derive(Clone, Debug)]
pub struct SigningSecrets {
    pub current: SecretString,
    /// During a rotation's overlap.
    pub previous: Option<SecretString>,
}

impl Endpoint {
    pub fn signing_secrets(
        &self,
        keyring: &Keyring,
        now: Timestamp,
    ) -> Result<SigningSecrets, SecretError> {
        let overlaps = self.previous_signs_until.is_some_and(|until| now < until);
        let previous = self.previous_secret.as_ref().filter(|_| overlaps);
        let owner = secret::owner(self.merchant_id, self.endpoint_id);
        let open = |sealed| keyring.open(sealed, &owner);
        Ok(SigningSecrets {
            current: open(&self.secret)?,
            previous: previous.map(open).transpose()?,
        })
    }

    /// Its secret, and the one before, even if that no longer signs.
    pub fn kept_secrets(
        &self,
        keyring: &Keyring,
    ) -> Result<(SecretString, Option<SecretString>), SecretError> {
        let owner = secret::owner(self.merchant_id, self.endpoint_id);
        let open = |sealed| keyring.open(sealed, &owner);
        let previous = self.previous_secret.as_ref().map(open);
        Ok((open(&self.secret)?, previous.transpose()?))
    }

    /// Re-encrypts its secrets with the keyring's first key.
    pub fn reseal(&mut self, keyring: &Keyring) -> Result<(), SecretError> {
        let owner = secret::owner(self.merchant_id, self.endpoint_id);
        let reseal = |sealed: &SealedSecret| {
            let secret = keyring.open(sealed, &owner)?;
            Ok(keyring.seal(&secret, &owner))
        };
        self.secret = reseal(&self.secret)?;
        self.previous_secret = self.previous_secret.as_ref().map(reseal).transpose()?;
        Ok(())
    }
}

/// The event types that an endpoint receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    types: Vec<EventType>,
    /// It also names a type that only a newer version knows.
    names_unknown: bool,
}

impl Subscription {
    /// No types mean those of the specification.
    pub fn new(mut types: Vec<EventType>) -> Self {
        types.sort_unstable();
        types.dedup();
        Self {
            types,
            names_unknown: false,
        }
    }

    pub fn includes(&self, event_type: EventType) -> bool {
        if event_type == EventType::EndpointTest {
            return true;
        }
        let names_none = self.types.is_empty() && !self.names_unknown;
        match names_none {
            true => EventType::SPECIFIED.contains(&event_type),
            false => self.types.contains(&event_type),
        }
    }

    /// The types that it names, or none for those of the specification. `None`: types that only a newer version
    /// knows.
    pub fn types(&self) -> impl Iterator<Item = Option<EventType>> {
        let known = self.types.iter().copied().map(Some);
        known.chain(self.names_unknown.then_some(None))
    }

    fn to_text(&self) -> String {
        let codes: Vec<&str> = self
            .types
            .iter()
            .map(|event_type| event_type.code())
            .collect();
        codes.join(",")
    }
}

impl FromStr for Subscription {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let codes = text.split(',').filter(|code| !code.is_empty());
        let (known, unknown): (Vec<_>, Vec<_>) =
            codes.map(str::parse::<EventType>).partition(Result::is_ok);
        unknown.iter().for_each(|_| count_unknown("events"));
        Ok(Self {
            names_unknown: !unknown.is_empty(),
            ..Self::new(known.into_iter().flatten().collect())
        })
    }
}

chassis::text_column!(Subscription, |subscription| subscription.to_text());
