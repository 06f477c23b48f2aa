//! A rail, ready to be called, and everything that the rest of the service asks of one.

use std::{num::NonZeroU32, time::Duration};

use chassis::ids::RailReference;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{field::Empty, info_span};

use crate::{
    answer::{
        CallOutcome, OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome,
    },
    callback::{Callback, CallbackError, CallbackSubject},
    momo::{self, Momo},
    name::{RailName, Terms},
    paystack::{self, Paystack},
    telemetry::observed,
    words,
};

/// A rail, ready to be called. Clones share its connections.
#[derive(Clone, Debug)]
pub enum Rail {
    Momo(Momo),
    Paystack(Paystack),
}

/// The span of one call to a rail; [`observed`] fills in how it ended. A macro, because a span's name
/// is a literal.
macro_rules! call_span {
    ($name:literal, $rail:expr) => {
        info_span!(
            $name,
            otel.kind = "client",
            rail = $rail.code(),
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
        }
    }
}

impl Rail {
    pub fn name(&self) -> RailName {
        match self {
            Self::Momo(_) => RailName::Momo,
            Self::Paystack(_) => RailName::Paystack,
        }
    }

    /// See [`Terms::refuses_second_use`].
    pub fn refuses_second_use(&self) -> bool {
        self.name().terms().refuses_second_use
    }

    /// How long a payer has to approve: the network's window, or the configured one if that is
    /// shorter.
    pub fn approval_window(&self) -> Duration {
        match self {
            Self::Momo(rail) => rail.approval_window(),
            Self::Paystack(rail) => rail.approval_window(),
        }
    }

    /// How many queries this process may send it per second.
    pub fn queries_per_second(&self) -> NonZeroU32 {
        match self {
            Self::Momo(rail) => rail.queries_per_second(),
            Self::Paystack(rail) => rail.queries_per_second(),
        }
    }

    /// Asks for the debit. Takes 8 s at most.
    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let name = self.name();
        let span = call_span!("rail.request_payment", name);
        let call = async {
            match self {
                Self::Momo(rail) => rail.request_payment(request).await,
                Self::Paystack(rail) => rail.request_payment(request).await,
            }
        };
        let answer = observed(name, "request_payment", span, call).await;
        cleaned(answer, self.secrets(), &[&request.callback_token])
    }

    /// Passes on the payer's code, once. Takes 8 s at most.
    pub async fn submit_otp(
        &self,
        rail_reference: RailReference,
        otp: &SecretString,
    ) -> RailAnswer<OtpOutcome> {
        let name = self.name();
        let span = call_span!("rail.submit_otp", name);
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
    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let name = self.name();
        let span = call_span!("rail.query", name);
        let call = async {
            match self {
                Self::Momo(rail) => rail.query(query).await,
                Self::Paystack(rail) => rail.query(query).await,
            }
        };
        let answer = observed(name, "query", span, call).await;
        cleaned(answer, self.secrets(), &[])
    }

    /// Checks that a callback is from the rail, as far as the rail lets us, and returns which
    /// charge it is about.
    ///
    /// # Errors
    /// It is not from the rail.
    pub fn read_callback(&self, callback: &Callback) -> Result<CallbackSubject, CallbackError> {
        match self {
            Self::Momo(rail) => rail.read_callback(callback),
            Self::Paystack(rail) => rail.read_callback(callback),
        }
    }

    /// Secrets to redact from the rail's texts.
    fn secrets(&self) -> &[SecretString] {
        match self {
            Self::Momo(rail) => rail.secrets(),
            Self::Paystack(rail) => rail.secrets(),
        }
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
