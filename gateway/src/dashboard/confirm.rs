//! `/confirm`: the password or a code once more, before what is sensitive.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use proto::merchants::{ConfirmRequest, confirm_request::Proof};

use super::{
    Dashboard,
    enter::{parameter, refusal},
    interrupted::{Carried, confirm_form, login_form},
    login::{Login, Standing, read_form},
    page::{FormPage, Refusal, Section},
    visitor::Visitor,
};
use crate::backend;

fn form(login: &Login, carried: &Carried) -> FormPage {
    let shell = login.shell(Section::Settings, "Confirm that it is you");
    confirm_form(shell, login.has_totp, carried)
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
        return Ok(login_form("", Some(&carried)).respond(StatusCode::UNAUTHORIZED));
    };
    dashboard.tries.take(visitor.address)?;
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
        Ok(_) => Ok(carried.go_on(dashboard.forms, &login.person_id, |title| {
            login.shell(Section::Settings, title)
        })),
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
