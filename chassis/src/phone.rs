//! Phone numbers: parsed once at the edge, stored as E.164, and masked wherever they are printed.

use std::fmt;

/// A phone number in E.164 form (`+233241234567`). Prints masked; [`Phone::as_e164`] is the number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone(String);

/// The text is not a phone number of the wanted kind. Does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    #[error("must be a phone number of digits, with spaces, dots, dashes or parentheses at most")]
    Malformed,
    #[error("must be a Ghana mobile number such as 0241234567 or +233241234567")]
    NotGhanaMobile,
    #[error("must be a Ghana number or an international number that starts with +")]
    NotInternational,
}

/// Ghana's country code.
const GHANA: &str = "233";

/// First digits of national numbers that are not mobile phones: fixed lines, free and shared-cost
/// numbers, short and premium services. Everything else passes, because new mobile ranges open
/// faster than tables follow.
const NOT_MOBILE: [char; 5] = ['0', '1', '3', '8', '9'];

impl Phone {
    /// A Ghana mobile number: `0XXXXXXXXX`, `233…`, `+233…` or `00233…`. The network is never
    /// read from it, since numbers are portable.
    pub fn parse_ghana_mobile(text: &str) -> Result<Self, PhoneError> {
        let (plus, digits) = split(text)?;
        let international = digits.strip_prefix("00").filter(|_| !plus);
        let national = if let Some(national) = international.unwrap_or(&digits).strip_prefix(GHANA)
            && national.len() == 9
        {
            national
        } else {
            digits
                .strip_prefix('0')
                .filter(|national| !plus && national.len() == 9)
                .ok_or(PhoneError::NotGhanaMobile)?
        };
        if national.starts_with(NOT_MOBILE) {
            return Err(PhoneError::NotGhanaMobile);
        }
        Ok(Self(format!("+{GHANA}{national}")))
    }

    /// Any number: one of Ghana, mobile or not, in a local or international form, or any country's
    /// E.164 (`+` or `00`, then 8 to 15 digits).
    pub fn parse_any(text: &str) -> Result<Self, PhoneError> {
        let (plus, digits) = split(text)?;
        let international = match digits.strip_prefix("00") {
            _ if plus => Some(digits.as_str()),
            Some(international) => Some(international),
            None => Some(digits.as_str()).filter(|digits| digits.starts_with(GHANA)),
        };
        let national = match international {
            Some(number) => number.strip_prefix(GHANA),
            None => Some(digits.as_str()).filter(|digits| digits.starts_with('0')),
        };
        let Some(national) = national else {
            return international
                .filter(|number| is_e164(number))
                .map(|number| Self(format!("+{number}")))
                .ok_or(PhoneError::NotInternational);
        };
        // Many write the zero of the local form behind the country code, too: `+233 (0)24 …`.
        let national = national.strip_prefix('0').unwrap_or(national);
        if national.len() != 9 || national.starts_with('0') {
            return Err(PhoneError::NotInternational);
        }
        Ok(Self(format!("+{GHANA}{national}")))
    }

    /// `+233241234567`
    pub fn as_e164(&self) -> &str {
        &self.0
    }

    /// `233241234567`, as MTN's wire wants it.
    pub fn without_plus(&self) -> &str {
        self.0.trim_start_matches('+')
    }

    /// `0241234567` for a Ghana number, as Paystack's wire wants it; E.164 for any other.
    pub fn local(&self) -> String {
        match self.without_plus().strip_prefix(GHANA) {
            Some(national) => format!("0{national}"),
            None => self.0.clone(),
        }
    }

    /// `4567`
    pub fn last_four(&self) -> &str {
        let start = self.0.len().saturating_sub(4);
        self.0.get(start..).unwrap_or_default()
    }

    /// `024 ••• 4567`: enough for its owner to recognise it.
    pub fn masked(&self) -> String {
        let local = self.local();
        let head: String = local.chars().take(3).collect();
        format!("{head} ••• {}", self.last_four())
    }
}

