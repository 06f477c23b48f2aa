//! The Idempotency-Key header.

use chassis::limits::{IDEMPOTENCY_KEY_CHARACTERS_MAX, is_visible_ascii};
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::field_error::{Fault, FieldCode};

/// The header's name as it appears in errors.
pub const HEADER: &str = "Idempotency-Key";

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The key under which a request is carried out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyKey {
    Callers(String),
    /// Generated for the gateway's own repeats if the caller sent no key.
    Gateways(Uuid),
}

impl IdempotencyKey {
    /// The caller's key, or a generated one if there is none.
    pub fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let mut given = headers.get_all(HEADER).iter();
        match (given.next(), given.next()) {
            (None, _) => Ok(Self::Gateways(Uuid::new_v4())),
            (Some(key), None)
                if is_visible_ascii(key.as_bytes(), IDEMPOTENCY_KEY_CHARACTERS_MAX) =>
            {
                let key = key.to_str().map_err(|_| FAULT)?;
                Ok(Self::Callers(key.to_owned()))
            }
            _ => Err(FAULT),
        }
    }

    /// The key as the services store it, marked with whose it is.
    pub fn marked(&self) -> String {
        match self {
            Self::Callers(key) => format!("c:{key}"),
            Self::Gateways(key) => format!("g:{key}"),
        }
    }

    /// Tells a caller who repeated a request that this is the answer to the first one.
    pub fn write_replayed(&self, replayed: bool, headers: &mut HeaderMap) {
        if replayed && self.is_callers() {
            write_replayed(headers);
        }
    }

    pub fn is_callers(&self) -> bool {
        matches!(self, Self::Callers(_))
    }
}

/// Says that this is the answer to an earlier request with the same key.
pub fn write_replayed(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}

const FAULT: Fault = Fault::new(
    FieldCode::InvalidFormat,
    "must be given once, as 1 to 255 visible ASCII characters",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &[&[u8]]) -> Result<IdempotencyKey, Fault> {
        let name = HeaderName::from_static("idempotency-key");
        let headers = keys
            .iter()
            .map(|key| (name.clone(), HeaderValue::from_bytes(key).expect("a value")));
        IdempotencyKey::of(&headers.collect())
    }

    #[test]
    fn a_key_is_one_visible_ascii_text() {
        let longest = "k".repeat(255);
        for key in ["1", "order-17", "\"quoted\"", "a,b;c", &longest] {
            assert_eq!(
                read(&[key.as_bytes()]),
                Ok(IdempotencyKey::Callers(key.to_owned()))
            );
        }
        let longer = "k".repeat(256);
        for key in ["", " ", "a b", "a\tb", "clé", &longer] {
            assert_eq!(read(&[key.as_bytes()]), Err(FAULT), "{key:?}");
        }
        assert_eq!(read(&[b"one", b"one"]), Err(FAULT));
    }

    #[test]
    fn callers_are_told_how_long_a_key_may_be() {
        let most = format!("1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} ");
        assert!(FAULT.message.contains(&most));
    }

    #[test]
    fn callers_cannot_name_a_key_of_the_gateway() {
        let made = read(&[]).expect("a key");
        assert!(matches!(made, IdempotencyKey::Gateways(_)));
        let forged = read(&[made.marked().as_bytes()]).expect("a key");
        assert_ne!(forged.marked(), made.marked());
        assert!(forged.marked().starts_with("c:g:"));
    }
}
