//! The rails that there are, each with an arm for everything that the rest of the service asks of
//! one.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use chassis::{
    config::Refusals, ids::RailReference, money::Money, phone::Phone, provider::Provider,
};
use clap::Args;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{field::Empty, info_span};

use crate::{
    answer::{
        CallOutcome, OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome,
        WalletOutcome,
    },
    callback::{Callback, CallbackError, CallbackSubject},
    hubtel::{self, Hubtel, HubtelSettings},
    momo::{self, Momo, MomoSettings},
    name::{RailName, Terms},
    paystack::{self, Paystack, PaystackSettings},
    telemetry::observed,
    transfer::{
        Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
    },
    words,
};

/// Our account at each rail: where it is, our credentials there, and the limits of our calls.
#[derive(Clone, Debug, Args)]
pub struct Accounts {
    #[command(flatten)]
    momo: MomoSettings,

    #[command(flatten)]
    paystack: PaystackSettings,

    #[command(flatten)]
    hubtel: HubtelSettings,
}

/// A rail, ready to be called. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Rail {
    pub name: RailName,
    /// How long a payer has to approve: the network's window, or the configured one if that is
    /// shorter.
    pub approval_window: Duration,
    /// How many queries about charges this process may send it per second, and as many again for
    /// transfers.
    pub queries_per_second: NonZeroU32,
    /// What its texts may not show.
    secrets: Arc<[SecretString]>,
    adapter: Adapter,
}

/// What speaks a rail's wire.
#[derive(Clone, Debug)]
enum Adapter {
    Momo(Momo),
    Paystack(Paystack),
    Hubtel(Hubtel),
}

/// The span of one call to a rail; [`observed`] fills in how it ended. A macro, because a span's name
/// is a literal.
macro_rules! call_span {
    ($name:literal, $rail:expr) => {
        info_span!(
            $name,
            otel.kind = "client",
            rail = $rail.code(),
            http.response.status_code = Empty,
            outcome = Empty,
            reason = Empty,
            duration_ms = Empty
        )
    };
}

impl RailName {
    pub fn terms(self) -> &'static Terms {
        match self {
            Self::Momo => &momo::TERMS,
            Self::Paystack => &paystack::TERMS,
            Self::Hubtel => &hubtel::TERMS,
        }
    }
}

impl Accounts {
    /// `callback_base`: where rails call back.
    pub fn check(&self, callback_base: Option<&Url>, refusals: &mut Refusals) {
        let Self {
            momo,
            paystack,
            hubtel,
        } = self;
        momo.check(refusals);
        paystack.check(refusals);
        hubtel.check(callback_base, refusals);
    }

    /// The setting that is missing to have an account at this rail.
    pub fn missing(&self, name: RailName) -> Option<&'static str> {
        match name {
            RailName::Momo | RailName::Paystack => None,
            RailName::Hubtel => self.hubtel.missing(),
        }
    }

    /// The longest that a call to any rail may take.
    pub fn longest_call(&self) -> Duration {
        let Self {
            momo,
            paystack,
            hubtel,
        } = self;
        let calls = [
            momo.longest_call(),
            paystack.longest_call(),
            hubtel.longest_call(),
        ];
        calls.into_iter().max().unwrap_or_default()
    }
}

impl Rail {
    /// # Errors
    /// An address or a secret is unusable.
    pub fn new(
        name: RailName,
        accounts: &Accounts,
        callback_base: Option<&Url>,
        approval_window: Duration,
    ) -> anyhow::Result<Self> {
        let Accounts {
            momo,
            paystack,
            hubtel,
        } = accounts;
        let (adapter, queries_per_second, secrets) = match name {
            RailName::Momo => (
                Adapter::Momo(Momo::new(momo, callback_base)?),
                momo.momo_queries_per_second,
                momo.secrets(),
            ),
            RailName::Paystack => (
                Adapter::Paystack(Paystack::new(paystack)?),
                paystack.paystack_queries_per_second,
                paystack.secrets(),
            ),
            RailName::Hubtel => (
                Adapter::Hubtel(Hubtel::new(hubtel, callback_base)?),
                hubtel.hubtel_queries_per_second,
                hubtel.secrets(),
            ),
        };
        Ok(Self {
            name,
            approval_window: approval_window.min(name.terms().approval_window),
            queries_per_second,
            secrets: secrets.into(),
            adapter,
        })
    }

