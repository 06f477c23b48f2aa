//! `/settings/integrations` and its webhooks: the endpoint, its secret, and what became of its
//! deliveries.

pub mod conformance;
mod deliveries;
pub mod doctor;
pub mod endpoint;
pub mod replay;
mod test;

use std::sync::Arc;

use axum::{Router, response::Response, routing::get};
use chassis::clock::Timestamp;
use http::StatusCode;
use proto::webhooks::{
    CountExhaustedRequest, CountExhaustedResponse, EndpointHealth, EventType, FailureCause,
    GetEndpointHealthRequest, MerchantEndpoint, TryResult,
};

use super::{
    Dashboard,
    login::Login,
    page::{Cell, LinksPage, Section, respond},
};
use crate::{backend, error::Error};

const PATH: &str = "/settings/integrations/webhooks";

/// The list of the deliveries that were given up.
pub const GIVEN_UP: &str = "/settings/integrations/webhooks/deliveries?status=EXHAUSTED";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/settings/integrations", get(show))
        .merge(endpoint::routes())
        .merge(deliveries::routes())
        .merge(replay::routes())
        .merge(test::routes())
        .merge(doctor::routes())
        .merge(conformance::routes())
}

async fn show(login: Login) -> Response {
    let page = LinksPage {
        shell: login.shell(Section::Integrations, "Integrations"),
        links: vec![
            (
                "API Management",
                "/settings/integrations/keys",
                "API keys: what your program shows with every request.",
            ),
            (
                "Webhook Configuration",
                PATH,
                "Where we tell your program what happened, and the secret that signs it.",
            ),
            (
                "Deliveries",
                "/settings/integrations/webhooks/deliveries",
                "Every event that was sent, and how your server answered.",
            ),
            (
                "Replay",
                "/settings/integrations/webhooks/replay",
                "Send again what your server missed.",
            ),
            (
                "Test event",
                "/settings/integrations/webhooks/test",
                "One event at once, and the answer on the page.",
            ),
            (
                "Signature doctor",
                "/settings/integrations/webhooks/doctor",
                "Why your program refuses a signature.",
            ),
            (
                "Conformance run",
                "/settings/integrations/webhooks/conformance",
                "Eight cases that a good receiver passes.",
            ),
        ],
    };
    respond(StatusCode::OK, page.shell.language, &page)
}

/// The events that an endpoint may name, with their words.
const EVENTS: [(&str, &str); 6] = [
    ("payment.success", "payment.success: a payment was made"),
    (
        "payment.failed",
        "payment.failed: a payment failed or ran out",
    ),
    ("payout.success", "payout.success: money has reached you"),
    ("payout.failed", "payout.failed: a payout came back"),
    (
        "refund.success",
        "refund.success: a refund has reached the payer",
    ),
    ("refund.failed", "refund.failed: a refund came back"),
];

/// What an endpoint without names gets.
const DEFAULT_EVENTS: &str = "payment.success payment.failed payout.success payout.failed";

fn event_name(event_type: EventType) -> String {
    event_type.name().unwrap_or_else(|| "newer".to_owned())
}

impl Dashboard {
    /// The merchant's endpoint and how it does; `None` if there is none.
    pub async fn health(&self, login: &Login) -> Result<Option<EndpointHealth>, Error> {
        let request = GetEndpointHealthRequest {
            merchant_id: login.merchant_id(),
        };
        let health = self.webhooks.read(
            backend::DEADLINE,
            request,
            |mut webhooks, request| async move { webhooks.get_endpoint_health(request).await },
        );
        match health.await {
            Ok(health) => Ok(Some(health)),
            Err(Error::NoWebhookEndpoint) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many deliveries were given up that were made from this time on.
    async fn count_exhausted(
        &self,
        login: &Login,
        since: Timestamp,
    ) -> Result<CountExhaustedResponse, Error> {
        let request = CountExhaustedRequest {
            merchant_id: login.merchant_id(),
            since: since.to_string(),
        };
        let counted = self.webhooks.read(
            backend::DEADLINE,
            request,
            |mut webhooks, request| async move { webhooks.count_exhausted(request).await },
        );
        counted.await
    }

    /// How many deliveries [`GIVEN_UP`] lists; `None` if none. However old one is, a replay reaches
    /// it, so each counts until it is accepted.
    pub async fn given_up(&self, login: &Login) -> Result<Option<String>, Error> {
        let counted = self.count_exhausted(login, Timestamp::EPOCH).await?;
        Ok(match counted.count {
            0 => None,
            count if counted.is_more => Some(format!("{count}+")),
            count => Some(count.to_string()),
        })
    }

    async fn endpoint(&self, login: &Login) -> Result<Option<MerchantEndpoint>, Error> {
        let health = self.health(login).await?;
        Ok(health.and_then(|health| health.endpoint))
    }
}

/// How a receiver answered, or why it did not.
fn answer(result: &TryResult) -> Cell {
    let cell = match result.http_status {
        Some(status) => Cell::text(&status.to_string()),
        None => Cell::phrase(cause(result.cause())),
    };
    cell.detail(result.error.as_deref().unwrap_or_default())
}

fn cause(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Unspecified => "No answer",
        FailureCause::Status => "Not a 2xx",
        FailureCause::Timeout => "No answer in time",
        FailureCause::Dns => "The name was not found",
        FailureCause::Address => "An address that we do not call",
        FailureCause::Refused => "Nobody listens there",
        FailureCause::Tls => "No secure connection",
        FailureCause::Connection => "The connection broke",
        FailureCause::Unsigned => "It could not be signed",
        FailureCause::Interrupted => "Not known: we were interrupted",
    }
}
