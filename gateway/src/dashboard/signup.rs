//! `/signup` and `/verify-email/{token}`: from nothing to an account with a verified address.
//!
//! The page after the form says the same whether or not somebody has this address.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use proto::merchants::{SendVerificationRequest, SignUpRequest, VerifyEmailRequest};

use super::{
    Dashboard,
    enter::refusal,
    login::{Sent, read_form},
    mailed_link::{self, Followed},
    page::{Field, FormPage, MessagePage, Refusal, Shell, blame},
    text::phrase,
    visitor::Visitor,
};
use crate::{
    backend,
    error::Error,
    pages::{form::FormFields, see},
};

fn form(typed: Option<&FormFields>) -> FormPage {
    let typed = |name| typed.map(|fields| fields.get(name)).unwrap_or_default();
    let mut page = FormPage::new(Shell::outside("Sign up"), "/signup", "Sign up");
    page.fields = vec![
        Field::text("business_name", "Business name")
            .autocomplete("organization")
            .hint("Your customers see it when they pay.")
            .value(typed("business_name")),
        Field::email().value(typed("email")),
        Field::new_password(),
    ];
    page.links = vec![("Have an account? Log in", "/login")];
    page
}

pub async fn show() -> Response {
    form(None).respond(StatusCode::OK)
}

pub async fn sign_up(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fields = read_form(&headers, body).await?;
    dashboard.tries.take(visitor.address)?;
    let request = SignUpRequest {
        business_name: fields.get("business_name").to_owned(),
        email: fields.get("email").to_owned(),
        password: fields.exact("password").to_owned(),
        origin: visitor.origin(),
    };
    let made = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.sign_up(request).await },
    );
    match made.await {
        Ok(_) => Ok(see("/signup/sent")),
        Err(Error::Validation(faults)) => {
            let mut page = form(Some(&fields));
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(error) => {
            let (status, notice) = refusal(error, "")?;
            Ok(form(Some(&fields)).refuse(status, Some(notice)))
        }
    }
}

pub async fn sent() -> Response {
    let shell = Shell::outside("Check your mail");
    let line = "We have sent a message to your address. Open the link in it to go on. It can take a few minutes; look into the folder for spam, too.";
    let page = MessagePage::saying(shell, line).next("Log in", "/login");
    page.respond(StatusCode::OK)
}

/// Asks for the password, so that the link is of no use to whoever signed up with somebody else's
/// address, and none to a mail scanner that follows it.
fn verify_form() -> FormPage {
    let shell = Shell::outside("Verify your address");
    let mut page = FormPage::new(shell, "", "Verify my address");
    page.lead = vec!["Enter the password that you chose when you signed up.".into()];
    page.fields = vec![Field::password()];
    page.links = vec![(
        "You have not signed up, or do not know it? Choose another",
        "/forgot",
    )];
    page
}

pub async fn show_verify(Path(_token): Path<String>) -> Response {
    verify_form().respond(StatusCode::OK)
}

pub async fn verify(
    State(dashboard): State<Arc<Dashboard>>,
    followed: Followed,
) -> Result<Response, Refusal> {
    let request = VerifyEmailRequest {
        token_sha256: followed.token_sha256,
        password: followed.password,
        origin: followed.origin,
    };
    let verified = dashboard.people.keyed(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.verify_email(request).await },
    );
    match verified.await {
        Ok(verified) => {
            let line = phrase!("{0} is verified.", verified.email);
            let shell = Shell::outside("Your address is verified");
            let page = MessagePage::saying(shell, line).next("Go on", "/");
            Ok(page.respond(StatusCode::OK))
        }
        Err(error) => {
            let why = "It is too old, or there is a newer one. Log in to have another sent.";
            mailed_link::refuse(error, verify_form(), why, ("Log in", "/login"))
        }
    }
}

/// Mails the link again.
pub async fn send_again(
    State(dashboard): State<Arc<Dashboard>>,
    sent: Sent,
) -> Result<Response, Refusal> {
    let request = SendVerificationRequest {
        person_id: sent.login.person_id.clone(),
    };
    let asked = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.send_verification(request).await },
    );
    match asked.await {
        Ok(_) => Ok(see("/?done=verification-sent")),
        Err(Error::AtDashboard { .. }) => Ok(see("/?done=verification-limit")),
        Err(error) => Err(error.into()),
    }
}
