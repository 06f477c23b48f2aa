//! Every way in which a request can fail, and the one place that decides how each is answered (spec
//! §7).
//!
//! A handler returns an [`Error`]; the front renders it, because only the front knows the request's
//! id. Internal text never reaches a caller.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use chassis::{
    grpc::{self, Reason},
    money::Money,
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use serde_json::value::RawValue;
use tonic::{Code, Status};

use crate::{
    api::{
        amount,
        idempotency::{self, IdempotencyKey},
    },
    field_error::{FieldCode, FieldError},
    limits::Quota,
};

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No such address, or no such record of this merchant: the two look the same.
    #[error("not found")]
    NotFound,
    /// The merchant has no endpoint to which events could be sent.
    #[error("no webhook endpoint")]
    NoWebhookEndpoint,
    #[error("method not allowed")]
    MethodNotAllowed,
    /// Missing, malformed, unknown or revoked: the four look the same.
    #[error("invalid api key")]
    InvalidApiKey,
    /// Too many invented keys, callbacks' addresses or payments from one client address.
    #[error("too many guesses")]
    TooManyGuesses { retry_after_seconds: u32 },
    /// Carries the limit that refused, of which the answer's headers tell.
    #[error("rate limited")]
    RateLimited(Quota),
    #[error("e-mail not verified")]
    EmailNotVerified,
    /// With the state of the KYC record, if there is one.
    #[error("kyc not approved")]
    KycNotApproved(Option<&'static str>),
    #[error("merchant not accepting payments")]
    MerchantNotAcceptingPayments,
    /// A form that does not come from one of our pages.
    #[error("cross-site form")]
    CrossSite,
    #[error("unsupported media type")]
    UnsupportedMediaType,
    #[error("payload too large")]
    PayloadTooLarge,
    #[error("request timeout")]
    RequestTimeout,
    /// The connection ended or broke its framing before the body was whole.
    #[error("body cut off")]
    BodyCutOff,
    #[error("malformed json")]
    MalformedJson,
    #[error("validation error")]
    Validation(Vec<FieldError>),
    /// The session cannot be paid, or a charge of it is in flight.
    #[error("session not payable")]
    SessionNotPayable,
    #[error("charge not awaiting an otp")]
    ChargeNotAwaitingOtp,
    /// A payout or a refund is not made.
    #[error("{why}")]
    DisbursementRefused {
        why: DisbursementRefusal,
        /// Whether an earlier request with the same key was told so.
        replayed: bool,
    },
    /// What only people at the dashboard can be told, and its pages have words for.
    #[error("refused at the dashboard")]
    AtDashboard {
        reason: Reason,
        retry_after_seconds: Option<u32>,
    },
    /// The day is not over, or its sums are not proven yet.
    #[error("statement not ready")]
    StatementNotReady,
    #[error("idempotency key in progress")]
    IdempotencyInProgress,
    #[error("idempotency key reused")]
    IdempotencyKeyReused,
    #[error("callback signature invalid")]
    CallbackSignatureInvalid,
    /// Nothing was started, so the caller may simply try again.
    #[error("unavailable")]
    NothingStarted,
    /// Something may have been started; only a repeat with the same key, or a read, is safe.
    #[error("unavailable, outcome unknown")]
    OutcomeUnknown,
    /// A fault on our side.
    #[error("internal error")]
    Internal(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A fault on our side that was already reported where it happened.
    #[error("panic")]
    Panicked,
}

/// Why money does not go out, although the request for it is valid.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DisbursementRefusal {
    /// No operator has enabled payouts on request for the merchant.
    #[error("payouts not enabled")]
    PayoutsNotEnabled,
    /// Carries until when.
    #[error("payout account on hold")]
    PayoutAccountOnHold(String),
    /// Carries what is available.
    #[error("insufficient balance")]
    InsufficientBalance(Money),
    #[error("charge not settled")]
    ChargeNotSettled,
    /// Carries what is left to refund.
    #[error("refund exceeds charge")]
    RefundExceedsCharge(Money),
}

