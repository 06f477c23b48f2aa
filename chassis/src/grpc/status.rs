//! How errors travel between services: google.rpc details on a status.

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Whose reasons these are.
const DOMAIN: &str = "payments";

/// A status with a machine-readable reason (`google.rpc.ErrorInfo`).
pub fn status(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, []);
    Status::with_error_details(code, message, details)
}

/// INVALID_ARGUMENT that names each field and what it must be (`google.rpc.BadRequest`).
pub fn invalid(violations: &[(&str, &str)]) -> Status {
    let mut details = ErrorDetails::new();
    for (field, description) in violations {
        details.add_bad_request_violation(*field, *description);
    }
    Status::with_error_details(Code::InvalidArgument, "invalid request", details)
}

/// The reason that a status carries, if it is one of ours.
pub fn reason(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == DOMAIN).then_some(info.reason)
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
