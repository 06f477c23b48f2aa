//! The languages of the dashboard.
//!
//! Pages are written in English, and each phrase passes through the filter `t` on its way into a
//! page: `{{ "Sign up"|t }}`. Another language is a table from these phrases to its own, and a test
//! holds that no text of a template goes around the filter.

use std::collections::HashMap;

use askama::Values;

/// The name under which a page's language is handed to its filters.
const LANGUAGE: &str = "language";

/// A language of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// BCP 47.
    pub code: &'static str,
    /// What English phrases are here; `None` for English itself.
    phrases: Option<&'static HashMap<&'static str, &'static str>>,
}

pub static ENGLISH: Language = Language {
    code: "en",
    phrases: None,
};

impl Language {
    /// This phrase in this language, or in English where nobody has translated it yet.
    pub fn phrase<'a>(&self, english: &'a str) -> &'a str
    where
        'static: 'a,
    {
        let phrases = self.phrases;
        phrases
            .and_then(|phrases| phrases.get(english).copied())
            .unwrap_or(english)
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

    use super::{ENGLISH, LANGUAGE, Language};

    /// The phrase in the page's language.
    #[askama::filter_fn]
    pub fn t(phrase: impl AsRef<str>, values: &dyn Values) -> askama::Result<String> {
        let language = get_value::<Language>(values, LANGUAGE).unwrap_or(&ENGLISH);
        Ok(language.phrase(phrase.as_ref()).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// What is left of a template without tags, expressions and statements.
    fn bare_text(template: &str) -> String {
        let mut left = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['<', '{']) {
            left.push_str(&rest[..at]);
            let from = &rest[at..];
            let end = match from {
                from if from.starts_with("{{") => "}}",
                from if from.starts_with("{%") => "%}",
                from if from.starts_with("{#") => "#}",
                _ => ">",
            };
            let after = from.find(end).expect("what begins ends");
            rest = &from[after + end.len()..];
        }
        left + rest
    }

    #[test]
    fn no_text_of_a_template_goes_around_the_catalogue() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/dashboard");
        let mut seen = 0;
        for file in fs::read_dir(folder).expect("the templates") {
            let file = file.expect("a template").path();
            let template = fs::read_to_string(&file).expect("a template");
            let text = bare_text(&template);
            let words: Vec<&str> = text
                .split_whitespace()
                .filter(|word| word.chars().any(char::is_alphabetic))
                .collect();
            assert!(words.is_empty(), "{}: {words:?}", file.display());
            seen += 1;
        }
        assert!(seen > 3, "{seen} templates");
        assert_eq!(bare_text("<p>Hello {{ name }}</p>"), "Hello ");
    }

    #[test]
    fn what_is_not_translated_stays_english() {
        let phrases = Box::leak(Box::new(HashMap::from([("Log in", "Hyɛn mu")])));
        let twi = Language {
            code: "tw",
            phrases: Some(phrases),
        };
        assert_eq!(twi.phrase("Log in"), "Hyɛn mu");
        assert_eq!(twi.phrase("Sign up"), "Sign up");
        assert_eq!(ENGLISH.phrase("Log in"), "Log in");
    }
}