    /// Asks for the debit. Takes 8 s at most.
    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let name = self.name;
        let span = call_span!("rail.request_payment", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.request_payment(request).await,
                Adapter::Paystack(rail) => rail.request_payment(request).await,
                Adapter::Hubtel(rail) => rail.request_payment(request).await,
            }
        };
        let answer = observed(name, "request_payment", span, call).await;
        cleaned(answer, &self.secrets, &[&request.callback_token])
    }

    /// Passes on the payer's code, once. Takes 8 s at most.
    pub async fn submit_otp(
        &self,
        rail_reference: RailReference,
        otp: &SecretString,
    ) -> RailAnswer<OtpOutcome> {
        let name = self.name;
        let span = call_span!("rail.submit_otp", name);
        let call = async {
            match &self.adapter {
                Adapter::Paystack(rail) => rail.submit_otp(rail_reference, otp).await,
                Adapter::Momo(_) | Adapter::Hubtel(_) => {
                    tracing::error!("an OTP was submitted to a rail that knows none");
                    RailAnswer::silent(OtpOutcome::NotSent)
                }
            }
        };
        let answer = observed(name, "submit_otp", span, call).await;
        cleaned(answer, &self.secrets, &[otp.expose_secret()])
    }

    /// Asks what became of a payment.
    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let name = self.name;
        let span = call_span!("rail.query", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.query(query).await,
                Adapter::Paystack(rail) => rail.query(query).await,
                Adapter::Hubtel(rail) => rail.query(query).await,
            }
        };
        let answer = observed(name, "query", span, call).await;
        cleaned(answer, &self.secrets, &[])
    }

    /// Asks whether a payer's wallet is there. Prompts nobody.
    pub async fn wallet(&self, provider: Provider, phone: &Phone) -> RailAnswer<WalletOutcome> {
        let name = self.name;
        let span = call_span!("rail.wallet", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.wallet(phone).await,
                Adapter::Paystack(_) => RailAnswer::silent(WalletOutcome::Unknown),
                Adapter::Hubtel(rail) => rail.wallet(provider, phone).await,
            }
        };
        let answer = observed(name, "wallet", span, call).await;
        cleaned(answer, &self.secrets, &[])
    }

    /// Asks for a transfer. Takes 8 s at most.
    pub async fn send(&self, request: &TransferRequest) -> RailAnswer<SendOutcome> {
        let name = self.name;
        let span = call_span!("rail.send", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.send(request).await,
                Adapter::Paystack(rail) => rail.send(request).await,
                Adapter::Hubtel(rail) => rail.send(request).await,
            }
        };
        let answer = observed(name, "send", span, call).await;
        let holder = request.destination.holder_name();
        let ours = [Some(request.callback_token.as_str()), holder];
        let ours: Vec<&str> = ours.into_iter().flatten().collect();
        cleaned(answer, &self.secrets, &ours)
    }

    /// Asks what became of a transfer.
    pub async fn query_transfer(
        &self,
        rail_reference: RailReference,
        amount: Money,
    ) -> RailAnswer<TransferOutcome> {
        let name = self.name;
        let span = call_span!("rail.query_transfer", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.query_transfer(rail_reference, amount).await,
                Adapter::Paystack(rail) => rail.query_transfer(rail_reference, amount).await,
                Adapter::Hubtel(rail) => rail.query_transfer(rail_reference, amount).await,
            }
        };
        let answer = observed(name, "query_transfer", span, call).await;
        cleaned(answer, &self.secrets, &[])
    }

    /// Asks what the rail holds for transfers.
    pub async fn float(&self) -> RailAnswer<FloatOutcome> {
        let name = self.name;
        let span = call_span!("rail.float", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.float().await,
                Adapter::Paystack(rail) => rail.float().await,
                Adapter::Hubtel(rail) => rail.float().await,
            }
        };
        let answer = observed(name, "float", span, call).await;
        cleaned(answer, &self.secrets, &[])
    }

    /// Asks whose account this is.
    pub async fn holder(&self, destination: &Destination) -> RailAnswer<HolderOutcome> {
        let name = self.name;
        let span = call_span!("rail.holder", name);
        let call = async {
            match &self.adapter {
                Adapter::Momo(rail) => rail.holder(destination).await,
                Adapter::Paystack(rail) => rail.holder(destination).await,
                Adapter::Hubtel(rail) => rail.holder(destination).await,
            }
        };
        let answer = observed(name, "holder", span, call).await;
        cleaned(answer, &self.secrets, &[])
    }

    /// Checks that a callback is from the rail, as far as the rail lets us, and returns which
    /// charge it is about.
    ///
    /// # Errors
    /// It is not from the rail.
    pub fn read_callback(&self, callback: &Callback) -> Result<CallbackSubject, CallbackError> {
        match &self.adapter {
            Adapter::Momo(rail) => rail.read_callback(callback),
            Adapter::Paystack(rail) => rail.read_callback(callback),
            Adapter::Hubtel(rail) => rail.read_callback(callback),
        }
    }

    /// The rail's words in a callback, for operators: only of a rail whose queries do not repeat
    /// them. Nothing else may follow from them.
    pub fn callback_text(&self, callback: &Callback) -> Option<String> {
        let text = match &self.adapter {
            Adapter::Momo(_) | Adapter::Paystack(_) => None,
            Adapter::Hubtel(rail) => rail.callback_text(callback),
        }?;
        let ours = self.secrets.iter().map(|secret| secret.expose_secret());
        let ours: Vec<&str> = ours.chain([callback.token.as_str()]).collect();
        let text = words::clean(&text, &ours);
        (!text.is_empty()).then_some(text)
    }
}

/// Removes all secrets and phone numbers from the rail's texts.
fn cleaned<T: CallOutcome>(
    mut answer: RailAnswer<T>,
    ours: &[SecretString],
    of_this_call: &[&str],
) -> RailAnswer<T> {
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
