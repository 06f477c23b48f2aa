//! Rails: what carries a debit. One module per rail knows its wire; everything else knows only
//! what is here.
//!
//! Promise: an answer that the rail did not clearly give is `Unknown`, never a failure. A rail is
//! called with a reference that was durable before, and is called once for it.

use std::{future::Future, num::NonZeroU32, str::FromStr, time::Duration};

use anyhow::Context as _;
use chassis::{
    config::{Mode, Refusals},
    ids::{RailReference, Reference},
    money::Money,
    phone::Phone,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty, info_span};

use crate::{
    config::rails::{self, RailName},
    failure::FailureReason,
};

mod momo;
mod paystack;
pub(crate) mod wire;
mod words;

pub use momo::Momo;
pub use paystack::{CallbackError, Paystack};
pub use wire::RAIL_CALL_MAX;

/// The payer's network, as the merchant chose it; never read from the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    Mtn,
    Telecel,
    At,
}

impl Provider {
    pub const ALL: [Self; 3] = [Self::Mtn, Self::Telecel, Self::At];

    /// As it stands in JSON and SQL.
    pub fn code(self) -> &'static str {
        match self {
            Self::Mtn => "MTN",
            Self::Telecel => "TELECEL",
            Self::At => "AT",
        }
    }
}

/// The text is none of the providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a provider")]
pub struct UnknownProvider;

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(code: &str) -> Result<Self, UnknownProvider> {
        let found = Self::ALL
            .into_iter()
            .find(|provider| provider.code() == code);
        found.ok_or(UnknownProvider)
    }
}

chassis::text_column!(Provider, |provider| provider.code().to_owned());

/// A rail, ready to be called.
#[derive(Clone, Debug)]
pub enum Rail {
    Momo(Momo),
    Paystack(Paystack),
}

/// What a rail is asked to debit.
#[derive(Clone, Debug)]
pub struct PaymentRequest {
    pub rail_reference: RailReference,
    /// For the merchant's and payer's statements.
    pub reference: Reference,
    pub amount: Money,
    pub phone: Phone,
    pub provider: Provider,
    pub payer_email: Option<String>,
    pub merchant_name: String,
    pub description: Option<String>,
    /// The secret last segment of this charge's callback address, for rails that take an address
    /// with each request.
    pub callback_token: String,
}

/// What a rail is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub rail_reference: RailReference,
    /// The rail may be waiting for a code from the payer.
    pub may_want_code: bool,
}

/// What a rail said, and its own words for operators (no secret, no whole phone number).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    pub outcome: T,
    pub rail_text: Option<String>,
}

/// The outcome of a payment request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested {
    /// The payer has the prompt. `instruction`: the rail's own words to the payer, where it gave
    /// any.
    Accepted { instruction: Option<String> },
    /// The rail says that the payer was debited already. A query will tell.
    Succeeded,
    /// The rail wants a code from the payer.
    OtpRequired { instruction: Option<String> },
    /// Nothing was or will be debited: the rail refused, or nothing was sent.
    Refused(FailureReason),
    /// The rail has the reference already. A query will tell the rest.
    AlreadyKnown,
    /// It may have been submitted: only a query can tell.
    Unknown,
}

/// The outcome of submitting an OTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtpSubmitted {
    Accepted {
        instruction: Option<String>,
    },
    /// The rail says that the payer was debited already. A query will tell.
    Succeeded,
    WrongCode {
        instruction: Option<String>,
    },
    /// The code, and with it the payment, has expired.
    Expired,
    Failed(FailureReason),
    /// Nothing was sent: the code was not tried.
    NotSent,
    /// It may have been submitted: only a query can tell.
    Unknown,
}

/// What a query found. The only truth about a debit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Pending,
    /// The rail waits for a code from the payer.
    OtpRequired,
    /// The payer did nothing so far, which is final only once the payer's time is over.
    /// `code_wanted`: the rail would still take a code.
    Abandoned {
        code_wanted: bool,
    },
    /// Debited. The caller compares reference and amount with its own. `fee`: what the rail keeps
    /// of the amount, where it says so.
    Succeeded {
        rail_reference: String,
        amount: Option<Money>,
        fee: Option<Money>,
    },
    Failed(FailureReason),
    /// A success that the rail took back.
    Reversed,
    /// The rail knows no such reference.
    ReferenceUnknown,
    /// The rail could not be asked, or answered nothing that can be trusted.
    Unknown,
}

/// Every rail, and which of them carries which provider.
#[derive(Clone, Debug)]
pub struct Rails {
    momo: Rail,
    paystack: Rail,
    mtn: RailName,
    telecel: RailName,
    at: RailName,
}

