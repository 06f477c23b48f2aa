//! Where payers approve if no prompt shows up. The networks change their menus, so an operator can
//! replace the words without a new version.

use std::{collections::BTreeMap, str::FromStr};

use chassis::provider::MUST_BE_PROVIDER;
use proto::charges::Provider;

use super::text::{self, Text};

/// Most characters in one text.
const CHARACTERS_MAX: usize = 300;

/// Texts by network and language.
type Texts = BTreeMap<String, BTreeMap<String, String>>;

/// The operator's texts, as JSON: `{"MTN": {"en": "Dial …", "tw": "Frɛ …"}}`.
#[derive(Clone, Debug, Default)]
pub struct Rescue(Texts);

impl FromStr for Rescue {
    type Err = String;

    fn from_str(json: &str) -> Result<Self, String> {
        let texts: Texts = serde_json::from_str(json)
            .map_err(|error| format!("must be JSON by network and language: {error}"))?;
        for (network, of_network) in &texts {
            if Provider::from_code(network).is_none() {
                return Err(format!("{network} is not a network: it {MUST_BE_PROVIDER}"));
            }
            // A forgotten language would go on naming the old menu.
            let languages: Vec<&str> = text::LANGUAGES.iter().map(|text| text.code).collect();
            if !of_network.keys().eq(&languages) {
                let languages = languages.join(" and ");
                return Err(format!("{network} must have a text in {languages} each"));
            }
            for (language, text) in of_network {
                let is_line = !text.trim().is_empty() && !text.contains(char::is_control);
                if !is_line || text.chars().count() > CHARACTERS_MAX {
                    return Err(format!(
                        "the text of {network} in {language} must be one line of 1 to \
                         {CHARACTERS_MAX} characters"
                    ));
                }
            }
        }
        Ok(Self(texts))
    }
}

impl Rescue {
    /// What a payer of this network reads.
    pub fn text<'a>(&'a self, provider: Provider, text: &'a Text) -> &'a str {
        provider
            .code()
            .and_then(|network| self.0.get(network)?.get(text.code))
            .map_or(text.rescue(provider), |text| text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout::text::{ENGLISH, TWI};

    #[test]
    fn a_networks_own_words_replace_ours_and_only_for_it() {
        let rescue: Rescue = r#"{"MTN": {"tw": "Frɛ *999#.", "en": " Dial *999#. "}}"#
            .parse()
            .unwrap();
        assert_eq!(rescue.text(Provider::Mtn, &ENGLISH), "Dial *999#.");
        assert_eq!(rescue.text(Provider::Mtn, &TWI), "Frɛ *999#.");
        for text in [&ENGLISH, &TWI] {
            let ours = text.rescue(Provider::Telecel);
            assert_eq!(rescue.text(Provider::Telecel, text), ours);
            let ours = text.rescue(Provider::Mtn);
            assert_eq!(Rescue::default().text(Provider::Mtn, text), ours);
        }
    }

    #[test]
    fn what_would_not_be_shown_as_it_is_meant_is_refused() {
        let long = format!(
            r#"{{"AT": {{"en": "{}", "tw": "x"}}}}"#,
            "x".repeat(CHARACTERS_MAX + 1)
        );
        for (json, fault) in [
            ("", "must be JSON"),
            ("Dial *170#", "must be JSON"),
            (r#"{"MTN": "Dial *170#"}"#, "must be JSON"),
            (r#"{"mtn": {"en": "x", "tw": "x"}}"#, "is not a network"),
            (r#"{"MTN": {"en": "x"}}"#, "a text in en and tw"),
            (r#"{"MTN": {"en": "x", "tw": "x", "fr": "x"}}"#, "en and tw"),
            (r#"{"MTN": {"en": "x", "tw": " "}}"#, "one line"),
            (r#"{"MTN": {"en": "a\nb", "tw": "x"}}"#, "one line"),
            (&long, "AT in en"),
        ] {
            let told = json.parse::<Rescue>().unwrap_err();
            assert!(told.contains(fault), "{json}: {told}");
        }
    }
}
