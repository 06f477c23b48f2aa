//! `/settings/security/email` and `/change-email/{token}`: another e-mail address, which counts once a
//! link that was mailed there is followed.
//!
//! The page after the form says the same whether or not somebody has this address.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use http::StatusCode;
use proto::merchants::{ChangeEmailRequest, RequestEmailChangeRequest};

use super::{
    Dashboard,
    enter::refusal,
    login::{Confirmed, Login, Sent, SentConfirmed},
    mailed_link::{self, Followed},
    page::{Field, FormPage, MessagePage, Refusal, Section, Shell, blame},
    text::phrase,
};
use crate::{backend, error::Error, pages::see};

pub const PATH: &str = "/settings/security/email";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show).post(ask))
        .route("/change-email/{token}", get(show_change).post(change))
}

fn form(login: &Login, typed: &str) -> FormPage {
    let shell = login.shell(Section::Settings, "Change your e-mail address");
    let mut page = FormPage::new(shell, PATH, "Send the link");
    page.lead = vec![
        "We send a link to the new address. Once you have opened it, you log in with that address, and all messages go there.".into(),
    ];
    page.fields = vec![
        Field::email()
            .hint("The new one.")
            .autocomplete("email")
            .value(typed),
    ];
    page.links = vec![("Back", "/settings/security")];
    page
}

async fn show(Confirmed(login): Confirmed) -> Response {
    form(&login, "").respond(StatusCode::OK)
}

async fn ask(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    dashboard.tries.take(login.visitor.address)?;
    let typed = fields.get("email");
    let request = RequestEmailChangeRequest {
        person_id: login.person_id.clone(),
        email: typed.to_owned(),
        origin: login.visitor.origin(),
    };
    let asked = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.request_email_change(request).await },
    );
    match asked.await {
        Ok(_) => Ok(see("/settings/security?done=email")),
        Err(Error::Validation(faults)) => {
            let mut page = form(&login, typed);
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(error) => {
            let (status, notice) = refusal(error, "")?;
            Ok(form(&login, typed).refuse(status, Some(notice)))
        }
    }
}

/// Asks for the password, so that the link is of no use to whoever the address belongs to, if it was
/// mistyped, and none to a mail scanner that follows it.
fn change_form() -> FormPage {
    let shell = Shell::outside("Confirm your new address");
    let mut page = FormPage::new(shell, "", "Use this address");
    page.lead = vec!["Enter the password of your account.".into()];
    page.fields = vec![Field::password()];
    page
}

async fn show_change(Path(_token): Path<String>) -> Response {
    change_form().respond(StatusCode::OK)
}

async fn change(
    State(dashboard): State<Arc<Dashboard>>,
    followed: Followed,
) -> Result<Response, Refusal> {
    let request = ChangeEmailRequest {
        token_sha256: followed.token_sha256,
        password: followed.password,
        origin: followed.origin,
    };
    let changed = dashboard.people.keyed(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.change_email(request).await },
    );
    match changed.await {
        Ok(changed) => {
            let line = phrase!("You log in with {0} from now on.", changed.email);
            let shell = Shell::outside("Your address is changed");
            let page = MessagePage::saying(shell, line).next("Go on", "/");
            Ok(page.respond(StatusCode::OK))
        }
        Err(error) => {
            let why = "It is too old, another address was asked for since, or the address is in use. Log in to ask for another link.";
            mailed_link::refuse(error, change_form(), why, ("Log in", "/login"))
        }
    }
}
