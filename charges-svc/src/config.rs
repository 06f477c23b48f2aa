//! The settings of charges-svc.

use std::time::Duration;

use chassis::{
    config::{self, Mode, OperatorsListen, Refusals, Settings, duration},
    grpc::{self, Caller},
    money::{Currency, Money},
};
use clap::Parser;
use db::config::{Command, ServiceConfig};
use rust_decimal::Decimal;
use secrecy::SecretString;

use crate::{
    payout_fees::PayoutFees,
    schedule::DAY,
    service,
    statement_key::{self, KeyError, PublicKey, StatementKeys},
    tell::SERVICE_CALL_MAX,
};

/// Charges: one try each to debit a payer's wallet; and the ledger of what was collected.
#[derive(Clone, Debug, Parser)]
#[command(name = "charges-svc", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub service: ServiceConfig,

    #[command(flatten)]
    pub operators: OperatorsListen,

    #[command(flatten)]
    pub rails: rails::RailSettings,

    /// Address of sessions-svc.
    #[arg(long, env = "SESSIONS_URL")]
    pub sessions_url: String,

    /// Address of webhooks-svc.
    #[arg(long, env = "WEBHOOKS_URL")]
    pub webhooks_url: String,

    /// Address of merchants-svc, which mails what merchants are to be told.
    #[arg(long, env = "MERCHANTS_URL")]
    pub merchants_url: String,

    /// When a rail is first queried about a charge, each counted from the submission.
    #[arg(
        long,
        env = "RECONCILE_SCHEDULE",
        value_delimiter = ',',
        default_value = "15s,30s,60s,120s",
        value_parser = duration
    )]
    pub reconcile_schedule: Vec<Duration>,

    /// How long a payer may submit a code.
    #[arg(long, env = "OTP_LIFETIME", default_value = "10m", value_parser = duration)]
    pub otp_lifetime: Duration,

    /// How long the work of a process that died waits for another: at least 13s, and 7s more than
    /// the longest timeout of the rails.
    #[arg(long, env = "LEASE", default_value = "30s", value_parser = duration)]
    pub lease: Duration,

    /// Name of the account that the rails' fees are posted to: `fees:<name>`.
    #[arg(long, env = "FEE_ACCOUNT", default_value = "rails")]
    pub fee_account: String,

    /// How long payouts wait after a merchant's payout account was changed.
    #[arg(long, env = "PAYOUT_ACCOUNT_HOLD", default_value = "24h", value_parser = duration)]
    pub payout_account_hold: Duration,

    /// How long payouts wait after a merchant has set its first payout account, so that its people,
    /// who are mailed of it, can object.
    #[arg(
        long,
        env = "FIRST_PAYOUT_ACCOUNT_HOLD",
        default_value = "24h",
        value_parser = duration
    )]
    pub first_payout_account_hold: Duration,

    /// Whether a merchant that sets its own first payout account may ask for payouts: an operator has
    /// approved its business. With `false`, an operator also enables them, merchant by merchant.
    #[arg(
        long,
        env = "PAYOUTS_ON_REQUEST_BY_DEFAULT",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub payouts_on_request_by_default: bool,

    /// How long after a disbursement was sent its rail, if it still knows nothing of it, gets it once
    /// more, under the same reference. Production refuses less than 15m.
    #[arg(long, env = "DISBURSEMENT_RESEND_AFTER", default_value = "15m", value_parser = duration)]
    pub disbursement_resend_after: Duration,

    /// When the daily settlement begins, counted from midnight UTC, which is Ghana's time.
    #[arg(long, env = "SETTLEMENT_TIME", default_value = "6h", value_parser = duration)]
    pub settlement_time: Duration,

    /// The least that the daily settlement pays out, in GHS.
    #[arg(long, env = "SETTLEMENT_MINIMUM", default_value = "10.00", value_parser = cedis)]
    pub settlement_minimum: Money,

    /// What the daily settlement leaves on each merchant's balance, in GHS.
    #[arg(long, env = "SETTLEMENT_RESERVE", default_value = "0.00", value_parser = cedis)]
    pub settlement_reserve: Money,

    /// The least payout that a merchant can ask for, in GHS.
    #[arg(long, env = "PAYOUT_MINIMUM", default_value = "1.00", value_parser = cedis)]
    pub payout_minimum: Money,

    /// What a merchant pays for each payout that MTN pays, in GHS, beside its amount. Whatever MTN
    /// takes, the house bears it.
    #[arg(long, env = "PAYOUT_FEE_MOMO", default_value = "0.00", value_parser = cedis)]
    pub payout_fee_momo: Money,

    /// The same for each that Paystack pays to a wallet.
    #[arg(long, env = "PAYOUT_FEE_PAYSTACK_WALLET", default_value = "0.00", value_parser = cedis)]
    pub payout_fee_paystack_wallet: Money,

    /// The same for each that Paystack pays to a bank account.
    #[arg(long, env = "PAYOUT_FEE_PAYSTACK_BANK", default_value = "0.00", value_parser = cedis)]
    pub payout_fee_paystack_bank: Money,

    /// The same for each that Hubtel pays.
    #[arg(long, env = "PAYOUT_FEE_HUBTEL", default_value = "0.00", value_parser = cedis)]
    pub payout_fee_hubtel: Money,

    /// The least part of a charge that a merchant can refund, in GHS. What is left last may be less.
    #[arg(long, env = "REFUND_MINIMUM", default_value = "1.00", value_parser = cedis)]
    pub refund_minimum: Money,

    /// Key that signs statements: the 32 bytes of an Ed25519 seed in base64. Production requires
    /// it; without it there are no statements.
    #[arg(long, env = "STATEMENT_KEY", hide_env_values = true)]
    pub statement_key: Option<SecretString>,

    /// Public keys that signed statements before, in hex and separated by commas. They are
    /// published beside the one that signs.
    #[arg(long, env = "STATEMENT_OLD_PUBLIC_KEYS", value_delimiter = ',')]
    pub statement_old_public_keys: Vec<PublicKey>,
}

