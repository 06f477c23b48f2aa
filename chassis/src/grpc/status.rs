//! How errors travel between services: google.rpc details on a status.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of our reasons in `google.rpc.ErrorInfo`.
const DOMAIN: &str = "payments";

crate::closed_list! {
    /// Why a service refuses or fails a call. The contracts say which call answers with which
    /// reason.
    pub enum Reason: "a reason" {
        InvalidApiKey = "INVALID_API_KEY",
        MerchantNotFound = "MERCHANT_NOT_FOUND",
        KeyNotFound = "KEY_NOT_FOUND",
        TooManyKeys = "TOO_MANY_KEYS",
        FormUsed = "FORM_USED",
        WrongPassword = "WRONG_PASSWORD",
        WrongCode = "WRONG_CODE",
        TooManyTries = "TOO_MANY_TRIES",
        LoginEnded = "LOGIN_ENDED",
        LoginNotFound = "LOGIN_NOT_FOUND",
        LinkNotFound = "LINK_NOT_FOUND",
        TotpNotBegun = "TOTP_NOT_BEGUN",
        EmailNotVerified = "EMAIL_NOT_VERIFIED",
        EmailTaken = "EMAIL_TAKEN",
        BusinessNotFound = "BUSINESS_NOT_FOUND",
        BusinessInReview = "BUSINESS_IN_REVIEW",
        BusinessChanged = "BUSINESS_CHANGED",
        SessionNotFound = "SESSION_NOT_FOUND",
        SessionMismatch = "SESSION_MISMATCH",
        IdempotencyInProgress = "IDEMPOTENCY_IN_PROGRESS",
        IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED",
        ChargeNotFound = "CHARGE_NOT_FOUND",
        ChargeNotAwaitingOtp = "CHARGE_NOT_AWAITING_OTP",
        SessionNotPayable = "SESSION_NOT_PAYABLE",
        CallbackNotFound = "CALLBACK_NOT_FOUND",
        CallbackSignatureInvalid = "CALLBACK_SIGNATURE_INVALID",
        NothingStarted = "NOTHING_STARTED",
        OutcomeUnknown = "OUTCOME_UNKNOWN",
        ChargeAlreadyTerminal = "CHARGE_ALREADY_TERMINAL",
        EvidenceMismatch = "EVIDENCE_MISMATCH",
        CaseNotFound = "CASE_NOT_FOUND",
        CaseClosed = "CASE_CLOSED",
        CaseNeedsChargeResolved = "CASE_NEEDS_CHARGE_RESOLVED",
        ReleaseWouldCreditTwice = "RELEASE_WOULD_CREDIT_TWICE",
        ReleaseAfterReversal = "RELEASE_AFTER_REVERSAL",
        AlreadyTakenBack = "ALREADY_TAKEN_BACK",
        CaseBeingRefunded = "CASE_BEING_REFUNDED",
        RefundAfterReversal = "REFUND_AFTER_REVERSAL",
        RefundPaidLate = "REFUND_PAID_LATE",
        DisbursementInHand = "DISBURSEMENT_IN_HAND",
        ChargeNotSettled = "CHARGE_NOT_SETTLED",
        RefundExceedsCharge = "REFUND_EXCEEDS_CHARGE",
        InsufficientBalance = "INSUFFICIENT_BALANCE",
        PayoutsNotEnabled = "PAYOUTS_NOT_ENABLED",
        PayoutAccountNotFound = "PAYOUT_ACCOUNT_NOT_FOUND",
        PayoutAccountOnHold = "PAYOUT_ACCOUNT_ON_HOLD",
        PayoutTermsChanged = "PAYOUT_TERMS_CHANGED",
        HolderMismatch = "HOLDER_MISMATCH",
        PayoutNotFound = "PAYOUT_NOT_FOUND",
        RefundNotFound = "REFUND_NOT_FOUND",
        DisbursementNotFound = "DISBURSEMENT_NOT_FOUND",
        DisbursementAlreadyTerminal = "DISBURSEMENT_ALREADY_TERMINAL",
        FloatMoveReused = "FLOAT_MOVE_REUSED",
        StatementNotFound = "STATEMENT_NOT_FOUND",
        StatementNotReady = "STATEMENT_NOT_READY",
        StatementKeyMissing = "STATEMENT_KEY_MISSING",
        CustomerNotFound = "CUSTOMER_NOT_FOUND",
        PostingsNotSealed = "POSTINGS_NOT_SEALED",
        ComparedAtOnce = "COMPARED_AT_ONCE",
        EndpointNotFound = "ENDPOINT_NOT_FOUND",
        EventNotFound = "EVENT_NOT_FOUND",
        DeliveryNotFound = "DELIVERY_NOT_FOUND",
        ReplayNotFound = "REPLAY_NOT_FOUND",
        ReplayRunning = "REPLAY_RUNNING",
        ConformanceNotFound = "CONFORMANCE_NOT_FOUND",
        ConformanceRunning = "CONFORMANCE_RUNNING",
        SecretUnreadable = "SECRET_UNREADABLE",
        DatabaseFailed = "DATABASE_FAILED",
        Internal = "INTERNAL",
    }
}

/// A status with a machine-readable reason (`google.rpc.ErrorInfo`).
pub fn status(code: Code, reason: Reason, message: impl Into<String>) -> Status {
    status_with(code, reason, message, [])
}

/// The same, with what else the contract says that the reason carries, by name.
pub fn status_with<'a>(
    code: Code,
    reason: Reason,
    message: impl Into<String>,
    metadata: impl IntoIterator<Item = (&'a str, String)>,
) -> Status {
    let metadata = metadata.into_iter();
    let metadata: HashMap<_, _> = metadata
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let details = ErrorDetails::with_error_info(reason.code(), DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}

/// The same, with how long to wait before another try (`google.rpc.RetryInfo`).
pub fn status_after(
    code: Code,
    reason: Reason,
    message: impl Into<String>,
    wait: Duration,
) -> Status {
    let mut details = ErrorDetails::with_retry_info(Some(wait));
    details.set_error_info(reason.code(), DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

/// The answer to a call that moved to a service for operators. Its contract only grows, so it stays
/// there.
pub fn moved_to_operators() -> Status {
    Status::unimplemented("for operators alone, at OPERATORS_LISTEN")
}

/// INVALID_ARGUMENT that names each field and what it must be (`google.rpc.BadRequest`).
pub fn invalid(violations: &[(&str, &str)]) -> Status {
    let mut details = ErrorDetails::new();
    for (field, description) in violations {
        details.add_bad_request_violation(*field, *description);
    }
    Status::with_error_details(Code::InvalidArgument, "invalid request", details)
}

/// The reason that a status carries, if it is in our domain. A newer service may give one that is
/// not a [`Reason`] yet.
pub fn reason(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN).then_some(info.reason)
}

/// What a status of our domain carries beside its reason, under this name.
pub fn metadata(status: &Status, name: &str) -> Option<String> {
    let mut info = status.get_details_error_info()?;
    (info.domain == DOMAIN).then(|| info.metadata.remove(name))?
}

/// How long to wait before another try, if a status says so (`google.rpc.RetryInfo`).
pub fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The fields at fault, each with what it must be.
pub fn violations(status: &Status) -> Vec<(String, String)> {
    let Some(request) = status.get_details_bad_request() else {
        return Vec::new();
    };
    let violations = request.field_violations.into_iter();
    violations
        .map(|violation| (violation.field, violation.description))
        .collect()
}
