//! Pages that say something, or lead to others.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::{Shell, respond};
use crate::dashboard::text::{Phrase, filters};

/// A page that says something.
#[derive(Debug, Template)]
#[template(path = "dashboard/message.html")]
pub struct MessagePage {
    pub shell: Shell,
    pub lines: Vec<Phrase>,
    /// What to copy: shown in a field of its own.
    pub secrets: Vec<(&'static str, String)>,
    /// Label and address.
    pub next: Option<(&'static str, String)>,
}

impl MessagePage {
    pub fn saying(shell: Shell, line: impl Into<Phrase>) -> Self {
        Self {
            shell,
            lines: vec![line.into()],
            secrets: Vec::new(),
            next: None,
        }
    }

    pub fn next(self, label: &'static str, address: &str) -> Self {
        Self {
            next: Some((label, address.to_owned())),
            ..self
        }
    }

    pub fn respond(self, status: StatusCode) -> Response {
        respond(status, self.shell.language, &self)
    }
}

/// A page that leads to others: label, address, and what is there.
#[derive(Debug, Template)]
#[template(path = "dashboard/links.html")]
pub struct LinksPage {
    pub shell: Shell,
    pub links: Vec<(&'static str, &'static str, &'static str)>,
}
