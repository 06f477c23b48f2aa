//! The fields of a form that a browser sent.

use axum::body::Body;
use http::{HeaderMap, header::CONTENT_TYPE};
use url::form_urlencoded;

use crate::{api::body, error::Error};

/// Debug prints the names alone, for a value may be a secret.
pub struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// # Errors
    /// If the body is not a form, is too large, or did not arrive whole in time.
    pub async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Error> {
        let content_type = headers.get(CONTENT_TYPE);
        let is_form = content_type.is_some_and(|value| {
            value
                .as_bytes()
                .starts_with(b"application/x-www-form-urlencoded")
        });
        if !is_form {
            return Err(Error::UnsupportedMediaType);
        }
        let body = body::read(headers, body).await?;
        Ok(Self(form_urlencoded::parse(&body).into_owned().collect()))
    }

    /// The trimmed value, or an empty one if it is absent.
    pub fn get(&self, name: &str) -> &str {
        self.exact(name).trim()
    }

    /// The value as it was typed: spaces belong to a password.
    pub fn exact(&self, name: &str) -> &str {
        let mut fields = self.0.iter();
        let found = fields.find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Names and values, as they were typed.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Every value of this name.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(field, _)| field == name);
        named.map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for FormFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}
