//! The pages' templates and the data for them. The template engine escapes whatever comes from
//! outside.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::{return_link::ReturnLink, text::Text, visitor::Visitor};
use crate::{
    error::Error,
    pages::{assets, respond},
};

/// What every page has.
#[derive(Debug)]
pub struct Shell {
    pub text: &'static Text,
    pub title: &'static str,
    pub state: &'static str,
    pub is_error: bool,
    /// Its own address, without the parameter for a special view.
    pub page: Option<String>,
    /// Where to poll whether the page is out of date.
    pub poll: Option<String>,
    /// Whom to contact about the purchase.
    pub merchant: Option<String>,
    /// The other language, and this page in it.
    pub other: Option<(&'static Text, String)>,
    pub css: &'static str,
    pub js: &'static str,
}

impl Shell {
    /// A page without a session.
    fn bare(text: &'static Text, title: &'static str, state: &'static str) -> Self {
        Self {
            text,
            title,
            state,
            is_error: false,
            page: None,
            poll: None,
            merchant: None,
            other: None,
            css: &assets::CHECKOUT.css.path,
            js: &assets::CHECKOUT.js.path,
        }
    }

    /// A page of a session.
    pub fn new(
        visitor: &Visitor,
        merchant: &str,
        title: &'static str,
        state: &'static str,
    ) -> Self {
        let other = visitor.text.other();
        Self {
            page: Some(visitor.page()),
            merchant: Some(merchant.to_owned()),
            other: Some((other, visitor.in_language(other))),
            ..Self::bare(visitor.text, title, state)
        }
    }
}

/// What is being paid for.
#[derive(Debug)]
pub struct Purchase {
    pub merchant: String,
    pub amount: String,
    pub description: Option<String>,
}

/// What the payer entered, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Form {
    /// Identifies the form, so that sending it repeatedly makes one charge.
    pub attempt: String,
    pub network: String,
    pub other_number: bool,
    pub mobile_number: String,
    pub network_error: Option<&'static str>,
    pub number_error: Option<&'static str>,
    /// Why nothing came of the last submission.
    pub notice: Option<String>,
}

/// A network to choose from.
#[derive(Debug)]
pub struct NetworkChoice {
    pub value: &'static str,
    pub name: &'static str,
    pub chosen: bool,
}

#[derive(Debug, Template)]
#[template(path = "checkout/form.html")]
pub struct FormPage<'a> {
    pub shell: Shell,
    pub order: Purchase,
    pub form: &'a Form,
    pub action: String,
    /// The amount in cedis.
    pub debit: &'a str,
    pub quote: Option<String>,
    pub rate: Option<String>,
    pub networks: Vec<NetworkChoice>,
    /// The number that the merchant sent, masked.
    pub kept: Option<String>,
    pub ends: String,
    pub back: Option<String>,
}

#[derive(Debug, Template)]
#[template(path = "checkout/otp.html")]
pub struct OtpPage<'a> {
    pub shell: Shell,
    pub order: Purchase,
    pub action: String,
    pub lead: String,
    pub said: Option<&'a str>,
    pub reference: &'a str,
    pub typed: &'a str,
    pub error: Option<String>,
    pub until: String,
    pub leave: String,
}

#[derive(Debug, Template)]
#[template(path = "checkout/wait.html")]
pub struct WaitPage<'a> {
    pub shell: Shell,
    pub order: Purchase,
    pub action: String,
    pub lead: String,
    pub said: Option<&'a str>,
    pub rescue: &'a str,
    pub reference: &'a str,
    pub slow: bool,
    /// Seconds since the charge last changed.
    pub waited: u64,
    pub leave: String,
}

#[derive(Debug, Template)]
#[template(path = "checkout/result.html")]
pub struct ResultPage {
    pub shell: Shell,
    pub order: Option<Purchase>,
    pub lines: Vec<String>,
    pub facts: Vec<(&'static str, String)>,
    /// What to do next on our own pages: label and address.
    pub next: Option<(&'static str, String)>,
    pub back: Option<ReturnLink>,
}

impl ResultPage {
    /// A page with a single line of text.
    pub fn saying(shell: Shell, line: &str) -> Self {
        Self {
            shell,
            order: None,
            lines: vec![line.to_owned()],
            facts: Vec::new(),
            next: None,
            back: None,
        }
    }
}

/// The page for a request that no session's page can answer. `again`: where trying again may help.
pub fn refusal(text: &'static Text, error: &Error, again: Option<String>) -> Response {
    if let Error::TooManyGuesses {
        retry_after_seconds,
    } = error
    {
        let line = text.too_many_looks(u64::from(*retry_after_seconds).div_ceil(60));
        let shell = Shell::bare(text, text.unavailable_title, "unavailable");
        return respond(error.status(), &ResultPage::saying(shell, &line));
    }
    let (status, title, line, state) = match error {
        Error::NotFound => (
            StatusCode::NOT_FOUND,
            text.unknown_title,
            text.unknown,
            "unknown",
        ),
        Error::CrossSite
        | Error::MethodNotAllowed
        | Error::UnsupportedMediaType
        | Error::PayloadTooLarge
        | Error::RequestTimeout
        | Error::BodyCutOff => (error.status(), text.refused_title, text.refused, "refused"),
        _ => {
            let status = match error {
                error if error.status().is_server_error() => error.status(),
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, text.unavailable_title, text.trouble, "unavailable")
        }
    };
    let page = ResultPage {
        next: again.map(|again| (text.check_now, again)),
        ..ResultPage::saying(Shell::bare(text, title, state), line)
    };
    respond(status, &page)
}
