//! Settings, from flags or the environment.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use chassis::{
    config::{Mode, Refusals, Settings, Telemetry, duration},
    money::{Currency, Money},
};
use clap::Parser;
use rust_decimal::Decimal;
use url::Url;

use crate::{credits::Terms, payment::Timing, rail::Accounts};

/// Simulated mobile-money networks: MTN MoMo, Paystack and Hubtel on one address, with a handset
/// page, and a mailbox that catches all mail.
#[derive(Clone, Parser)]
#[command(name = "railsim", version)]
pub struct Config {
    /// Anything but `development` is refused: these networks move no money.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub(crate) mode: Mode,

    /// Address of the networks' APIs, the handset page and the mail page.
    #[arg(long, env = "RAILSIM_LISTEN", default_value = "127.0.0.1:8083")]
    pub listen: SocketAddr,

    /// Address that takes mail by SMTP, without TLS or a password: all of it is caught and shown on
    /// the page /mail.
    #[arg(long, env = "RAILSIM_MAIL_LISTEN", default_value = "127.0.0.1:8025")]
    pub(crate) mail_listen: SocketAddr,

    /// Addresses whose links can be clicked in caught mail, such as the dashboard's.
    #[arg(long, env = "RAILSIM_MAIL_LINKS", value_delimiter = ',')]
    pub(crate) mail_links: Vec<Url>,

    /// Folder for the book of debits and credits, and for caught mail. Without it, they are lost
    /// with the process.
    #[arg(long, env = "RAILSIM_DATA")]
    pub(crate) data: Option<PathBuf>,

    /// How long a payer has to answer a prompt [default: 300s on MTN and Hubtel, 180s
    /// on Paystack].
    #[arg(
        long,
        env = "RAILSIM_PROMPT_TIMEOUT",
        value_parser = duration
    )]
    pub(crate) prompt_timeout: Option<Duration>,

    /// How long a payer takes to answer a prompt, and a rail to pay a credit.
    #[arg(
        long,
        env = "RAILSIM_APPROVE_DELAY",
        default_value = "1s",
        value_parser = duration
    )]
    pub(crate) approve_delay: Duration,

    /// What the float of each rail holds before anything is paid out, in GHS.
    #[arg(
        long,
        env = "RAILSIM_FLOAT",
        default_value = "1000000.00",
        value_parser = cedis
    )]
    pub(crate) float: Money,

    /// How long the receiver of a callback may take to answer.
    #[arg(
        long,
        env = "RAILSIM_CALLBACK_TIMEOUT",
        default_value = "30s",
        value_parser = duration
    )]
    pub(crate) callback_timeout: Duration,

    /// Address of this machine to send callbacks from, as a network has its own.
    #[arg(long, env = "RAILSIM_CALLBACKS_FROM")]
    pub(crate) callbacks_from: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) accounts: Accounts,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

impl Config {
    pub(crate) fn timing(&self) -> Timing {
        Timing {
            approve_delay: self.approve_delay,
            prompt: self.prompt_timeout,
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            delay: self.approve_delay,
            opening_minor: self.float.minor_units(),
        }
    }
}

/// An amount of GHS that is not negative.
fn cedis(text: &str) -> Result<Money, &'static str> {
    let amount: Option<Decimal> = text.parse().ok();
    let amount = amount.filter(|amount| !amount.is_sign_negative());
    let money = amount.and_then(|amount| Money::from_major(amount, Currency::GHS).ok());
    money.ok_or("must be an amount of GHS, such as 10.00")
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        let is_trial = self.mode == Mode::Development;
        let wants = "development: simulated networks move no money";
        refusals.unless(is_trial, "MODE", wants);
        self.telemetry.check(refusals);
        self.accounts.check(refusals);
        let are_web = self
            .mail_links
            .iter()
            .all(|link| link.scheme().starts_with("http"));
        let wants = "addresses such as http://127.0.0.1:8082";
        refusals.unless(are_web, "RAILSIM_MAIL_LINKS", wants);
    }
}
