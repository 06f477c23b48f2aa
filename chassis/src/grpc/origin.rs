//! Where a call comes from: the trace and the request that it continues in the service, so that the
//! service's log lines name the same request.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::telemetry;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    pub traceparent: Option<String>,
    pub request_id: Option<String>,
}

impl Origin {
    /// Of the current span.
    pub fn current() -> Self {
        Self {
            traceparent: telemetry::current_traceparent(),
            request_id: telemetry::current_request_id(),
        }
    }

    pub fn read(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value = headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        Self {
            traceparent: text(TRACEPARENT),
            request_id: text(REQUEST_ID),
        }
    }

    pub fn write(self, headers: &mut HeaderMap) {
        for (name, text) in [
            (TRACEPARENT, self.traceparent),
            (REQUEST_ID, self.request_id),
        ] {
            if let Some(text) = text
                && let Ok(value) = HeaderValue::try_from(text)
            {
                headers.insert(name, value);
            }
        }
    }
}