impl Error {
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(Arc::from(source.into()))
    }

    /// The HTTP status of its answer.
    pub fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// The HTTP status of its answer, and the code for programs.
    fn kind(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::NotFound => (S::NOT_FOUND, "NOT_FOUND"),
            Self::NoWebhookEndpoint => (S::NOT_FOUND, "NO_WEBHOOK_ENDPOINT"),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"),
            Self::InvalidApiKey => (S::UNAUTHORIZED, "INVALID_API_KEY"),
            Self::TooManyGuesses { .. } => (S::TOO_MANY_REQUESTS, "RATE_LIMITED"),
            Self::RateLimited(_) => (S::TOO_MANY_REQUESTS, "RATE_LIMITED"),
            Self::EmailNotVerified => (S::FORBIDDEN, "EMAIL_NOT_VERIFIED"),
            Self::KycNotApproved(_) => (S::FORBIDDEN, "KYC_NOT_APPROVED"),
            Self::MerchantNotAcceptingPayments => (S::FORBIDDEN, "MERCHANT_NOT_ACCEPTING_PAYMENTS"),
            Self::CrossSite => (S::FORBIDDEN, "CROSS_SITE"),
            Self::UnsupportedMediaType => (S::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE"),
            Self::PayloadTooLarge => (S::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE"),
            Self::RequestTimeout => (S::REQUEST_TIMEOUT, "REQUEST_TIMEOUT"),
            Self::BodyCutOff => (S::BAD_REQUEST, "MALFORMED_JSON"),
            Self::MalformedJson => (S::BAD_REQUEST, "MALFORMED_JSON"),
            Self::Validation(_) => (S::BAD_REQUEST, "VALIDATION_ERROR"),
            Self::SessionNotPayable => (S::CONFLICT, "SESSION_NOT_PAYABLE"),
            Self::ChargeNotAwaitingOtp => (S::CONFLICT, "CHARGE_NOT_AWAITING_OTP"),
            Self::DisbursementRefused { why, .. } => why.kind(),
            Self::StatementNotReady => (S::NOT_FOUND, "STATEMENT_NOT_READY"),
            Self::IdempotencyInProgress => (S::CONFLICT, "IDEMPOTENCY_IN_PROGRESS"),
            Self::IdempotencyKeyReused => (S::CONFLICT, "IDEMPOTENCY_KEY_REUSED"),
            Self::CallbackSignatureInvalid => (S::UNAUTHORIZED, "INVALID_SIGNATURE"),
            Self::NothingStarted => (S::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
            Self::OutcomeUnknown => (S::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
            Self::AtDashboard { .. } | Self::Internal(_) | Self::Panicked => {
                (S::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR")
            }
        }
    }

    /// The text for people.
    fn text(&self) -> &'static str {
        match self {
            Self::NotFound => "There is nothing here by that name.",
            Self::NoWebhookEndpoint => "No webhook endpoint is set for this merchant.",
            Self::MethodNotAllowed => "This address does not take that method; see Allow.",
            Self::InvalidApiKey => "The API key is missing or not valid.",
            Self::TooManyGuesses { .. } => {
                "Too many failed attempts from this address; see Retry-After."
            }
            Self::RateLimited(_) => "Too many requests. Wait as long as Retry-After says.",
            Self::EmailNotVerified => "Verify the merchant's e-mail address to use the API.",
            Self::KycNotApproved(_) => "The merchant's KYC must be approved to use the API.",
            Self::MerchantNotAcceptingPayments => {
                "The merchant is not accepting payments at present."
            }
            Self::CrossSite => "The form does not come from a page of this site.",
            Self::UnsupportedMediaType => "Send the body as application/json, not encoded.",
            Self::PayloadTooLarge => "The body is larger than 64 KiB.",
            Self::RequestTimeout => "The body did not arrive in time.",
            Self::BodyCutOff => "The body ended before it was whole.",
            Self::MalformedJson => {
                "The body must be one JSON object in UTF-8, with no field twice."
            }
            Self::Validation(_) => "The request is not valid; see fields.",
            Self::SessionNotPayable => "The payment session cannot be paid.",
            Self::ChargeNotAwaitingOtp => "The charge is not awaiting an OTP.",
            Self::DisbursementRefused { why, .. } => why.text(),
            Self::StatementNotReady => {
                "That day's statement is not ready. It is soon after the day's end, midnight UTC."
            }
            Self::IdempotencyInProgress => "A request with this Idempotency-Key is still running.",
            Self::IdempotencyKeyReused => "This Idempotency-Key was used with another request.",
            Self::CallbackSignatureInvalid => "The signature does not match the body.",
            Self::NothingStarted => "The service is unavailable. Nothing was started; try again.",
            Self::OutcomeUnknown => {
                "The service did not answer in time. The request may have been carried out."
            }
            Self::AtDashboard { .. } | Self::Internal(_) | Self::Panicked => {
                "The service failed. Quote the request id when you report it."
            }
        }
    }

    /// As the caller with this key sees it: the gateway's own repeats are none of the caller's.
    pub fn seen_by(self, key: &IdempotencyKey) -> Self {
        match self {
            Self::DisbursementRefused { why, replayed } => Self::DisbursementRefused {
                why,
                replayed: replayed && key.is_callers(),
            },
            other => other,
        }
    }

    /// Whether it is about one attempt only, and says nothing about others with the same key.
    pub fn is_of_one_attempt(&self) -> bool {
        matches!(
            self,
            Self::NothingStarted | Self::OutcomeUnknown | Self::IdempotencyInProgress
        )
    }

    /// Seconds until it makes sense to try again.
    fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::TooManyGuesses {
                retry_after_seconds,
            } => Some(*retry_after_seconds),
            Self::RateLimited(quota) => quota.reset_seconds(),
            Self::IdempotencyInProgress | Self::NothingStarted => Some(1),
            _ => None,
        }
    }

    /// Completes an answer that [`IntoResponse`] began, with its body and headers.
    pub fn render(&self, response: &mut Response, request_id: &str) {
        let body = serde_json::to_vec(&self.body(request_id)).expect("texts are JSON");
        *response.status_mut() = self.status();
        *response.body_mut() = body.into();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Self::RateLimited(quota) = self {
            quota.write(headers);
        }
        if let Self::DisbursementRefused { replayed: true, .. } = self {
            idempotency::write_replayed(headers);
        }
        if matches!(self, Self::InvalidApiKey) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
    }

    /// The body of its answer.
    pub fn body<'a>(&'a self, request_id: &'a str) -> ErrorBody<'a> {
        let why = match self {
            Self::DisbursementRefused { why, .. } => Some(why),
            _ => None,
        };
        ErrorBody {
            error: self.text(),
            code: self.kind().1,
            request_id,
            kyc_status: match self {
                Self::KycNotApproved(status) => Some(*status),
                _ => None,
            },
            fields: match self {
                Self::Validation(fields) => Some(fields),
                _ => None,
            },
            available: match why {
                Some(DisbursementRefusal::InsufficientBalance(amount)) => {
                    Some(amount::to_json(*amount))
                }
                _ => None,
            },
            refundable: match why {
                Some(DisbursementRefusal::RefundExceedsCharge(left)) => {
                    Some(amount::to_json(*left))
                }
                _ => None,
            },
            currency: match why {
                Some(
                    DisbursementRefusal::InsufficientBalance(of)
                    | DisbursementRefusal::RefundExceedsCharge(of),
                ) => Some(of.currency().code()),
                _ => None,
            },
            held_until: match why {
                Some(DisbursementRefusal::PayoutAccountOnHold(until)) => Some(until),
                _ => None,
            },
        }
    }
}