impl Rails {
    /// # Errors
    /// A setting that cannot be used, see [`rails::Rails::check`].
    pub fn from_config(config: &rails::Rails) -> anyhow::Result<Self> {
        let mut refusals = Refusals::new(Mode::Development);
        config.check(&mut refusals);
        refusals.into_result()?;
        Ok(Self {
            momo: Rail::Momo(Momo::from_config(config).context("the momo rail")?),
            paystack: Rail::Paystack(Paystack::from_config(config).context("the paystack rail")?),
            mtn: config.rail_mtn,
            telecel: config.rail_telecel,
            at: config.rail_at,
        })
    }

    pub fn for_provider(&self, provider: Provider) -> &Rail {
        let name = match provider {
            Provider::Mtn => self.mtn,
            Provider::Telecel => self.telecel,
            Provider::At => self.at,
        };
        match name {
            RailName::Momo => &self.momo,
            RailName::Paystack => &self.paystack,
        }
    }

    pub fn each(&self) -> [&Rail; 2] {
        [&self.momo, &self.paystack]
    }

    /// The rail that calls itself so ([`Rail::name`]).
    pub fn by_name(&self, name: &str) -> Option<&Rail> {
        self.each().into_iter().find(|rail| rail.name() == name)
    }
}

impl Rail {
    /// As it stands in records, callback addresses and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Momo(_) => "momo",
            Self::Paystack(_) => "paystack",
        }
    }

    /// Whether the network promises to refuse a reference's second use, so that nobody is debited
    /// twice by sending a request again.
    pub fn refuses_second_use(&self) -> bool {
        match self {
            Self::Momo(_) => true,
            Self::Paystack(_) => false,
        }
    }

    /// How long a payer has to approve, by the network's own clock.
    pub fn approval_window(&self) -> Duration {
        match self {
            Self::Momo(rail) => rail.approval_window(),
            Self::Paystack(rail) => rail.approval_window(),
        }
    }

    /// How often this process may ask it.
    pub fn queries_per_second(&self) -> NonZeroU32 {
        match self {
            Self::Momo(rail) => rail.queries_per_second(),
            Self::Paystack(rail) => rail.queries_per_second(),
        }
    }

    /// Asks for the debit, once. Takes 8 s at most.
    pub async fn request_payment(&self, request: &PaymentRequest) -> Answer<Requested> {
        let name = self.name();
        let span = info_span!(
            "rail.request_payment",
            otel.kind = "client",
            rail = name,
            outcome = Empty,
            reason = Empty,
            duration_ms = Empty
        );
        let call = async {
            match self {
                Self::Momo(rail) => rail.request_payment(request).await,
                Self::Paystack(rail) => rail.request_payment(request).await,
            }
        };
        let answer = observed(name, "request_payment", span, call).await;
        cleaned(answer, self.secrets(), &[&request.callback_token])
    }

    /// Hands on the code that the payer was given, once. Takes 8 s at most.
    pub async fn submit_otp(
        &self,
        rail_reference: RailReference,
        otp: &SecretString,
    ) -> Answer<OtpSubmitted> {
        let name = self.name();
        let span = info_span!(
            "rail.submit_otp",
            otel.kind = "client",
            rail = name,
            outcome = Empty,
            reason = Empty,
            duration_ms = Empty
        );
        let call = async {
            match self {
                Self::Momo(rail) => rail.submit_otp(),
                Self::Paystack(rail) => rail.submit_otp(rail_reference, otp).await,
            }
        };
        let answer = observed(name, "submit_otp", span, call).await;
        cleaned(answer, self.secrets(), &[otp.expose_secret()])
    }

    /// Asks what became of a payment.
    pub async fn query(&self, query: &Query) -> Answer<Found> {
        let name = self.name();
        let span = info_span!(
            "rail.query",
            otel.kind = "client",
            rail = name,
            outcome = Empty,
            reason = Empty,
            duration_ms = Empty
        );
        let call = async {
            match self {
                Self::Momo(rail) => rail.query(query).await,
                Self::Paystack(rail) => rail.query(query).await,
            }
        };
        let answer = observed(name, "query", span, call).await;
        cleaned(answer, self.secrets(), &[])
    }

    fn secrets(&self) -> &[SecretString] {
        match self {
            Self::Momo(rail) => rail.secrets(),
            Self::Paystack(rail) => rail.secrets(),
        }
    }
}

impl<T> Answer<T> {
    /// For where the rail said nothing.
    fn silent(outcome: T) -> Self {
        Self {
            outcome,
            rail_text: None,
        }
    }
}