/// Whether these can follow the plus of an E.164 number (ITU-T E.164).
fn is_e164(digits: &str) -> bool {
    (8..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Whether it starts with a plus, and its digits without the punctuation people write between
/// them.
fn split(text: &str) -> Result<(bool, String), PhoneError> {
    let text = text.trim();
    let (plus, rest) = match text.strip_prefix('+') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let is_punctuation = |c: char| matches!(c, ' ' | '\u{a0}' | '-' | '.' | '(' | ')' | '/');
    let digits: String = rest.chars().filter(|c| !is_punctuation(*c)).collect();
    if digits.is_empty() || digits.len() > 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(PhoneError::Malformed);
    }
    Ok((plus, digits))
}

impl fmt::Display for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Phone({})", self.masked())
    }
}

impl std::str::FromStr for Phone {
    type Err = PhoneError;

    /// Reads what [`Phone::as_e164`] wrote.
    fn from_str(text: &str) -> Result<Self, PhoneError> {
        let number = text.strip_prefix('+').filter(|number| is_e164(number));
        let number = number.ok_or(PhoneError::NotInternational)?;
        Ok(Self(format!("+{number}")))
    }
}

#[cfg(feature = "sql")]
crate::ids::text_column!(Phone, |phone| phone.as_e164().to_owned());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_ghana_number_is_the_same_number() {
        for text in [
            "0241234567",
            "233241234567",
            "+233241234567",
            "00233241234567",
            " 024 123-4567 ",
            "(024) 123.4567",
            "+233 24 123 4567",
            "+233(24)1234567",
        ] {
            let phone = Phone::parse_ghana_mobile(text).expect(text);
            assert_eq!(phone.as_e164(), "+233241234567");
        }
    }

    #[test]
    fn new_mobile_ranges_pass() {
        for text in ["0254123456", "0584123456", "0534123456"] {
            assert!(Phone::parse_ghana_mobile(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_ghana_mobile_number_is_refused() {
        for text in [
            "",
            "024123456",
            "02412345678",
            "+0241234567",
            "0302123456",
            "241234567",
            "0244123456;drop",
            "0244123456 ext 5",
            "0244123456x5",
            "+234803123456",
            "++233241234567",
            "٠٢٤١٢٣٤٥٦٧",
            "024+1234567",
        ] {
            assert!(Phone::parse_ghana_mobile(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_customers_number_may_be_of_any_country() {
        let parse = |text| Phone::parse_any(text).map(|phone| phone.as_e164().to_owned());
        assert_eq!(parse("+44 20 7946 0958").as_deref(), Ok("+442079460958"));
        assert_eq!(parse("004420 79460958").as_deref(), Ok("+442079460958"));
        assert_eq!(parse("0241234567").as_deref(), Ok("+233241234567"));
        for text in ["+233 (0)24 123 4567", "00233 024 123 4567", "233241234567"] {
            assert_eq!(parse(text).as_deref(), Ok("+233241234567"), "{text}");
        }
        // Accra's fixed lines.
        assert_eq!(parse("030 212 3456").as_deref(), Ok("+233302123456"));
        assert_eq!(parse("+233302123456").as_deref(), Ok("+233302123456"));
        assert!(parse("+23324123456").is_err(), "a digit is missing");
        assert!(parse("+2332412345678").is_err(), "a digit too many");
        assert!(parse("241234567").is_err());
        assert!(parse("020 7946 09589").is_err());
        assert!(parse("+1234567").is_err());
        assert!(parse("+1234567890123456").is_err());
    }

    /// Also those that are not taken any more.
    #[test]
    fn what_was_stored_is_read() {
        for text in ["+233241234567", "+2330241234567", "+442079460958"] {
            let stored: Phone = text.parse().expect(text);
            assert_eq!(stored.as_e164(), text);
        }
        for text in ["0241234567", "+233 24 123 4567", "+1234567", "+", ""] {
            assert!(text.parse::<Phone>().is_err(), "{text}");
        }
    }

    #[test]
    fn printing_masks() {
        let phone = Phone::parse_ghana_mobile("0241234567").unwrap();
        assert_eq!(phone.to_string(), "024 ••• 4567");
        assert_eq!(format!("{phone:?}"), "Phone(024 ••• 4567)");
    }
}
