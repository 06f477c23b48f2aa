//! The form in which a merchant tells about its business, and how each of its fields is read.
//!
//! What is read leniently (case, spaces, dashes) is kept in one form. Numbers that identify a
//! person print masked.

use std::{fmt, str::FromStr};

use chassis::{
    limits::{NAME_CHARACTERS_MAX, URL_CHARACTERS_MAX},
    phone::Phone,
};
use serde_json::{Map, Value};
use sqlx::FromRow;

const REGISTRATION_CHARACTERS_MAX: usize = 30;
const ACTIVITY_CHARACTERS_MAX: usize = 500;
const TOWN_CHARACTERS_MAX: usize = 100;

chassis::closed_list! {
    /// What kind of business it is.
    pub enum BusinessKind: "a kind of business" {
        SoleProprietor = "SOLE_PROPRIETOR",
        Partnership = "PARTNERSHIP",
        Company = "COMPANY",
        Ngo = "NGO",
    }
}

chassis::text_column!(BusinessKind);

chassis::closed_list! {
    /// A field of the form, by its name in errors and reasons.
    pub enum Field: "a field of the form" {
        Kind = "kind",
        RegisteredName = "registered_name",
        RegistrationNumber = "registration_number",
        Tin = "tin",
        Activity = "activity",
        Website = "website",
        DigitalAddress = "digital_address",
        Town = "town",
        OwnerName = "owner_name",
        OwnerGhanaCard = "owner_ghana_card",
        OwnerPhone = "owner_phone",
    }
}

/// What a merchant tells about its business.
#[derive(Clone, Debug, FromRow)]
pub struct Form {
    pub kind: BusinessKind,
    pub registered_name: String,
    pub registration_number: String,
    pub tin: Tin,
    pub activity: String,
    /// Empty if it has none.
    pub website: String,
    pub digital_address: DigitalAddress,
    pub town: String,
    pub owner_name: String,
    pub owner_ghana_card: GhanaCard,
    pub owner_phone: Phone,
}

/// A field's text is not what it must be. Says what it must be, never the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldFault(pub &'static str);

impl Form {
    /// As it is kept with a decision: an object with a text for each field.
    pub fn to_json(&self) -> Value {
        let field = |field: &Field| (field.code().to_owned(), self.text(*field).into());
        Value::Object(Field::ALL.iter().map(field).collect::<Map<_, _>>())
    }

    fn text(&self, field: Field) -> &str {
        match field {
            Field::Kind => self.kind.code(),
            Field::RegisteredName => &self.registered_name,
            Field::RegistrationNumber => &self.registration_number,
            Field::Tin => self.tin.as_str(),
            Field::Activity => &self.activity,
            Field::Website => &self.website,
            Field::DigitalAddress => self.digital_address.as_str(),
            Field::Town => &self.town,
            Field::OwnerName => &self.owner_name,
            Field::OwnerGhanaCard => self.owner_ghana_card.as_str(),
            Field::OwnerPhone => self.owner_phone.as_e164(),
        }
    }
}

/// The name of the business or of a person.
pub fn parse_name(text: &str) -> Result<String, FieldFault> {
    line(text, NAME_CHARACTERS_MAX).ok_or(FieldFault(
        "must be 1 to 200 characters, without control characters",
    ))
}

pub fn parse_activity(text: &str) -> Result<String, FieldFault> {
    line(text, ACTIVITY_CHARACTERS_MAX).ok_or(FieldFault(
        "must be 1 to 500 characters, without control characters",
    ))
}

pub fn parse_town(text: &str) -> Result<String, FieldFault> {
    line(text, TOWN_CHARACTERS_MAX).ok_or(FieldFault(
        "must be 1 to 100 characters, without control characters",
    ))
}

/// The number that the Registrar of Companies gave: it has had several forms.
pub fn parse_registration_number(text: &str) -> Result<String, FieldFault> {
    let number: String = text.split_whitespace().collect();
    let number = number.to_ascii_uppercase();
    let is_number = number
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-/.".contains(&byte))
        && number.bytes().any(|byte| byte.is_ascii_digit());
    if !is_number || number.len() > REGISTRATION_CHARACTERS_MAX {
        return Err(FieldFault(
            "must be the number of the registration, such as BN123456789 or CS123456789",
        ));
    }
    Ok(number)
}

