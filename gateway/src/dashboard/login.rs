//! Who is logged in: what a page takes the merchant from.
//!
//! Handlers that show something take a [`Login`]; those that a form leads to take a [`Sent`], which
//! also checks that the form comes from our own pages. For what is sensitive there are
//! [`Confirmed`] and [`SentConfirmed`], whose person has given a password or a code within the last
//! five minutes. What somebody typed is never lost by a login that ended meanwhile: it is carried
//! through the login, and then sent again.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse as _, Response},
};
use chassis::{clock::Timestamp, config::Mode, grpc::Reason};
use http::{HeaderMap, StatusCode, request::Parts};
use proto::merchants::{self as contract, GetLoginRequest};
use url::form_urlencoded;

use super::{
    Dashboard,
    interrupted::{Carried, confirm_form, login_first},
    page::{MessagePage, Refusal, Section, Shell, Who},
    visitor::Visitor,
};
use crate::{
    backend,
    error::Error,
    merchant::{Merchant, Purpose},
    pages::{form::FormFields, same_site, see},
};

/// How long a password or a code that was given counts for what is sensitive.
const CONFIRMED_FOR: Duration = Duration::from_secs(5 * 60);

/// A login that is good for everything its person may do.
#[derive(Clone, Debug)]
pub struct Login {
    pub id: String,
    pub token_sha256: [u8; 32],
    pub person_id: String,
    pub email: String,
    pub email_verified: bool,
    pub has_totp: bool,
    pub recovery_codes_left: u32,
    /// An address that they have asked for and not confirmed.
    pub email_pending: Option<String>,
    /// Whose data the pages show.
    pub merchant: Arc<Merchant>,
    pub confirmed_at: Timestamp,
    pub visitor: Visitor,
    mode: Mode,
}

/// A form of somebody who is logged in.
#[derive(Debug)]
pub struct Sent {
    pub login: Login,
    pub fields: FormFields,
}

/// A login that was confirmed a moment ago.
#[derive(Debug)]
pub struct Confirmed(pub Login);

/// A form of somebody whose login was confirmed a moment ago.
#[derive(Debug)]
pub struct SentConfirmed(pub Sent);

/// What is asked of merchants-svc about a browser's cookie.
#[derive(Debug)]
pub enum Standing {
    LoggedIn(Box<Login>),
    /// The password was right, and a code must follow.
    NeedsCode([u8; 32]),
    Nobody,
}

impl Dashboard {
    /// Who the cookie says is there.
    pub async fn standing(
        &self,
        headers: &HeaderMap,
        visitor: &Visitor,
    ) -> Result<Standing, Error> {
        let Some(token_sha256) = self.cookie.read(headers) else {
            return Ok(Standing::Nobody);
        };
        let request = GetLoginRequest {
            token_sha256: token_sha256.to_vec(),
        };
        let found = self.people.read(
            backend::DEADLINE,
            request,
            |mut people, request| async move { people.get_login(request).await },
        );
        let login = match found.await {
            Ok(login) => login,
            Err(Error::AtDashboard {
                reason: Reason::LoginEnded,
                ..
            }) => return Ok(Standing::Nobody),
            Err(error) => return Err(error),
        };
        if login.needs_code {
            return Ok(Standing::NeedsCode(token_sha256));
        }
        let login = Login::new(login, token_sha256, visitor.clone(), self.mode)?;
        Ok(Standing::LoggedIn(Box::new(login)))
    }
}

impl Login {
    fn new(
        login: contract::Login,
        token_sha256: [u8; 32],
        visitor: Visitor,
        mode: Mode,
    ) -> Result<Self, Error> {
        let person = login.person.unwrap_or_default();
        let merchant = login.merchant.unwrap_or_default();
        Ok(Self {
            id: login.login_id,
            token_sha256,
            person_id: person.person_id,
            email: person.email,
            email_verified: person.email_verified,
            has_totp: person.has_totp,
            recovery_codes_left: person.recovery_codes_left,
            email_pending: person.email_pending,
            merchant: Arc::new(merchant.try_into()?),
            confirmed_at: login.confirmed_at.parse().map_err(Error::internal)?,
            visitor,
            mode,
        })
    }

    /// The merchant that everything is asked about.
    pub fn merchant_id(&self) -> String {
        self.merchant.id.to_string()
    }

