//! The settings of merchants-svc.

use std::{sync::Arc, time::Duration};

use chassis::{
    config::{self, Mode, OperatorsListen, Refusals, Settings},
    sealed::{self, Keyring},
};
use clap::{Parser, Subcommand};
use db::config::ServiceConfig;
use lettre::{message::Mailbox, transport::smtp};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::{login::Lifetime, post::MailServer};

/// Encrypts in development if no key is configured. Not random, so production refuses it.
const DEVELOPMENT_KEY: &str = "b25seSBmb3IgZGV2ZWxvcG1lbnQ6IG5vIHNlY3JldC4=";

/// Who merchants are: verification, API keys, and the people who use the dashboard.
#[derive(Clone, Debug, Parser)]
#[command(name = "merchants-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub service: ServiceConfig,

    #[command(flatten)]
    pub operators: OperatorsListen,

    /// Mail server: smtps://user:password@host[:port], or smtp:// and ?tls=required for one that
    /// upgrades to TLS. Production requires one; without it no mail is sent.
    #[arg(long, env = "SMTP_URL", hide_env_values = true)]
    pub smtp_url: Option<SecretString>,

    /// Whom mails are from, such as `Payments <no-reply@example.com>`. Needed with SMTP_URL.
    #[arg(long, env = "MAIL_FROM")]
    pub mail_from: Option<Mailbox>,

    /// Public address of the dashboard. Links in mails begin with it, and authenticators show its
    /// host.
    #[arg(long, env = "DASHBOARD_URL", default_value = "http://127.0.0.1:8082")]
    pub dashboard_url: Url,

    /// Key that encrypts the secrets of authenticators at rest: 32 bytes in base64. Of several,
    /// separated by commas, the first encrypts and all decrypt. Production requires it.
    #[arg(long, env = "TOTP_SECRET_KEY", hide_env_values = true)]
    pub totp_secret_key: Option<SecretString>,

    /// How long a login lasts without use.
    #[arg(long, env = "LOGIN_IDLE", default_value = "30m", value_parser = config::duration)]
    pub login_idle: Duration,

    /// How long a login lasts in all.
    #[arg(long, env = "LOGIN_MAX", default_value = "12h", value_parser = config::duration)]
    pub login_max: Duration,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and exits.
    Migrate,
    /// Encrypts every authenticator's secret with the first key and exits. The other keys are then
    /// no longer needed.
    Reseal,
    #[command(flatten)]
    Common(config::Command),
}

impl Config {
    /// The mail server, if one is configured with whom mails are from.
    pub fn mail_server(&self) -> Result<Option<Arc<MailServer>>, smtp::Error> {
        let both = self.smtp_url.as_ref().zip(self.mail_from.as_ref());
        let server = both.map(|(url, from)| MailServer::new(url, from));
        Ok(server.transpose()?.map(Arc::new))
    }

    /// The keys that encrypt the secrets of authenticators.
    pub fn keyring(&self) -> anyhow::Result<Keyring> {
        Keyring::new("TOTP_SECRET_KEY", &self.key())
    }

    fn key(&self) -> SecretString {
        let key = self.totp_secret_key.clone();
        key.unwrap_or_else(|| DEVELOPMENT_KEY.into())
    }

    pub fn lifetime(&self) -> Lifetime {
        Lifetime {
            idle: self.login_idle,
            most: self.login_max,
        }
    }
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.service.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        self.service.check(refusals);
        self.operators.check(&self.service.listen, refusals);
        let wants = "smtps://user:password@host, or smtp://user:password@host?tls=required";
        let url = self.smtp_url.as_ref();
        refusals.in_production(url.is_some(), "SMTP_URL", wants);
        if let Some(url) = url.map(|url| url.expose_secret()) {
            config::check_authorities(refusals);
            refusals.unless(self.mail_server().is_ok(), "SMTP_URL", wants);
            refusals.password("SMTP_URL", url);
            refusals.in_production(is_encrypted(url), "SMTP_URL", wants);
            let wants = "whom mails are from, such as no-reply@example.com,";
            refusals.unless(self.mail_from.is_some(), "MAIL_FROM", wants);
        }
        let url = &self.dashboard_url;
        let is_base = matches!(url.scheme(), "http" | "https")
            && url.host().is_some()
            && url.query().is_none()
            && url.fragment().is_none();
        refusals.unless(is_base, "DASHBOARD_URL", "http(s)://host[:port]");
        refusals.public_url("DASHBOARD_URL", url.as_str());
        sealed::check(refusals, "TOTP_SECRET_KEY", &self.key());
        let (idle, most) = (self.login_idle, self.login_max);
        refusals.unless(!idle.is_zero(), "LOGIN_IDLE", "more than nothing");
        refusals.unless(most >= idle, "LOGIN_MAX", "at least LOGIN_IDLE");
    }
}

/// Whether nobody in between can read mails and the password.
fn is_encrypted(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let is_upgraded = url
        .query_pairs()
        .any(|(name, value)| name == "tls" && value == "required");
    url.scheme() == "smtps" || is_upgraded
}