/// An http(s) address, or nothing. Without a scheme, it is taken for https.
pub fn parse_website(text: &str) -> Result<String, FieldFault> {
    const FAULT: FieldFault =
        FieldFault("must be a web address such as https://example.com, or nothing");
    let text = text.trim();
    if text.is_empty() {
        return Ok(String::new());
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The parser would silently repair these, but a browser may read them differently.
    let is_plain = !text.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control());
    if !is_web || !is_plain || !host.contains('.') || host.contains('@') {
        return Err(FAULT);
    }
    let url = url::Url::parse(&format!("{scheme}://{rest}")).map_err(|_| FAULT)?;
    let url = String::from(url);
    Some(url)
        .filter(|url| url.len() <= URL_CHARACTERS_MAX)
        .ok_or(FAULT)
}

pub fn parse_phone(text: &str) -> Result<Phone, FieldFault> {
    Phone::parse_ghana_mobile(text).map_err(|_| {
        FieldFault("must be a Ghana mobile number such as 0241234567 or +233241234567")
    })
}

/// Some text in one line. `None` if it is empty, too long or has other control characters.
fn line(text: &str, characters_max: usize) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let is_good =
        (1..=characters_max).contains(&line.chars().count()) && !line.chars().any(char::is_control);
    is_good.then_some(line)
}

/// Whether people write it between the groups of a number.
fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '.' | '/' | '\u{2010}'..='\u{2015}')
}

/// Letters in upper case and digits alone.
fn compact(text: &str) -> String {
    let kept = text.chars().filter(|c| !is_between(*c));
    kept.map(|c| c.to_ascii_uppercase()).collect()
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A Ghana Card's number, `GHA-#########-#`. Prints masked.
#[derive(Clone, PartialEq, Eq)]
pub struct GhanaCard(String);

impl GhanaCard {
    const DIGITS: usize = 10;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GhanaCard {
    type Err = FieldFault;

    fn from_str(text: &str) -> Result<Self, FieldFault> {
        let compact = compact(text);
        let digits = compact.strip_prefix("GHA").unwrap_or_default();
        match digits.split_at_checked(Self::DIGITS - 1) {
            Some((number, check)) if digits.len() == Self::DIGITS && are_digits(digits) => {
                Ok(Self(format!("GHA-{number}-{check}")))
            }
            _ => Err(FieldFault(
                "must be a Ghana Card's number, GHA- and nine digits, a dash and one digit",
            )),
        }
    }
}

impl fmt::Debug for GhanaCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GhanaCard(•••)")
    }
}

chassis::text_column!(GhanaCard, |card| card.as_str().to_owned());

/// A taxpayer identification number, or the number of the Ghana Card that stands for it. Prints
/// masked.
#[derive(Clone, PartialEq, Eq)]
pub struct Tin(String);

impl Tin {
    const CHARACTERS: usize = 11;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tin {
    type Err = FieldFault;

    fn from_str(text: &str) -> Result<Self, FieldFault> {
        if let Ok(card) = text.parse::<GhanaCard>() {
            return Ok(Self(card.0));
        }
        let compact = compact(text);
        // Persons, companies, government, foreign missions and others; the last one is a check
        // digit.
        let number = compact.strip_prefix(['P', 'C', 'G', 'Q', 'V']);
        let number = number.filter(|_| compact.len() == Self::CHARACTERS);
        let digits = number.map(|number| number.strip_suffix('X').unwrap_or(number));
        if digits.is_some_and(are_digits) {
            return Ok(Self(compact));
        }
        Err(FieldFault(
            "must be a TIN of 11 characters such as C0001234567, or a Ghana Card's number",
        ))
    }
}

impl fmt::Debug for Tin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tin(•••)")
    }
}

chassis::text_column!(Tin, |tin| tin.as_str().to_owned());

/// A GhanaPost digital address: its district, an area of three to five digits, and four or five
/// digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigitalAddress(String);

impl DigitalAddress {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DigitalAddress {
    type Err = FieldFault;