impl DisbursementRefusal {
    /// As [`Error::kind`].
    fn kind(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::PayoutsNotEnabled => (S::FORBIDDEN, "PAYOUTS_NOT_ENABLED"),
            Self::PayoutAccountOnHold(_) => (S::UNPROCESSABLE_ENTITY, "PAYOUT_ACCOUNT_ON_HOLD"),
            Self::InsufficientBalance(_) => (S::UNPROCESSABLE_ENTITY, "INSUFFICIENT_BALANCE"),
            Self::ChargeNotSettled => (S::UNPROCESSABLE_ENTITY, "CHARGE_NOT_SETTLED"),
            Self::RefundExceedsCharge(_) => (S::UNPROCESSABLE_ENTITY, "REFUND_EXCEEDS_CHARGE"),
        }
    }

    /// The text for people.
    fn text(&self) -> &'static str {
        match self {
            Self::PayoutsNotEnabled => "Payouts on request are not enabled for this merchant.",
            Self::PayoutAccountOnHold(_) => {
                "The payout account was changed; payouts wait until held_until."
            }
            Self::InsufficientBalance(_) => "The balance does not cover this; see available.",
            Self::ChargeNotSettled => "Only a settled charge can be refunded.",
            Self::RefundExceedsCharge(_) => "Less is left of this charge; see refundable.",
        }
    }

    /// What a service's refusal for this reason tells, if it is such a reason.
    fn of(reason: Reason, status: &Status) -> Option<Self> {
        let told = |name: &str| grpc::metadata(status, name);
        let amount = |name: &str| {
            let currency = told("currency")?.parse().ok()?;
            Some(Money::new(told(name)?.parse().ok()?, currency))
        };
        match reason {
            Reason::PayoutsNotEnabled => Some(Self::PayoutsNotEnabled),
            Reason::PayoutAccountOnHold => told("held_until").map(Self::PayoutAccountOnHold),
            Reason::InsufficientBalance => amount("available_minor").map(Self::InsufficientBalance),
            Reason::ChargeNotSettled => Some(Self::ChargeNotSettled),
            Reason::RefundExceedsCharge => {
                amount("refundable_minor").map(Self::RefundExceedsCharge)
            }
            _ => None,
        }
    }
}

