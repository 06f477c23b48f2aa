//! The words of the dashboard, and its languages.
//!
//! Pages are written in English. What is ours is a [`Phrase`], with what it tells in its places, and
//! what is not is a plain [`Text`]. Both pass through the filter `t` on their way into a page:
//! `{{ "Sign up"|t }}`. Another language is a table from these phrases to its own.

use std::borrow::Cow;

use askama::Values;
use chassis::clock::Timestamp;

#[cfg(test)]
pub mod tests;

/// The name under which a page's language is handed to its filters.
const LANGUAGE: &str = "language";

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A language of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// BCP 47.
    pub code: &'static str,
    /// What an English phrase is here, with the same places; the same where nobody has translated it.
    translate: fn(&str) -> Cow<'_, str>,
}

pub static ENGLISH: Language = Language {
    code: "en",
    translate: |english| Cow::Borrowed(english),
};

/// Words of our own, with what they tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phrase {
    english: Cow<'static, str>,
    /// What stands in the places `{0}`, `{1}`, …, which another language may order anew.
    values: Vec<Text>,
}

/// A phrase with places: `phrase!("{0} of {1}", part, whole)`. It does not compile if it has another
/// number of places than values.
macro_rules! phrase {
    ($english:literal $(, $value:expr)+ $(,)?) => {{
        const {
            let values: &[&str] = &[$(stringify!($value)),+];
            assert!($crate::dashboard::text::has_places($english, values.len()));
        }
        $crate::dashboard::text::Phrase::filled($english, vec![$($value.into()),+])
    }};
}
pub(super) use phrase;

/// Whether the phrase has exactly the places of so many values.
pub const fn has_places(english: &str, values: usize) -> bool {
    let mut rest = english.as_bytes();
    let mut seen = 0_u32;
    loop {
        rest = match rest {
            [b'{', place @ b'0'..=b'9', b'}', rest @ ..] => {
                seen |= 1 << (*place - b'0');
                rest
            }
            [b'{' | b'}', ..] => return false,
            [_, rest @ ..] => rest,
            [] => return seen == (1 << values) - 1,
        };
    }
}

impl Phrase {
    /// For [`phrase!`], which looks at the places.
    pub const fn filled(english: &'static str, values: Vec<Text>) -> Self {
        Self {
            english: Cow::Borrowed(english),
            values,
        }
    }

    /// What a service says in words of ours.
    pub fn of_a_service(english: impl Into<Cow<'static, str>>) -> Self {
        Self {
            english: english.into(),
            values: Vec::new(),
        }
    }
}

impl From<&'static str> for Phrase {
    fn from(english: &'static str) -> Self {
        Self::of_a_service(english)
    }
}

/// What is written somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// From outside, or the same in every language: as it is.
    Plain(String),
    Phrase(Phrase),
    Moment(Timestamp),
    /// The day of a moment.
    Day(Timestamp),
}

impl Text {
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Phrase(phrase) => phrase.english.is_empty(),
            Self::Moment(_) | Self::Day(_) => false,
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::Plain(String::new())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::Plain(text.clone())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<Phrase> for Text {
    fn from(phrase: Phrase) -> Self {
        Self::Phrase(phrase)
    }
}

/// A moment that a service named, as people read it: `25 Nov 2026, 18:05:03 GMT`.
pub fn moment(at: &str) -> Text {
    at.parse().map_or_else(|_| at.into(), Text::Moment)
}

/// A day that a service named, as people read it: `25 Nov 2026`.
pub fn date(day: &str) -> Text {
    let midnight = format!("{day}T00:00:00.000Z").parse();
    midnight.map_or_else(|_| day.into(), Text::Day)
}

/// How long it is until then: `23 h 14 min`.
pub fn left(now: Timestamp, until: Timestamp) -> Phrase {
    let minutes = until.since(now).as_secs().div_ceil(60);
    let (days, hours) = (minutes / (24 * 60), minutes / 60 % 24);
    let text = |number: u64| number.to_string();
    match (days, hours) {
        (0, 0) => phrase!("{0} min", text(minutes)),
        (0, _) => phrase!("{0} h {1} min", text(hours), text(minutes % 60)),
        (1, _) => phrase!("1 day {0} h", text(hours)),
        _ => phrase!("{0} days {1} h", text(days), text(hours)),
    }
}

/// The same of a moment that a service named, with that moment: `23 h 14 min (25 Nov 2026, …)`.
pub fn left_until(now: Timestamp, until: &str) -> Text {
    match until.parse() {
        Ok(at) => phrase!("{0} ({1})", left(now, at), moment(until)).into(),
        Err(_) => until.into(),
    }
}

/// What can be said in every language.
pub trait Say {
    fn say(&self, language: &Language) -> String;
}

impl<T: Say + ?Sized> Say for &T {
    fn say(&self, language: &Language) -> String {
        T::say(self, language)
    }
}

/// A phrase without places.
impl Say for str {
    fn say(&self, language: &Language) -> String {
        (language.translate)(self).into_owned()
    }
}

impl Say for Phrase {
    fn say(&self, language: &Language) -> String {
        let phrase = (language.translate)(&self.english);
        if self.values.is_empty() {
            return phrase.into_owned();
        }
        // In one pass, because a value may contain braces.
        let mut parts = phrase.split('{');
        let mut said = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (place, rest) = part.split_once('}').unwrap_or((part, ""));
            let place = place.parse::<usize>().ok();
            if let Some(value) = place.and_then(|place| self.values.get(place)) {
                said.push_str(&value.say(language));
            }
            said.push_str(rest);
        }
        said
    }
}

impl Say for Text {
    fn say(&self, language: &Language) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Phrase(phrase) => phrase.say(language),
            Self::Moment(at) => {
                let time = at.datetime();
                let (hour, minute, second) = (time.hour(), time.minute(), time.second());
                let day = Self::Day(*at).say(language);
                format!("{day}, {hour:02}:{minute:02}:{second:02}\u{a0}GMT")
            }
            Self::Day(at) => {
                let at = at.datetime();
                let month = usize::from(u8::from(at.month()));
                let month = MONTHS.get(month - 1).copied().unwrap_or_default();
                format!("{} {} {}", at.day(), month.say(language), at.year())
            }
        }
    }
}

/// What a page's filters are handed.
pub struct InLanguage(pub &'static Language);

impl Values for InLanguage {
    fn get_value<'a>(&'a self, key: &str) -> Option<&'a dyn std::any::Any> {
        (key == LANGUAGE).then_some(self.0 as &dyn std::any::Any)
    }
}

pub mod filters {
    use askama::{Values, get_value};

    use super::{ENGLISH, LANGUAGE, Language, Say};

    /// The same in the page's language.
    #[askama::filter_fn]
    pub fn t(said: impl Say, values: &dyn Values) -> askama::Result<String> {
        let language = get_value::<Language>(values, LANGUAGE).unwrap_or(&ENGLISH);
        Ok(said.say(language))
    }
}