    fn from_str(text: &str) -> Result<Self, FieldFault> {
        const FAULT: FieldFault =
            FieldFault("must be a GhanaPost digital address such as GA-144-1234");
        let text = text.to_ascii_uppercase();
        let groups: Vec<&str> = text
            .split(is_between)
            .filter(|group| !group.is_empty())
            .collect();
        let whole = groups.concat();
        let (district, area, place) = match groups[..] {
            [district, area, place] => (district, area, place),
            // Without a dash between them, the last four digits are the place.
            [_] | [_, _] => {
                let (district, number) = whole.split_at_checked(2).ok_or(FAULT)?;
                let area_digits = number.len().checked_sub(4).ok_or(FAULT)?;
                let (area, place) = number.split_at_checked(area_digits).ok_or(FAULT)?;
                (district, area, place)
            }
            _ => return Err(FAULT),
        };
        let is_address = matches!(
            district.as_bytes(),
            [region, part] if region.is_ascii_uppercase() && part.is_ascii_alphanumeric()
        ) && are_digits(area)
            && (3..=5).contains(&area.len())
            && are_digits(place)
            && (4..=5).contains(&place.len());
        is_address
            .then(|| Self(format!("{district}-{area}-{place}")))
            .ok_or(FAULT)
    }
}

chassis::text_column!(DigitalAddress, |address| address.as_str().to_owned());

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T>(
        parse: impl Fn(&str) -> Result<T, FieldFault>,
        shown: impl Fn(&T) -> &str,
        good: &[(&str, &str)],
        bad: &[&str],
    ) {
        for (text, kept) in good {
            let parsed = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(shown(&parsed), *kept, "{text}");
        }
        for text in bad {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_leniently_and_kept_in_one_form() {
        check(
            str::parse::<GhanaCard>,
            GhanaCard::as_str,
            &[
                ("GHA-123456789-0", "GHA-123456789-0"),
                (" gha 123 456 789 0", "GHA-123456789-0"),
                ("gha1234567890", "GHA-123456789-0"),
                ("GHA–123456789–0", "GHA-123456789-0"),
            ],
            &[
                "",
                "GHA",
                "123456789-0",
                "GHA-12345678-0",
                "GHA-1234567890-1",
                "GHA-12345678A-0",
                "GHA-١٢٣٤٥٦٧٨٩-٠",
                "NGA-123456789-0",
            ],
        );
        check(
            str::parse::<Tin>,
            Tin::as_str,
            &[
                ("P0001234567", "P0001234567"),
                ("c-000 1234567", "C0001234567"),
                ("c000123456x", "C000123456X"),
                ("gha1234567890", "GHA-123456789-0"),
            ],
            &[
                "",
                "P",
                "P000123456",
                "P00012345678",
                "A0001234567",
                "P00012X4567",
                "CX",
                "é0001234567",
            ],
        );
        check(
            str::parse::<DigitalAddress>,
            DigitalAddress::as_str,
            &[
                ("GA-144-1234", "GA-144-1234"),
                ("ga1441234", "GA-144-1234"),
                ("A2 0016 7758", "A2-0016-7758"),
                ("XL-12345-1234", "XL-12345-1234"),
                ("XL-1234-12345", "XL-1234-12345"),
            ],
            &[
                "",
                "GA",
                "GA-14-1234",
                "GA-144-123",
                "G-144-1234",
                "GA-144-1234-1",
                "GA-144-12é4",
                "éé-144-1234",
            ],
        );
        check(
            parse_registration_number,
            String::as_str,
            &[("cs 123456789", "CS123456789"), ("BN-1/2", "BN-1/2")],
            &["", "CS", "CS1;2", &"1".repeat(31)],
        );
    }

    #[test]
    fn only_what_a_browser_opens_is_a_website() {
        check(
            parse_website,
            String::as_str,
            &[
                ("", ""),
                (" https://ama.example/shop ", "https://ama.example/shop"),
                ("HTTP://ama.example", "http://ama.example/"),
                ("www.ama.example", "https://www.ama.example/"),
            ],
            &[
                "javascript:alert(1)",
                "javascript://ama.example/%0Aalert(1)",
                "data:text/html,x",
                "ftp://ama.example",
                "https://",
                "https://ama",
                "https://user@ama.example",
                "https://ama.example\\x",
                "ama example.com",
            ],
        );
    }

    #[test]
    fn texts_become_one_line() {
        check(
            parse_activity,
            String::as_str,
            &[(" Sells\r\n  fabric ", "Sells fabric"), ("ɛ", "ɛ")],
            &["", " \n", "a\u{7}b", &"x".repeat(501)],
        );
        assert!(parse_town(&"x".repeat(101)).is_err());
        assert!(parse_name(&"ɛ".repeat(200)).is_ok());
        assert!(parse_name(&"ɛ".repeat(201)).is_err());
    }

    #[test]
    fn what_identifies_a_person_prints_masked() {
        let form = Form {
            kind: BusinessKind::Company,
            registered_name: "Ama's Shop".to_owned(),
            registration_number: "CS1".to_owned(),
            tin: "GHA-123456789-0".parse().unwrap(),
            activity: "Fabric".to_owned(),
            website: String::new(),
            digital_address: "GA-144-1234".parse().unwrap(),
            town: "Accra".to_owned(),
            owner_name: "Ama".to_owned(),
            owner_ghana_card: "GHA-123456789-0".parse().unwrap(),
            owner_phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
        };
        let printed = format!("{form:?}");
        assert!(!printed.contains("123456789"), "{printed}");
        assert!(!printed.contains("241234567"), "{printed}");
        assert_eq!(form.to_json()["owner_phone"], "+233241234567");
    }
}
