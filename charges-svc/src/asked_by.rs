//! Which API request asked for something, so that the merchant can find it in its own logs.

use sqlx::FromRow;

/// Empty for what a person asked for, and for what an older version recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct AskedBy {
    pub request_id: Option<String>,
    /// What the merchant called the API key then.
    pub key_name: Option<String>,
}

impl AskedBy {
    pub fn is_known(&self) -> bool {
        self.request_id.is_some() || self.key_name.is_some()
    }
}