    /// Whoever has signed up with somebody else's address gets no key, no secret and no money before
    /// its owner has said so: the page that says it, unless the address is verified.
    pub fn unverified(&self) -> Option<Response> {
        if self.email_verified {
            return None;
        }
        let shell = self.shell(Section::Home, "Verify your address first");
        let line =
            "Open the link that we have sent you. From the overview, you can have it sent again.";
        let page = MessagePage::saying(shell, line).next("Go to the overview", "/");
        Some(page.respond(StatusCode::CONFLICT))
    }

    /// The page that says why no money moves, as the API would refuse it, unless it may.
    pub fn moves_no_money(&self) -> Option<Response> {
        if self.merchant.may(Purpose::Other).is_ok() {
            return None;
        }
        let shell = self.shell(Section::Home, "Your business is not approved");
        let line = "Payouts and refunds go on once it is. Your balance stays yours.";
        let page = MessagePage::saying(shell, line).next("Business", "/settings/business");
        Some(page.respond(StatusCode::CONFLICT))
    }

    fn is_confirmed(&self, dashboard: &Dashboard) -> bool {
        dashboard.clock.now().since(self.confirmed_at) < CONFIRMED_FOR
    }
}

/// Where a browser was going, to bring it there after the login.
fn destination(parts: &Parts) -> String {
    let path = parts.uri.path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    form_urlencoded::byte_serialize(path.as_bytes()).collect()
}

impl FromRequestParts<Arc<Dashboard>> for Login {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        dashboard: &Arc<Dashboard>,
    ) -> Result<Self, Response> {
        let Ok(visitor) = Visitor::from_request_parts(parts, dashboard).await;
        let standing = dashboard.standing(&parts.headers, &visitor).await;
        let standing = standing.map_err(|error| Refusal(error).into_response())?;
        let then = destination(parts);
        match standing {
            Standing::LoggedIn(login) => Ok(*login),
            Standing::NeedsCode(_) => Err(see(&format!("/login/totp?then={then}"))),
            Standing::Nobody => Err(see(&format!("/login?then={then}"))),
        }
    }
}

impl FromRequestParts<Arc<Dashboard>> for Confirmed {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        dashboard: &Arc<Dashboard>,
    ) -> Result<Self, Response> {
        let login = Login::from_request_parts(parts, dashboard).await?;
        if let Some(refusal) = login.unverified() {
            return Err(refusal);
        }
        match login.is_confirmed(dashboard) {
            true => Ok(Self(login)),
            false => Err(see(&format!("/confirm?then={}", destination(parts)))),
        }
    }
}

impl FromRequest<Arc<Dashboard>> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(visitor) = Visitor::from_request_parts(&mut parts, dashboard).await;
        let read = async {
            let fields = read_form(&parts.headers, body).await?;
            let standing = dashboard.standing(&parts.headers, &visitor).await?;
            Ok::<_, Error>((fields, standing))
        };
        let (fields, standing) = read.await.map_err(|error| Refusal(error).into_response())?;
        match standing {
            Standing::LoggedIn(login) => Ok(Self {
                login: *login,
                fields,
            }),
            Standing::NeedsCode(_) | Standing::Nobody => {
                let carried = Carried::new(dashboard.forms, parts.uri.path(), &fields);
                Err(login_first(&carried))
            }
        }
    }
}

impl FromRequest<Arc<Dashboard>> for SentConfirmed {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        let sent = Sent::from_request(request, dashboard).await?;
        if let Some(refusal) = sent.login.unverified() {
            return Err(refusal);
        }
        if sent.login.is_confirmed(dashboard) {
            return Ok(Self(sent));
        }
        let carried = Carried::new(dashboard.forms, &path, &sent.fields);
        let login = &sent.login;
        let shell = login.shell(Section::Settings, "Confirm that it is you");
        let form = confirm_form(shell, login.has_totp, &carried);
        Err(form.respond(StatusCode::FORBIDDEN))
    }
}

/// Reads a form that must come from our own pages.
///
/// Browsers add the cookie to it, so one that says nothing about where it comes from is refused:
/// every browser that knows SameSite also sends Origin with a form.
pub async fn read_form(headers: &HeaderMap, body: Body) -> Result<FormFields, Error> {
    if !same_site::is_certainly_ours(headers) {
        return Err(Error::CrossSite);
    }
    FormFields::read(headers, body).await
}

impl Login {
    /// The frame of a page of this login.
    pub fn shell(&self, section: Section, title: &'static str) -> Shell {
        let who = Who {
            person_id: self.person_id.clone(),
            merchant: self.merchant.name.clone(),
            email: self.email.clone(),
            is_test: self.mode == Mode::Development,
        };
        Shell::inside(who, section, title)
    }
}
