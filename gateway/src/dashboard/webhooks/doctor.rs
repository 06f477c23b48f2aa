//! Why a receiver refuses a signature. What was pasted is compared with the merchant's secrets on the
//! server; they are never asked for and never shown.

use std::sync::Arc;

use axum::{Router, extract::State, response::Response, routing::get};
use http::StatusCode;
use proto::webhooks::{
    BodyChange, DiagnoseSignatureRequest, HeaderFault, SignatureDiagnosis, SignatureFinding,
};

use super::PATH;
use crate::{
    backend,
    dashboard::{
        Dashboard,
        login::{Login, Sent},
        page::{Cell, Control, DetailPage, Field, FormPage, Refusal, Section, blame},
        text::Phrase,
    },
    error::Error,
    pages::see,
};

const DOCTOR_PATH: &str = "/settings/integrations/webhooks/doctor";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(DOCTOR_PATH, get(show).post(diagnose))
}

fn form(login: &Login, header: &str, body: &str, event_id: &str) -> FormPage {
    let shell = login.shell(Section::Integrations, "Signature doctor");
    let mut page = FormPage::new(shell, DOCTOR_PATH, "Say what is wrong");
    let lead =
        "Paste what your program received. It is compared with your secrets here and kept nowhere.";
    page.lead = vec![lead.into()];
    page.fields = fields();
    page.links = vec![("Back", PATH)];
    page.filled(|name| match name {
        "header" => header.to_owned(),
        "body" => body.to_owned(),
        _ => event_id.to_owned(),
    })
}

pub fn fields() -> Vec<Field> {
    vec![
        Field::text("header", "X-Service-Signature").hint("For example t=1764000000,v1=5257a869…"),
        Field::new("body", "The body, exactly as it was checked", Control::Area),
        Field::text("event_id", "X-Service-Event-Id").hint("If you have it."),
    ]
}

async fn show(login: Login) -> Response {
    form(&login, "", "", "").respond(StatusCode::OK)
}

async fn diagnose(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let body = pasted(fields.exact("body"));
    let request = DiagnoseSignatureRequest {
        merchant_id: login.merchant_id(),
        header: fields.get("header").to_owned(),
        body: body.clone().into_bytes(),
        event_id: fields.get("event_id").to_owned(),
    };
    let found = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.diagnose_signature(request).await },
    );
    match found.await {
        Ok(diagnosis) => Ok(page(&login, &diagnosis).respond(StatusCode::OK)),
        Err(Error::NoWebhookEndpoint) => Ok(see(PATH)),
        Err(Error::Validation(faults)) => {
            let mut page = form(&login, fields.get("header"), &body, fields.get("event_id"));
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(error) => Err(error.into()),
    }
}

/// Browsers send every line break of a form as CRLF, so a lone CR or LF in the pasted text cannot be
/// told apart: our bodies have none, and people's editors write LF.
fn pasted(body: &str) -> String {
    body.replace("\r\n", "\n")
}

fn page(login: &Login, diagnosis: &SignatureDiagnosis) -> DetailPage {
    let mut page = DetailPage::new(login.shell(Section::Integrations, "Signature doctor"));
    let (word, class, what) = words(diagnosis);
    page.lead = vec![what.into()];
    page.facts = vec![("Finding", Cell::state(word, class))];
    if let Some(age) = diagnosis.age_seconds {
        let age = Cell::text(&format!("{age} s"));
        let about = match diagnosis.is_fresh {
            true => "within the 300 s that a receiver should allow",
            false => "more than the 300 s that a receiver should allow; in a log, that is no fault",
        };
        page.facts
            .push(("Signed before now", age.detail(Phrase::from(about))));
    }
    if diagnosis.is_by_previous {
        let cell = Cell::phrase("The one before the last rotation");
        page.facts.push(("Secret", cell));
    }
    if let Some(event) = &diagnosis.signed_event_id {
        page.facts.push(("Signed for the event", Cell::text(event)));
    }
    if let Some(event) = &diagnosis.body_event_id {
        page.facts
            .push(("The body is the event", Cell::text(event)));
    }
    page.links = vec![
        ("Try another", DOCTOR_PATH.to_owned()),
        ("Back", PATH.to_owned()),
    ];
    page
}

/// The finding, its class, and what to do about it.
fn words(diagnosis: &SignatureDiagnosis) -> (&'static str, &'static str, &'static str) {
    match diagnosis.finding() {
        SignatureFinding::Unspecified => (
            "Newer than this page knows",
            "idle",
            "Ask us, and tell us the event's id.",
        ),
        SignatureFinding::Valid => (
            "The signature is right",
            "good",
            "Header, body and secret belong together. If your program refuses it, its own check is at fault: compare its steps with our example.",
        ),
        SignatureFinding::ValidWithPrevious => (
            "Right, with the secret before",
            "wait",
            "You have rotated the secret, and this is by the old one. Give your program the new one before the old one ends.",
        ),
        SignatureFinding::MalformedHeader => (
            "Not a signature",
            "bad",
            header_fault(diagnosis.header_fault()),
        ),
        SignatureFinding::ClockOff => (
            "Signed at another time",
            "bad",
            "The signature is right, but not of these five minutes. Either it is an old request, or the clock of your server is off: compare it with an internet clock.",
        ),
        SignatureFinding::LineBreaks => (
            "The line breaks have changed",
            "bad",
            body_change(diagnosis.body_change()),
        ),
        SignatureFinding::Reserialised => (
            "The JSON was written anew",
            "bad",
            "The body says the same, in other bytes. Check the signature over the bytes as they arrived, before they are parsed.",
        ),
        SignatureFinding::BodyChanged => (
            "The body says something else",
            "bad",
            "The signature is of the event that we sent, and this body is another. Something between us and your program has changed it.",
        ),
        SignatureFinding::OtherEvent => (
            "The header is another event's",
            "bad",
            "Header and body come from two requests. Look whether your program mixes requests that arrive at the same time.",
        ),
        SignatureFinding::EmptyBody => (
            "There is no body",
            "bad",
            "Your program has read it before, or not yet. Most frameworks need a setting to keep the raw body.",
        ),
        SignatureFinding::WrongSecret => (
            "By none of your secrets",
            "bad",
            "Either it was not sent by us, or header and body are not as they arrived. Copy the secret once more, with its beginning whsec_.",
        ),
    }
}

fn header_fault(fault: HeaderFault) -> &'static str {
    match fault {
        HeaderFault::Unspecified => "The header cannot be read.",
        HeaderFault::Empty => {
            "The header is empty. Look whether a proxy before your program takes it away."
        }
        HeaderFault::Part => "A part of it is not name=value. Copy the whole header.",
        HeaderFault::Time => "Its t= is missing, or not a number of seconds.",
        HeaderFault::NoSignature => "It has no v1=.",
        HeaderFault::Signature => "Its v1= is not 64 hexadecimal digits. It may have been cut off.",
    }
}

fn body_change(change: BodyChange) -> &'static str {
    match change {
        BodyChange::Unspecified => "The body differs in its line breaks.",
        BodyChange::NewlineAdded => "The body has a line break at its end that was not signed.",
        BodyChange::CrlfAdded => {
            "The body has a Windows line break at its end that was not signed."
        }
        BodyChange::NewlineRemoved => "The body lacks the line break at its end that was signed.",
        BodyChange::CrlfRemoved => {
            "The body lacks the Windows line break at its end that was signed."
        }
        BodyChange::LineEndings => "The body has line breaks of another kind than what was signed.",
        BodyChange::BlanksAround => {
            "There are blanks or a byte order mark around the body that were not signed."
        }
    }
}
