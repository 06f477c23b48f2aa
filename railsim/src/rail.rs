//! The rails that are simulated, each with an arm for what it has of its own apart from its wire.

use std::time::Duration;

use chassis::config::Refusals;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    hubtel::settings::HubtelSettings, momo::settings::MomoSettings,
    paystack::settings::PaystackSettings,
};

/// The API through which a payment was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rail {
    Momo,
    Paystack,
    Hubtel,
}

/// The one account at each rail.
#[derive(Clone, Args)]
pub struct Accounts {
    #[command(flatten)]
    pub momo: MomoSettings,

    #[command(flatten)]
    pub paystack: PaystackSettings,

    #[command(flatten)]
    pub hubtel: HubtelSettings,
}

/// Fields that each API returns as it received them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Details {
    Momo {
        external_id: String,
        payer_message: String,
        payee_note: String,
    },
    Paystack {
        email: String,
        metadata: serde_json::Value,
    },
    Hubtel {
        description: String,
    },
}

/// How a rail treats its payments.
pub struct Behaviour {
    /// How long payers have to answer, unless a prompt time is set.
    pub prompt: Duration,
    /// Whether it calls back about failures.
    pub reports_failures: bool,
    /// Whether a query tells a failure from what is not paid yet.
    pub answers_failures: bool,
    /// Whether it repeats a callback until it is answered, or sends it once.
    pub repeats_callbacks: bool,
    /// Whether a payment by an unknown payer can be queried, as one that failed.
    pub keeps_unknown_payers: bool,
    /// Whether it asks Telecel payers for a code.
    pub asks_codes: bool,
    /// Its own test number, which is debited before the first reply.
    pub instant_number: Option<&'static str>,
}

/// How a rail pays credits.
pub struct Pays {
    /// Whether amount and fee leave the float when a credit is taken, or the amount when it is
    /// paid.
    pub takes_first: bool,
    /// Whether it refuses at once what its float does not hold, although it takes nothing then.
    pub looks_first: bool,
    /// What it takes for a credit to a wallet, and to a bank account, in minor units.
    fees_minor: [i64; 2],
    /// Whether it can take back what it paid.
    pub reverses: bool,
    /// Whether it calls back about every change, or once.
    pub repeats_reports: bool,
}

impl Pays {
    /// What the rail takes for a credit, in minor units. A credit that failed costs nothing.
    pub fn fee_minor(&self, is_bank: bool) -> i64 {
        let [wallet, bank] = self.fees_minor;
        if is_bank { bank } else { wallet }
    }
}

impl Accounts {
    pub fn check(&self, refusals: &mut Refusals) {
        let Self {
            momo,
            paystack,
            hubtel,
        } = self;
        momo.check(refusals);
        paystack.check(refusals);
        hubtel.check(refusals);
    }
}

impl Rail {
    pub fn behaviour(self) -> Behaviour {
        match self {
            Self::Momo => Behaviour {
                prompt: Duration::from_secs(300),
                reports_failures: true,
                answers_failures: true,
                repeats_callbacks: false,
                keeps_unknown_payers: false,
                asks_codes: false,
                instant_number: None,
            },
            Self::Paystack => Behaviour {
                prompt: Duration::from_secs(180),
                reports_failures: false,
                answers_failures: true,
                repeats_callbacks: true,
                keeps_unknown_payers: true,
                asks_codes: true,
                instant_number: Some("+233551234987"),
            },
            Self::Hubtel => Behaviour {
                prompt: Duration::from_secs(300),
                reports_failures: true,
                answers_failures: false,
                repeats_callbacks: false,
                keeps_unknown_payers: true,
                asks_codes: false,
                instant_number: None,
            },
        }
    }

    pub fn pays(self) -> Pays {
        match self {
            Self::Momo => Pays {
                takes_first: false,
                looks_first: false,
                fees_minor: [0, 0],
                reverses: false,
                repeats_reports: false,
            },
            Self::Paystack => Pays {
                takes_first: true,
                looks_first: false,
                fees_minor: [100, 800],
                reverses: true,
                repeats_reports: true,
            },
            Self::Hubtel => Pays {
                takes_first: false,
                looks_first: true,
                fees_minor: [0, 0],
                reverses: false,
                repeats_reports: false,
            },
        }
    }
}