/// Takes every secret and phone number out of what the rail wrote.
fn cleaned<T: Outcome>(
    mut answer: Answer<T>,
    ours: &[SecretString],
    of_this_call: &[&str],
) -> Answer<T> {
    let ours = ours.iter().map(|secret| secret.expose_secret());
    let secrets: Vec<&str> = ours.chain(of_this_call.iter().copied()).collect();
    let texts = [
        Some(&mut answer.rail_text),
        answer.outcome.instruction_mut(),
    ];
    for text in texts.into_iter().flatten() {
        let cleaned = text.take().map(|text| words::clean(&text, &secrets));
        *text = cleaned.filter(|text| !text.is_empty());
    }
    answer
}

/// What the three outcomes have in common.
pub trait Outcome {
    /// As metrics and spans name it.
    fn label(&self) -> &'static str;

    /// Why the payment failed, if it did.
    fn reason(&self) -> Option<FailureReason>;

    /// The rail's words to the payer, if it may have some.
    fn instruction_mut(&mut self) -> Option<&mut Option<String>>;
}

impl Outcome for Requested {
    fn label(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Succeeded => "succeeded",
            Self::OtpRequired { .. } => "otp_required",
            Self::Refused(_) => "refused",
            Self::AlreadyKnown => "already_known",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Refused(reason) => Some(*reason),
            Self::Accepted { .. }
            | Self::Succeeded
            | Self::OtpRequired { .. }
            | Self::AlreadyKnown
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Accepted { instruction } | Self::OtpRequired { instruction } => Some(instruction),
            Self::Succeeded | Self::Refused(_) | Self::AlreadyKnown | Self::Unknown => None,
        }
    }
}

impl Outcome for OtpSubmitted {
    fn label(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Succeeded => "succeeded",
            Self::WrongCode { .. } => "wrong_code",
            Self::Expired => "expired",
            Self::Failed(_) => "failed",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(reason) => Some(*reason),
            Self::Expired => Some(FailureReason::OtpExpired),
            Self::Accepted { .. }
            | Self::Succeeded
            | Self::WrongCode { .. }
            | Self::NotSent
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Accepted { instruction } | Self::WrongCode { instruction } => Some(instruction),
            Self::Succeeded | Self::Expired | Self::Failed(_) | Self::NotSent | Self::Unknown => {
                None
            }
        }
    }
}

impl Outcome for Found {
    fn label(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::OtpRequired => "otp_required",
            Self::Abandoned { .. } => "abandoned",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed(_) => "failed",
            Self::Reversed => "reversed",
            Self::ReferenceUnknown => "reference_unknown",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(reason) => Some(*reason),
            Self::Pending
            | Self::OtpRequired
            | Self::Abandoned { .. }
            | Self::Succeeded { .. }
            | Self::Reversed
            | Self::ReferenceUnknown
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}

/// Runs a call in its span, and tells what came of it and how long it took.
async fn observed<T: Outcome>(
    rail: &'static str,
    call: &'static str,
    span: Span,
    work: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    let started = Instant::now();
    let answer = work.instrument(span.clone()).await;
    let (outcome, took) = (answer.outcome.label(), started.elapsed());
    span.record("outcome", outcome);
    span.record(
        "duration_ms",
        u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    );
    if let Some(reason) = answer.outcome.reason() {
        span.record("reason", reason.code());
        if reason == FailureReason::RailConfiguration {
            span.in_scope(|| misconfigured(rail, call));
        }
    }
    count_call(rail, call, outcome, took);
    answer
}

fn count_call(rail: &'static str, call: &'static str, outcome: &'static str, took: Duration) {
    let labels = [("rail", rail), ("call", call), ("outcome", outcome)];
    metrics::counter!("rail_calls_total", &labels).increment(1);
    metrics::histogram!("rail_call_seconds", "rail" => rail, "call" => call).record(took);
}

/// The rail says that the mistake is ours: somebody must look, since no payment will pass.
fn misconfigured(rail: &'static str, call: &'static str) {
    tracing::error!(rail, call, "the rail refuses our configuration");
    metrics::counter!("rail_configuration_errors_total", "rail" => rail, "call" => call)
        .increment(1);
}

/// The rail gave a reason that no rule of ours knows; its words are kept with the evidence.
fn unmapped(rail: &'static str) -> FailureReason {
    tracing::warn!(rail, "the rail gave a reason that is not mapped");
    metrics::counter!("rail_unmapped_text_total", "rail" => rail).increment(1);
    FailureReason::RailError
}
