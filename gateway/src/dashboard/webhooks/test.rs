//! One event at once, with the answer on the page. It is never repeated.

use std::sync::Arc;

use axum::{Router, extract::State, response::Response, routing::get};
use chassis::grpc::Reason;
use http::StatusCode;
use proto::webhooks::{SendTestRequest, SentRequest};

use super::{PATH, answer};
use crate::{
    backend,
    dashboard::{
        Dashboard,
        login::{Login, Sent},
        page::{Cell, DetailPage, FormPage, Refusal, Section},
    },
    error::Error,
    pages::see,
};

const TEST_PATH: &str = "/settings/integrations/webhooks/test";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(TEST_PATH, get(show).post(send))
}

fn form(login: &Login) -> FormPage {
    let shell = login.shell(Section::Integrations, "Send a test event");
    let mut page = FormPage::new(shell, TEST_PATH, "Send it now");
    let lead = "We send an event of the type endpoint.test to your address, as we send all others, and show the answer. It is sent once.";
    page.lead = vec![lead.into()];
    page.links = vec![("Back", PATH)];
    page
}

async fn show(login: Login) -> Response {
    form(&login).respond(StatusCode::OK)
}

async fn send(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, .. }: Sent,
) -> Result<Response, Refusal> {
    let request = SendTestRequest {
        merchant_id: login.merchant_id(),
    };
    // As long as an attempt may take, and a little more.
    let sent = dashboard.webhooks.once(
        backend::WAIT_DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.send_test(request).await },
    );
    let sent = match sent.await {
        Ok(sent) => sent,
        Err(Error::NoWebhookEndpoint) => return Ok(see(PATH)),
        Err(Error::AtDashboard {
            reason: Reason::TooManyTries,
            ..
        }) => {
            let notice = "Ten in a minute are enough. Wait a moment.".into();
            return Ok(form(&login).refuse(StatusCode::TOO_MANY_REQUESTS, Some(notice)));
        }
        Err(error) => return Err(error.into()),
    };
    let result = sent.result.unwrap_or_default();
    let mut page = DetailPage::new(login.shell(Section::Integrations, "What came back"));
    let state = match result.succeeded {
        true => Cell::state("Accepted", "good"),
        false => Cell::state("Not accepted", "bad"),
    };
    page.facts = vec![
        ("Result", state),
        ("Answer", answer(&result)),
        ("Took", Cell::text(&format!("{} ms", result.duration_ms))),
    ];
    if let Some(excerpt) = result
        .response_excerpt
        .filter(|excerpt| !excerpt.is_empty())
    {
        page.texts.push(("The answer's text", excerpt));
    }
    page.texts
        .extend(request_texts(sent.request.unwrap_or_default()));
    page.links = vec![
        ("Send another", TEST_PATH.to_owned()),
        ("Back", PATH.to_owned()),
    ];
    Ok(page.respond(StatusCode::OK))
}

/// A request as it is sent, for people.
pub fn request_texts(request: SentRequest) -> Vec<(&'static str, String)> {
    let headers = request.headers.iter();
    let headers: Vec<String> = headers
        .map(|header| format!("{}: {}", header.name, header.value))
        .collect();
    vec![
        ("Headers that we send", headers.join("\n")),
        ("Body that we send", request.body),
    ]
}
