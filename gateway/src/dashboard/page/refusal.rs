//! What is answered to a request that no page of its own can answer.

use axum::response::{IntoResponse, Response};
use chassis::grpc::Reason;
use http::{StatusCode, header::RETRY_AFTER};

use super::{MessagePage, Shell};
use crate::{
    dashboard::{
        help::{Help, support_contact},
        text::phrase,
    },
    error::Error,
    pages,
};

/// A request that no page of its own can answer.
#[derive(Debug)]
pub struct Refusal(pub Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(error) = self;
        // It ended while the request was on its way. The overview asks for another.
        if let Error::AtDashboard {
            reason: Reason::LoginEnded,
            ..
        } = error
        {
            return pages::see("/");
        }
        pages::report(&error);
        let (status, title, line) = match &error {
            Error::NotFound | Error::NoWebhookEndpoint => (
                StatusCode::NOT_FOUND,
                "Page not found",
                "There is nothing at this address. Check the link, or start from the overview.",
            ),
            Error::TooManyGuesses { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many tries",
                "There were too many tries from your network. Wait a few minutes and try again.",
            ),
            Error::CrossSite
            | Error::MethodNotAllowed
            | Error::UnsupportedMediaType
            | Error::PayloadTooLarge
            | Error::RequestTimeout
            | Error::BodyCutOff => (
                error.status(),
                "Not accepted",
                "This form did not come from our page, or not whole, so nothing was done. Open the page again and send it from there.",
            ),
            Error::OutcomeUnknown => (
                error.status(),
                "No answer",
                "It is not known whether this was done. Look at the list before you try again.",
            ),
            _ => {
                let status = match error.status() {
                    status if status.is_server_error() => status,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (
                    status,
                    "Not available right now",
                    "Something does not work on our side. Try again in a moment.",
                )
            }
        };
        let mut page =
            MessagePage::saying(Shell::outside(title), line).next("Go to the overview", "/");
        let Help { request_id, .. } = Help::now();
        if status.is_server_error() && !request_id.is_empty() {
            page.lines.push(phrase!(
                "If it goes on, write to {0} and name this request: {1}",
                support_contact(),
                request_id
            ));
        }
        let mut response = page.respond(status);
        if let Error::TooManyGuesses {
            retry_after_seconds,
        } = error
        {
            response
                .headers_mut()
                .insert(RETRY_AFTER, retry_after_seconds.into());
        }
        response
    }
}
