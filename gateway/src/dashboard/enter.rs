//! `/login`, `/login/totp` and `/logout`: the ways in and out.
//!
//! An unknown address and a wrong password get the same answer. A right password begins a login that
//! is only good for entering the code, where the person has an authenticator.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
};
use chassis::grpc::Reason;
use http::{HeaderMap, StatusCode, header::SET_COOKIE};
use proto::merchants::{EnterCodeRequest, LogInRequest, LogOutRequest};
use url::form_urlencoded;

use super::{
    Dashboard,
    interrupted::{Carried, login_form},
    login::{Standing, read_form},
    page::{Field, FormPage, Refusal, Section, Shell},
    text::{Phrase, phrase},
    visitor::Visitor,
};
use crate::{backend, error::Error, pages::see};

/// The value of one of the page's parameters.
pub fn parameter(query: Option<&str>, wanted: &str) -> String {
    let query = query.unwrap_or_default().as_bytes();
    let mut given = form_urlencoded::parse(query);
    let found = given.find(|(name, _)| name == wanted);
    found
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

fn code_form(carried: &Carried) -> FormPage {
    let mut page = FormPage::new(Shell::outside("Enter your code"), "/login/totp", "Go on");
    let lead = "Enter the code that your authenticator shows, or one of your recovery codes.";
    page.lead = vec![lead.into()];
    page.hidden = carried.hidden();
    page.fields = vec![Field::code()];
    page.links = vec![("Log in as somebody else", "/login")];
    page
}

pub async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let carried = Carried::to(&parameter(query.as_deref(), "then"));
    match dashboard.standing(&headers, &visitor).await? {
        Standing::LoggedIn(_) => Ok(see(&carried.then)),
        Standing::NeedsCode(_) | Standing::Nobody => {
            Ok(login_form("", Some(&carried)).respond(StatusCode::OK))
        }
    }
}

pub async fn log_in(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fields = read_form(&headers, body).await?;
    dashboard.tries.take(visitor.address)?;
    let carried = Carried::read(&fields);
    let request = LogInRequest {
        email: fields.get("email").to_owned(),
        password: fields.exact("password").to_owned(),
        origin: visitor.origin(),
        earlier_token_sha256: dashboard.cookie.read_earlier(&headers).unwrap_or_default(),
    };
    let begun = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.log_in(request).await },
    );
    let begun = match begun.await {
        Ok(begun) => begun,
        Err(error) => {
            let (status, notice) = refusal(error, "The address or the password is not right.")?;
            return Ok(login_form(fields.get("email"), Some(&carried)).refuse(status, Some(notice)));
        }
    };
    match begun.needs_code {
        true => {
            let answer = code_form(&carried).respond(StatusCode::OK);
            Ok(dashboard.with_cookie(answer, &begun.token)?)
        }
        false => Ok(dashboard.arrive(&begun.token, &visitor, &carried).await?),
    }
}

pub async fn show_code(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let carried = Carried::to(&parameter(query.as_deref(), "then"));
    match dashboard.standing(&headers, &visitor).await? {
        Standing::LoggedIn(_) => Ok(see(&carried.then)),
        Standing::NeedsCode(_) => Ok(code_form(&carried).respond(StatusCode::OK)),
        Standing::Nobody => Ok(see("/login")),
    }
}

pub async fn enter_code(
    State(dashboard): State<Arc<Dashboard>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fields = read_form(&headers, body).await?;
    dashboard.tries.take(visitor.address)?;
    let carried = Carried::read(&fields);
    let Standing::NeedsCode(token_sha256) = dashboard.standing(&headers, &visitor).await? else {
        return Ok(login_form("", Some(&carried)).respond(StatusCode::UNAUTHORIZED));
    };
    let request = EnterCodeRequest {
        token_sha256: token_sha256.to_vec(),
        code: fields.get("code").to_owned(),
        origin: visitor.origin(),
    };
    let begun = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.enter_code(request).await },
    );
    match begun.await {
        Ok(begun) => Ok(dashboard.arrive(&begun.token, &visitor, &carried).await?),
        Err(error) => {
            let wrong = "This code is not right, or was used before. Wait for the next one.";
            let (status, notice) = refusal(error, wrong)?;
            Ok(code_form(&carried).refuse(status, Some(notice)))
        }
    }
}

pub async fn log_out(
    State(dashboard): State<Arc<Dashboard>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    read_form(&headers, body).await?;
    if let Some(token_sha256) = dashboard.cookie.read(&headers) {
        let request = LogOutRequest {
            token_sha256: token_sha256.to_vec(),
        };
        let ended = dashboard.people.keyed(
            backend::DEADLINE,
            request,
            |mut people, request| async move { people.log_out(request).await },
        );
        // Only once the login is certainly over may the browser forget it.
        ended.await?;
    }
    let mut answer = see("/login");
    let cleared = dashboard.cookie.clear();
    answer.headers_mut().insert(SET_COOKIE, cleared);
    Ok(answer)
}

/// What a refused password or code is told; an error that is no refusal is passed on.
pub fn refusal(error: Error, wrong: &'static str) -> Result<(StatusCode, Phrase), Error> {
    match error {
        Error::AtDashboard {
            reason: Reason::WrongPassword | Reason::WrongCode,
            ..
        } => Ok((StatusCode::UNAUTHORIZED, wrong.into())),
        Error::AtDashboard {
            reason: Reason::TooManyTries,
            retry_after_seconds,
        } => {
            let minutes = retry_after_seconds.unwrap_or(300).div_ceil(60).max(1);
            let notice = match minutes {
                1 => "Too many tries. Wait a minute and try again.".into(),
                minutes => phrase!(
                    "Too many tries. Wait {0} minutes and try again.",
                    minutes.to_string()
                ),
            };
            Ok((StatusCode::TOO_MANY_REQUESTS, notice))
        }
        Error::AtDashboard {
            reason: Reason::LoginEnded,
            ..
        } => Ok((
            StatusCode::UNAUTHORIZED,
            "Your login has ended. Log in again.".into(),
        )),
        error => Err(error),
    }
}

impl Dashboard {
    /// Goes on as the person of this new login, in a browser that is known from now on.
    async fn arrive(
        &self,
        token: &str,
        visitor: &Visitor,
        carried: &Carried,
    ) -> Result<Response, Error> {
        let answer = self.first_page(token, visitor, carried).await?;
        let mut answer = self.with_cookie(answer, token)?;
        let earlier = self.cookie.set_earlier(token)?;
        answer.headers_mut().append(SET_COOKIE, earlier);
        Ok(answer)
    }

    /// What somebody sees who has just logged in.
    async fn first_page(
        &self,
        token: &str,
        visitor: &Visitor,
        carried: &Carried,
    ) -> Result<Response, Error> {
        if carried.form.is_none() {
            return Ok(see(&carried.then));
        }
        let mut headers = HeaderMap::new();
        headers.insert(http::header::COOKIE, self.cookie.set(token)?);
        match self.standing(&headers, visitor).await? {
            Standing::LoggedIn(login) => Ok(carried.go_on(self.forms, &login.person_id, |title| {
                login.shell(Section::Home, title)
            })),
            Standing::NeedsCode(_) | Standing::Nobody => Ok(see("/login")),
        }
    }

    fn with_cookie(&self, answer: Response, token: &str) -> Result<Response, Error> {
        let mut answer = answer.into_response();
        let cookie = self.cookie.set(token)?;
        answer.headers_mut().insert(SET_COOKIE, cookie);
        Ok(answer)
    }
}
