//! `/`: what is left to do until the first payment has arrived.
//!
//! Each step is computed from what is on record; none is clicked away.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use http::StatusCode;
use proto::merchants::{KycStatus, ListMerchantKeysRequest};

use super::{
    Dashboard, business,
    enter::parameter,
    login::Login,
    page::{Refusal, Section, Shell, respond},
    text::filters,
};
use crate::backend;

/// The page of the steps.
#[derive(Debug, askama::Template)]
#[template(path = "dashboard/home.html")]
struct HomePage {
    shell: Shell,
    steps: Vec<Step>,
    /// A command for the next step.
    command: Option<String>,
    is_verified: bool,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    is_done: bool,
    /// Whether all before it are done, and it is not.
    is_next: bool,
    /// What is to be done.
    lead: &'static str,
    /// Where: label and address.
    link: Option<(&'static str, &'static str)>,
}

pub async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let business = business::load(&dashboard, &login).await?;
    let request = ListMerchantKeysRequest {
        merchant_id: login.merchant_id(),
    };
    let keys = dashboard.account.read(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.list_merchant_keys(request).await },
    );
    let keys = keys.await?.keys;
    let done = match parameter(query.as_deref(), "done").as_str() {
        "verification-sent" => Some("The link is on its way."),
        "verification-limit" => Some(
            "There were several messages already. Look into your mail, and into the folder for spam.",
        ),
        _ => None,
    };
    let mut steps = vec![
        Step {
            name: "Verify your e-mail address",
            is_done: login.email_verified,
            is_next: false,
            lead: "Open the link that we have sent you.",
            link: None,
        },
        Step {
            name: "Tell us about your business",
            is_done: business.status() == KycStatus::Approved,
            is_next: false,
            lead: match business.status() {
                KycStatus::Pending | KycStatus::InReview => {
                    "We are looking at it, and send you a message."
                }
                KycStatus::Rejected => "Something in the form must be changed.",
                _ => "A form of eleven fields. Nothing to upload.",
            },
            link: Some(("Business", "/settings/business")),
        },
        Step {
            name: "Create an API key",
            is_done: keys.iter().any(|key| key.revoked_at.is_none()),
            is_next: false,
            lead: "Your program shows it with every request.",
            link: Some(("API keys", "/settings/integrations/keys")),
        },
    ];
    if let Some(next) = steps.iter_mut().find(|step| !step.is_done) {
        next.is_next = true;
    }
    let page = HomePage {
        shell: login.shell(Section::Home, "Overview").done(done),
        command: Some(dashboard.first_payment()),
        is_verified: login.email_verified,
        steps,
    };
    Ok(respond(StatusCode::OK, &page))
}

impl Dashboard {
    /// The command that takes a first payment.
    fn first_payment(&self) -> String {
        let api = &self.api_url;
        format!(
            "curl -s {api}/api/v1/payments/charge \\\n  \
             -H 'Authorization: Bearer YOUR_KEY' \\\n  \
             -H 'Content-Type: application/json' \\\n  \
             -d '{{\"amount\": 25.50, \"mobile_number\": \"0240000001\", \"provider\": \"MTN\"}}'"
        )
    }
}