/// The body of every error answer.
#[derive(Serialize)]
pub struct ErrorBody<'a> {
    /// For people; its words may change.
    error: &'a str,
    /// For programs.
    code: &'a str,
    /// The same as in X-Request-Id, to quote when reporting a fault.
    request_id: &'a str,
    /// With KYC_NOT_APPROVED only.
    #[serde(skip_serializing_if = "Option::is_none")]
    kyc_status: Option<Option<&'a str>>,
    /// With VALIDATION_ERROR only: all faults at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<&'a [FieldError]>,
    /// With INSUFFICIENT_BALANCE only.
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<Box<RawValue>>,
    /// With REFUND_EXCEEDS_CHARGE only.
    #[serde(skip_serializing_if = "Option::is_none")]
    refundable: Option<Box<RawValue>>,
    /// Of `available` or `refundable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<&'static str>,
    /// With PAYOUT_ACCOUNT_ON_HOLD only.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_until: Option<&'a str>,
}

/// Marks the answer as this error; the front completes it.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = self.kind().0.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What a service's refusal means to the caller. Refusals carry the reasons that the contracts
/// name; any unforeseen one is a fault on our side.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let reason = grpc::reason(&status).and_then(|reason| reason.parse().ok());
        match (status.code(), reason) {
            (_, Some(reason)) if is_for_people(reason) => {
                let delay = grpc::retry_delay(&status);
                let seconds = delay.and_then(|delay| u32::try_from(delay.as_secs()).ok());
                Self::AtDashboard {
                    reason,
                    retry_after_seconds: seconds,
                }
            }
            (Code::Unauthenticated, Some(Reason::InvalidApiKey)) => Self::InvalidApiKey,
            (Code::Unauthenticated, Some(Reason::CallbackSignatureInvalid)) => {
                Self::CallbackSignatureInvalid
            }
            (
                Code::NotFound,
                Some(
                    Reason::SessionNotFound
                    | Reason::ChargeNotFound
                    | Reason::CallbackNotFound
                    | Reason::PayoutNotFound
                    | Reason::PayoutAccountNotFound
                    | Reason::RefundNotFound
                    | Reason::EventNotFound
                    | Reason::StatementNotFound
                    | Reason::CustomerNotFound
                    | Reason::KeyNotFound
                    | Reason::LoginNotFound
                    | Reason::MerchantNotFound
                    | Reason::DeliveryNotFound
                    | Reason::ReplayNotFound
                    | Reason::ConformanceNotFound,
                ),
            ) => Self::NotFound,
            (Code::NotFound, Some(Reason::EndpointNotFound)) => Self::NoWebhookEndpoint,
            (Code::FailedPrecondition, Some(Reason::SessionNotPayable)) => Self::SessionNotPayable,
            (Code::FailedPrecondition, Some(Reason::ChargeNotAwaitingOtp)) => {
                Self::ChargeNotAwaitingOtp
            }
            (Code::FailedPrecondition, Some(Reason::StatementNotReady)) => Self::StatementNotReady,
            (Code::PermissionDenied | Code::FailedPrecondition, Some(reason)) => {
                match DisbursementRefusal::of(reason, &status) {
                    Some(why) => Self::DisbursementRefused {
                        why,
                        replayed: grpc::metadata(&status, "replayed").is_some(),
                    },
                    None => Self::internal(status),
                }
            }
            (Code::Aborted, Some(Reason::IdempotencyInProgress)) => Self::IdempotencyInProgress,
            (Code::AlreadyExists, Some(Reason::IdempotencyKeyReused)) => Self::IdempotencyKeyReused,
            (Code::Unavailable, Some(Reason::NothingStarted)) => Self::NothingStarted,
            (Code::ResourceExhausted, _) => Self::NothingStarted,
            (Code::Unavailable | Code::Cancelled, _) => Self::OutcomeUnknown,
            (Code::InvalidArgument, _) => refused_by_service(&status),
            _ => Self::internal(status),
        }
    }
}

/// Whether a page of the dashboard has words for this.
fn is_for_people(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::WrongPassword
            | Reason::WrongCode
            | Reason::TooManyTries
            | Reason::LoginEnded
            | Reason::LinkNotFound
            | Reason::TotpNotBegun
            | Reason::FormUsed
            | Reason::PayoutTermsChanged
            | Reason::TooManyKeys
            | Reason::BusinessInReview
            | Reason::ReplayRunning
            | Reason::ConformanceRunning
    )
}

/// A service is stricter than the edge, for it knows more: its settings, and what is on record. Its
/// words about a field are for the caller.
fn refused_by_service(status: &Status) -> Error {
    tracing::info!(
        status = status.message(),
        "a service refused what the edge let pass"
    );
    let violations = grpc::violations(status);
    if violations.is_empty() {
        return Error::internal(status.clone());
    }
    let fields = violations.into_iter().map(|(field, message)| FieldError {
        field: field.into(),
        code: FieldCode::InvalidFormat,
        message: message.into(),
    });
    Error::Validation(fields.collect())
}
