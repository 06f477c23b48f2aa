//! The settings that a process refuses, each with the variable to change and what it must be.

use std::{collections::HashSet, fmt, fs, path::Path};

use reqwest::Url;

use super::Mode;
use crate::tls;

/// In production a secret has at least this many characters, and this many different ones.
const SECRET_CHARS_MIN: usize = 16;
const SECRET_CHARS_DIFFERENT: usize = 8;

/// Beginnings of secrets that are published in this repository or are placeholders.
const NOT_SECRET: [&str; 13] = [
    "change",
    "demo",
    "dev-",
    "development",
    "example",
    "local",
    "password",
    "postgres",
    "sandbox",
    "secret",
    "simulated",
    "stack",
    "test",
];

/// Whether the text consists of ASCII letters, digits, dots and dashes, and is not empty.
pub fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    !text.is_empty() && text.chars().all(is_letter)
}

/// Collects what is wrong with a process's settings: what cannot work, and what production does
/// not allow.
#[derive(Debug)]
pub struct Refusals {
    mode: Mode,
    found: Vec<RefusedSetting>,
}

#[derive(Debug)]
pub(super) struct RefusedSetting {
    pub variable: &'static str,
    pub wants: String,
}

impl Refusals {
    pub fn new(mode: Mode) -> Self {
        let found = Vec::new();
        Self { mode, found }
    }

    /// Refuses the variable unless `is_good`.
    pub fn unless(&mut self, is_good: bool, variable: &'static str, wants: &str) {
        let is_known = self.found.iter().any(|known| known.variable == variable);
        // One line per variable is enough.
        if !is_good && !is_known {
            let wants = wants.to_owned();
            self.found.push(RefusedSetting { variable, wants });
        }
    }

    /// In production, refuses the variable unless `is_good`.
    pub fn in_production(&mut self, is_good: bool, variable: &'static str, wants: &str) {
        let is_good = is_good || self.mode == Mode::Development;
        self.unless(is_good, variable, &format!("{wants} in production"));
    }

    /// A URL that is used across public networks: https:// in production.
    pub fn public_url(&mut self, variable: &'static str, url: &str) {
        self.in_production(url.starts_with("https://"), variable, "an https:// address");
    }

    /// A secret: never empty, and hard to guess in production.
    pub fn secret(&mut self, variable: &'static str, secret: &str) {
        let is_plain = !secret.is_empty() && secret.chars().all(|c| c.is_ascii_graphic());
        self.unless(is_plain, variable, "a secret without spaces or line breaks");
        self.in_production(
            !is_weak(secret),
            variable,
            "a secret of your own with at least 16 characters",
        );
    }

    /// A URL whose password, if it has one, must be neither the user's name nor a published one in
    /// production.
    pub fn password(&mut self, variable: &'static str, url: &str) {
        let url = Url::parse(url).ok();
        let is_good = url.is_none_or(|url| {
            let is_own = |password: &str| password != url.username() && !is_published(password);
            let mut parameters = url.query_pairs();
            url.password().is_none_or(is_own)
                && parameters.all(|(name, value)| name != "password" || is_own(&value))
        });
        self.in_production(is_good, variable, "a password of your own");
    }

    /// A PostgreSQL URL, which may name certificate files: all must be readable.
    pub fn files(&mut self, variable: &'static str, url: &str) {
        let Ok(url) = Url::parse(url) else { return };
        for (name, file) in url.query_pairs() {
            // The value may be the PEM text itself.
            let is_text = file.starts_with("-----BEGIN");
            let is_good = match &*name {
                _ if is_text => true,
                "sslrootcert" | "ssl-root-cert" | "ssl-ca" => tls::is_authority(Path::new(&*file)),
                "sslcert" | "ssl-cert" | "sslkey" | "ssl-key" => fs::read(&*file).is_ok(),
                _ => true,
            };
            self.unless(
                is_good,
                variable,
                &format!("a PEM file that can be read as {name}"),
            );
        }
    }

    pub(super) fn found(&self) -> &[RefusedSetting] {
        &self.found
    }

    /// # Errors
    /// Some setting is refused.
    pub fn into_result(self) -> Result<(), SettingsError> {
        if self.found.is_empty() {
            return Ok(());
        }
        let line =
            |refusal: &RefusedSetting| format!("{} wants {}", refusal.variable, refusal.wants);
        Err(SettingsError(self.found.iter().map(line).collect()))
    }
}

fn is_weak(secret: &str) -> bool {
    let different: HashSet<char> = secret.chars().collect();
    secret.chars().count() < SECRET_CHARS_MIN
        || different.len() < SECRET_CHARS_DIFFERENT
        || is_published(secret)
}

fn is_published(secret: &str) -> bool {
    let secret = secret.to_ascii_lowercase();
    NOT_SECRET.iter().any(|word| secret.starts_with(word))
}

/// Settings that the process refuses, one line each. It exits with [`super::REFUSED`].
#[derive(Debug)]
pub struct SettingsError(pub(super) Vec<String>);

impl SettingsError {
    /// One line, which names the variable.
    pub fn new(line: impl Into<String>) -> Self {
        Self(vec![line.into()])
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_varied_and_not_published() {
        let weak = [
            "",
            "short",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "stack-momo-subscription-key",
            "change-me-to-something-long",
            "Development-0123456789",
        ];
        for secret in weak {
            assert!(is_weak(secret), "{secret}");
        }
        for secret in ["5f0d3c1e9b7a48d6a2c4e8f013579bdf", "sk_live_9tGx0Qw2mNvB"] {
            assert!(!is_weak(secret), "{secret}");
        }
    }

    #[test]
    fn production_is_stricter_and_says_so() {
        let find = |mode| {
            let mut refusals = Refusals::new(mode);
            refusals.public_url("CHECKOUT_URL", "http://pay.example.com");
            refusals.unless(false, "LEASE", "at least 10s");
            refusals.unless(false, "LEASE", "something else");
            refusals.into_result().unwrap_err().to_string()
        };
        assert_eq!(find(Mode::Development), "LEASE wants at least 10s");
        assert_eq!(
            find(Mode::Production),
            "CHECKOUT_URL wants an https:// address in production\nLEASE wants at least 10s"
        );
    }
}
