//! `/payments/new` and `/payments/link/{session_id}`: a payment session without a program, as a link that
//! the merchant sends to whoever is to pay.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{ids::SessionId, limits::DESCRIPTION_CHARACTERS_MAX};
use http::StatusCode;
use proto::sessions::{CreateSessionRequest, GetSessionRequest, Session, SessionStatus};

use super::{
    Dashboard,
    login::{Login, Sent},
    money_out,
    page::{Cell, DetailPage, Field, FormPage, MessagePage, Refusal, Section},
    payments,
    text::{left_until, phrase},
};
use crate::{backend, error::Error, merchant::Purpose, pages::see};

const NEW: &str = "/payments/new";

const LINK: &str = "/payments/link";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(NEW, get(show_form).post(create))
        .route(&format!("{LINK}/{{session_id}}"), get(show))
}

fn form(login: &Login, amount: &str, description: &str) -> FormPage {
    let shell = login.shell(Section::Payments, "Ask for a payment");
    let mut page = FormPage::new(shell, NEW, "Make the link");
    let lead = "You get a link to the checkout, which you can open yourself or send to your customer. It lasts for a day and is paid once.";
    page.lead = vec![lead.into()];
    page.fields = fields();
    page.hidden = vec![money_out::new_nonce()];
    page.links = vec![("All payments", payments::PATH)];
    page.filled(|name| match name {
        "amount" => amount.to_owned(),
        _ => description.to_owned(),
    })
}

pub fn fields() -> Vec<Field> {
    vec![
        money_out::amount_field(""),
        Field::text("description", "What for").hint("Your customer sees it. It can be left out."),
    ]
}

/// The answer to a merchant that may take no payments.
fn takes_none(login: &Login) -> Option<Response> {
    login.merchant.may(Purpose::TakePayment).err().map(|_| {
        let shell = login.shell(Section::Payments, "Not possible yet");
        let line =
            "You can take payments once your address is verified and your business is approved.";
        let page = MessagePage::saying(shell, line).next("Go to the overview", "/");
        page.respond(StatusCode::CONFLICT)
    })
}

async fn show_form(login: Login) -> Response {
    takes_none(&login).unwrap_or_else(|| form(&login, "", "").respond(StatusCode::OK))
}

async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    if let Some(refused) = takes_none(&login) {
        return Ok(refused);
    }
    let (typed, description) = (fields.get("amount"), fields.get("description").trim());
    let amount = match money_out::parse_amount(typed) {
        Ok(amount) => amount,
        Err(why) => return Ok(form(&login, typed, description).refuse_field("amount", why)),
    };
    let is_text = !description.chars().any(char::is_control);
    if !is_text || description.chars().count() > DESCRIPTION_CHARACTERS_MAX {
        let why = phrase!(
            "At most {0} characters, in one line.",
            DESCRIPTION_CHARACTERS_MAX.to_string()
        );
        return Ok(form(&login, typed, description).refuse_field("description", why));
    }
    let Some(idempotency_key) = money_out::key(&fields) else {
        let notice = "This form was not whole. Send it again.".into();
        let page = form(&login, typed, description);
        return Ok(page.refuse(StatusCode::BAD_REQUEST, Some(notice)));
    };
    let request = CreateSessionRequest {
        merchant_id: login.merchant_id(),
        amount: Some(amount.into()),
        description: Some(description.to_owned()).filter(|text| !text.is_empty()),
        redirect_url: None,
        payer: None,
        idempotency_key,
    };
    let created = dashboard.sessions.keyed(
        backend::DEADLINE,
        request,
        |mut sessions, request| async move { sessions.create_session(request).await },
    );
    match created.await {
        Ok(created) => {
            let session = created.session.unwrap_or_default();
            Ok(see(&format!("{LINK}/{}", session.session_id)))
        }
        Err(Error::IdempotencyKeyReused | Error::IdempotencyInProgress) => {
            let notice = "This form was sent before, with something else in it.".into();
            let page = form(&login, typed, description);
            Ok(page.refuse(StatusCode::CONFLICT, Some(notice)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    session_id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(session_id) = session_id.map_err(|_| Error::NotFound)?;
    let session_id: SessionId = session_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetSessionRequest {
        merchant_id: login.merchant_id(),
        session_id: session_id.to_string(),
    };
    let session = dashboard.sessions.read(
        backend::DEADLINE,
        request,
        |mut sessions, request| async move { sessions.get_session(request).await },
    );
    let session = session.await?;
    let address = format!("{}/pay/{session_id}", dashboard.checkout_url);
    let mut page = DetailPage::new(login.shell(Section::Payments, "Payment link"));
    let state = state(&session);
    page.follow(&state);
    let is_open = state.waits();
    page.facts = vec![
        ("Amount", payments::amount(session.amount.as_ref())?),
        ("State", state),
    ];
    page.facts.push(match is_open {
        true => {
            let left = left_until(dashboard.clock.now(), &session.expires_at);
            ("Can be paid for", Cell::of(left))
        }
        false => ("Could be paid until", Cell::time(&session.expires_at)),
    });
    if let Some(description) = &session.description {
        page.facts.push(("What for", Cell::text(description)));
    }
    page.texts = vec![("The link", address.clone())];
    page.links = vec![
        ("Open the checkout", address),
        ("Its payments", format!("{}?q={session_id}", payments::PATH)),
        ("Ask for another payment", NEW.to_owned()),
    ];
    Ok(page.respond(StatusCode::OK))
}

fn state(session: &Session) -> Cell {
    match session.status() {
        SessionStatus::Unspecified => Cell::state("Not known here", "idle"),
        SessionStatus::Pending => Cell::state("Not paid yet", "wait"),
        SessionStatus::Processing => Cell::state("Being paid", "wait"),
        SessionStatus::Completed => Cell::state("Paid", "good"),
        SessionStatus::Failed => Cell::state("Failed", "bad"),
        SessionStatus::Expired => Cell::state("Ended unpaid", "bad"),
    }
}
