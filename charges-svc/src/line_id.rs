//! What identifies a line of an account.

use std::{fmt, str::FromStr};

use sqlx::FromRow;
use uuid::Uuid;

/// The posting of a line. An account is in a posting once.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct LineId {
    pub subject: Uuid,
    /// The code of its kind.
    pub kind: String,
}

impl fmt::Display for LineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.subject)
    }
}

/// The text does not identify a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a line")]
pub struct LineIdError;

impl FromStr for LineId {
    type Err = LineIdError;

    fn from_str(text: &str) -> Result<Self, LineIdError> {
        let (kind, subject) = text.split_once(':').ok_or(LineIdError)?;
        // A newer version may know more kinds, which are written alike.
        let is_code = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
        if kind.is_empty() || !kind.bytes().all(is_code) {
            return Err(LineIdError);
        }
        Ok(Self {
            subject: subject.parse().map_err(|_| LineIdError)?,
            kind: kind.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lines_id_is_read_in_one_form_alone() {
        let subject = Uuid::nil();
        let id: LineId = format!("PAYOUT_FEE:{subject}").parse().unwrap();
        assert_eq!(id.to_string(), format!("PAYOUT_FEE:{subject}"));
        for text in ["", ":", "RESERVE", "reserve:x", "RESERVE:1", "A B:x"] {
            assert_eq!(text.parse::<LineId>(), Err(LineIdError), "{text}");
        }
        assert!(format!(":{subject}").parse::<LineId>().is_err());
    }
}
