//! JSON whose objects keep the order in which they were written, so that the document reads in the
//! order of the code.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Any JSON value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Json {
    Object(IndexMap<String, Json>),
    Array(Vec<Json>),
    Other(Value),
}

impl Json {
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("the document's own parts are JSON")
    }

    pub fn of(value: &impl Serialize) -> Self {
        Self::parse(&serde_json::to_string(value).expect("the document's own parts are JSON"))
    }

    /// The member of that name, if this is an object that has one.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(name),
            Self::Array(_) | Self::Other(_) => None,
        }
    }

    /// The value at a path of names.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |json, name| json.get(name))
    }

    /// The member of that name, made as an empty object where it is missing.
    pub fn member(&mut self, name: &str) -> &mut Self {
        if !matches!(self, Self::Object(_)) {
            *self = Self::Object(IndexMap::new());
        }
        let Self::Object(members) = self else {
            unreachable!("it was just made an object");
        };
        members
            .entry(name.to_owned())
            .or_insert_with(|| Self::Object(IndexMap::new()))
    }

    pub fn set(&mut self, name: &str, value: impl Into<Self>) {
        *self.member(name) = value.into();
    }

    pub fn remove(&mut self, name: &str) {
        if let Self::Object(members) = self {
            members.shift_remove(name);
        }
    }

    /// The members of an object, in order; none of anything else.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = match self {
            Self::Object(members) => Some(members),
            Self::Array(_) | Self::Other(_) => None,
        };
        let members = members.into_iter().flatten();
        members.map(|(name, value)| (name.as_str(), value))
    }

    /// The items of an array; none of anything else.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            Self::Object(_) | Self::Other(_) => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Other(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The text of a member; empty where there is none.
    pub fn text_of(&self, name: &str) -> &str {
        self.get(name).and_then(Self::text).unwrap_or_default()
    }

    pub fn pretty(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON is JSON")
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}
