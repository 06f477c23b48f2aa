//! Reading Hubtel's objects, whose keys are spelled in one way here and in another there.

use std::{collections::HashMap, fmt};

use chassis::{
    ids::RailReference,
    money::{Currency, Money},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use uuid::Uuid;

use crate::words::Member;

/// The members of a JSON object by their keys in lower case. An object in which two keys differ by
/// their case alone is none: nobody knows which of them counts.
#[derive(Debug, Default)]
pub struct Fields(HashMap<String, Member>);

impl Fields {
    /// A member's text, or a number's digits.
    pub fn text(&self, key: &str) -> Option<String> {
        self.0.get(key)?.text()
    }

    /// A member's text as a code, see [`Member::code`].
    pub fn code(&self, key: &str) -> String {
        self.0.get(key).map(Member::code).unwrap_or_default()
    }

    pub fn object(&self, key: &str) -> Option<Self> {
        self.0.get(key)?.object()
    }

    /// Whether a member is `true`; `None` if it is neither `true` nor `false`.
    pub fn truth(&self, key: &str) -> Option<bool> {
        self.0.get(key)?.truth()
    }

    /// An amount in major units. Hubtel moves cedis, and often names no currency.
    pub fn money(&self, key: &str) -> Option<Money> {
        let named = self.code("currencycode");
        let currency: Currency = match named.as_str() {
            "" => Currency::GHS,
            named => named.parse().ok()?,
        };
        self.0.get(key)?.major_units_in(currency)
    }

    /// The reference that we gave, as we write it: it may come back with dashes or in upper case. A
    /// text that is no reference of ours stays as it is.
    pub fn client_reference(&self) -> Option<String> {
        let text = self.text("clientreference")?;
        // Hubtel also writes what is absent as an empty text.
        if text.trim().is_empty() {
            return None;
        }
        let parsed = Uuid::try_parse(text.trim());
        Some(parsed.map_or(text, |id| id.hyphenated().to_string()))
    }

    /// Whether it names this reference.
    pub fn is_about(&self, reference: RailReference) -> bool {
        self.client_reference() == Some(reference.to_string())
    }

    /// Whether it names another reference than this.
    pub fn is_about_another(&self, reference: RailReference) -> bool {
        let named = self.client_reference();
        named.is_some_and(|named| named != reference.to_string())
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = HashMap::new();
        while let Some((key, member)) = map.next_entry::<String, Member>()? {
            if fields.insert(key.to_ascii_lowercase(), member).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        Ok(Fields(fields))
    }
}
