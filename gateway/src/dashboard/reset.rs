//! `/forgot` and `/reset/{token}`: another password for who has lost theirs.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use proto::merchants::{RequestResetRequest, ResetPasswordRequest};

use super::{
    Dashboard,
    enter::refusal,
    login::read_form,
    mailed_link::{self, Followed},
    page::{Field, FormPage, MessagePage, Refusal, Shell, blame},
    visitor::Visitor,
};
use crate::{backend, error::Error, pages::see};

fn ask_form(email: &str) -> FormPage {
    let shell = Shell::outside("Forgot your password?");
    let mut page = FormPage::new(shell, "/forgot", "Send a link");
    page.lead = vec!["We send a link to your address. It is good for 30 minutes.".into()];
    page.fields = vec![Field::email().value(email)];
    page.links = vec![("Log in", "/login")];
    page
}

fn reset_form() -> FormPage {
    let mut page = FormPage::new(Shell::outside("Choose a password"), "", "Save");
    page.lead = vec!["All your logins end, on every device.".into()];
    page.fields = vec![Field::new_password()];
    page
}

pub async fn show() -> Response {
    ask_form("").respond(StatusCode::OK)
}

pub async fn ask(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fields = read_form(&headers, body).await?;
    dashboard.tries.take(visitor.address)?;
    let request = RequestResetRequest {
        email: fields.get("email").to_owned(),
        origin: visitor.origin(),
    };
    let asked = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.request_reset(request).await },
    );
    match asked.await {
        Ok(_) => Ok(see("/forgot/sent")),
        Err(Error::Validation(faults)) => {
            let mut page = ask_form(fields.get("email"));
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(error) => {
            let (status, notice) = refusal(error, "")?;
            Ok(ask_form(fields.get("email")).refuse(status, Some(notice)))
        }
    }
}

pub async fn sent() -> Response {
    let shell = Shell::outside("Check your mail");
    let line = "If there is an account with this address, a link is on its way. It can take a few minutes; look into the folder for spam, too.";
    let page = MessagePage::saying(shell, line).next("Log in", "/login");
    page.respond(StatusCode::OK)
}

pub async fn show_reset(Path(_token): Path<String>) -> Response {
    reset_form().respond(StatusCode::OK)
}

pub async fn reset(
    State(dashboard): State<Arc<Dashboard>>,
    followed: Followed,
) -> Result<Response, Refusal> {
    let request = ResetPasswordRequest {
        token_sha256: followed.token_sha256,
        password: followed.password,
        origin: followed.origin,
    };
    let reset = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.reset_password(request).await },
    );
    match reset.await {
        Ok(_) => {
            let shell = Shell::outside("Your password is changed");
            let page =
                MessagePage::saying(shell, "Log in with the new one.").next("Log in", "/login");
            Ok(page.respond(StatusCode::OK))
        }
        Err(error) => {
            let why = "It is too old, was used, or there is a newer one.";
            let next = ("Ask for another link", "/forgot");
            mailed_link::refuse(error, reset_form(), why, next)
        }
    }
}
