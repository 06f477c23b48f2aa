//! `/confirm`: the password or a code once more, before what is sensitive.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use proto::merchants::{ConfirmRequest, confirm_request::Proof};
use url::form_urlencoded;

use super::{
    Dashboard,
    enter::{self, parameter, refusal},
    login::{Carried, Login, Standing, read_form},
    page::{Field, FormPage, Refusal, Section, respond},
    visitor::Visitor,
};
use crate::backend;

pub fn form(login: &Login, carried: &Carried) -> FormPage {
    let shell = login.shell(Section::Settings, "Confirm that it is you");
    let mut page = FormPage::new(shell, "/confirm", "Confirm");
    let (lead, field) = match login.has_totp {
        true => (
            "This needs a code of your authenticator once more. It counts for five minutes.",
            Field::code(),
        ),
        false => (
            "This needs your password once more. It counts for five minutes.",
            Field::password(),
        ),
    };
    page.lead = vec![lead.to_owned()];
    page.hidden = carried.hidden();
    page.fields = vec![field];
    page
}

pub async fn show(login: Login, RawQuery(query): RawQuery) -> Response {
    let carried = Carried::to(&parameter(query.as_deref(), "then"));
    form(&login, &carried).respond(StatusCode::OK)
}

pub async fn confirm(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fields = read_form(&headers, body).await?;
    let carried = Carried::read(&fields);
    let Standing::LoggedIn(login) = dashboard.standing(&headers, &visitor).await? else {
        return Ok(enter::form("", Some(&carried)).respond(StatusCode::UNAUTHORIZED));
    };
    let proof = match login.has_totp {
        true => Proof::Code(fields.get("code").to_owned()),
        false => Proof::Password(fields.exact("password").to_owned()),
    };
    let request = ConfirmRequest {
        token_sha256: login.token_sha256.to_vec(),
        origin: visitor.origin(),
        proof: Some(proof),
    };
    let confirmed = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.confirm(request).await },
    );
    match confirmed.await {
        Ok(_) => Ok(carried.go_on(&login)),
        Err(error) => {
            let wrong = match login.has_totp {
                true => "This code is not right, or was used before. Wait for the next one.",
                false => "The password is not right.",
            };
            let (status, notice) = refusal(error, wrong)?;
            Ok(form(&login, &carried).refuse(status, Some(notice)))
        }
    }
}

/// A page that sends an interrupted form again, to this path.
pub fn send_again(login: &Login, then: &str, form: &str) -> Response {
    let shell = login.shell(Section::Settings, "Send it again");
    let fields = form_urlencoded::parse(form.as_bytes()).into_owned();
    let page = SendAgainPage {
        shell,
        action: then.to_owned(),
        hidden: fields.collect(),
    };
    respond(StatusCode::OK, &page)
}

use super::{page::Shell, text::filters};

#[derive(Debug, askama::Template)]
#[template(path = "dashboard/send_again.html")]
struct SendAgainPage {
    shell: Shell,
    action: String,
    hidden: Vec<(String, String)>,
}