/// An amount of GHS that is not negative.
fn cedis(text: &str) -> Result<Money, &'static str> {
    let amount: Option<Decimal> = text.parse().ok();
    let amount = amount.filter(|amount| !amount.is_sign_negative());
    let money = amount.and_then(|amount| Money::from_major(amount, Currency::GHS).ok());
    money.ok_or("must be an amount of GHS, such as 10.00")
}

/// Longest time from taking a charge to calling its rail, with sessions-svc and two commits in
/// between.
const OPENING_MAX: Duration = Duration::from_secs(4);

/// Shortest time after which a rail that knows nothing of a disbursement can be believed: Paystack
/// makes its record of a transfer only after its own checks. Neither rail documents how long it may
/// take.
const RESEND_AFTER_MIN: Duration = Duration::from_secs(15 * 60);

/// Longest time to write the reply to a slow database.
const WRITING_MAX: Duration = Duration::from_secs(3);

impl Config {
    /// The keys of statements, if one is configured.
    pub fn statement_keys(&self) -> Result<Option<StatementKeys>, KeyError> {
        let key = self.statement_key.as_ref();
        key.map(|key| StatementKeys::new(key, &self.statement_old_public_keys))
            .transpose()
    }

    pub fn settings(&self) -> service::Settings {
        service::Settings {
            reconcile_schedule: self.reconcile_schedule.clone(),
            otp_lifetime: self.otp_lifetime,
            lease: self.lease,
            call_and_write_max: self.rails.longest_call() + WRITING_MAX,
            fee_account: self.fee_account.clone(),
            payout_account_hold: self.payout_account_hold,
            first_payout_account_hold: self.first_payout_account_hold,
            payouts_on_request_by_default: self.payouts_on_request_by_default,
            disbursement_resend_after: self.disbursement_resend_after,
            settlement_time: self.settlement_time,
            settlement_minimum: self.settlement_minimum,
            settlement_reserve: self.settlement_reserve,
            payout_minimum: self.payout_minimum,
            refund_minimum: self.refund_minimum,
            payout_fees: PayoutFees {
                momo: self.payout_fee_momo,
                paystack_wallet: self.payout_fee_paystack_wallet,
                paystack_bank: self.payout_fee_paystack_bank,
                hubtel: self.payout_fee_hubtel,
            },
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
        config::check_authorities(refusals);
        self.rails.check(refusals);
        let tls = &self.service.tls;
        tls.check_caller(Caller::ChargesSvc, refusals);
        grpc::check_url(refusals, "SESSIONS_URL", &self.sessions_url, tls);
        grpc::check_url(refusals, "WEBHOOKS_URL", &self.webhooks_url, tls);
        grpc::check_url(refusals, "MERCHANTS_URL", &self.merchants_url, tls);
        // Work that outlasts its lease is done by two processes.
        let charging = OPENING_MAX + self.rails.longest_call() + WRITING_MAX;
        let telling = 2 * SERVICE_CALL_MAX + WRITING_MAX;
        let wants = "at least 13s, and 7s more than the longest timeout of the rails";
        refusals.unless(self.lease >= charging.max(telling), "LEASE", wants);
        let lives = !self.otp_lifetime.is_zero();
        refusals.unless(lives, "OTP_LIFETIME", "more than nothing");
        let is_of_a_day = self.settlement_time < DAY;
        refusals.unless(is_of_a_day, "SETTLEMENT_TIME", "less than 24h");
        let is_seed = self.statement_keys().is_ok();
        refusals.unless(is_seed, "STATEMENT_KEY", "32 bytes in base64");
        let key = self.statement_key.as_ref();
        let is_random = is_seed && key.is_some_and(statement_key::is_random);
        let wants = "a key of your own, as `openssl rand -base64 32` makes it,";
        refusals.in_production(is_random, "STATEMENT_KEY", wants);
        let is_patient = self.disbursement_resend_after >= RESEND_AFTER_MIN;
        refusals.in_production(is_patient, "DISBURSEMENT_RESEND_AFTER", "at least 15m");
        let is_name = config::is_name(&self.fee_account);
        refusals.unless(is_name, "FEE_ACCOUNT", "letters, digits, dots and dashes");
    }
}
