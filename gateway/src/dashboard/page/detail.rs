//! A page about one thing.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::{Cell, Live, Pages, Shell, Table, first, heads, respond};
use crate::dashboard::text::{Phrase, Text, filters, moment};

/// A page about one thing: its facts, texts to copy, and what can be done with it.
#[derive(Debug, Template)]
#[template(path = "dashboard/detail.html")]
pub struct DetailPage {
    pub shell: Shell,
    /// Whether something on it has not ended, beside what it is about.
    pub goes_on: bool,
    pub lead: Vec<Phrase>,
    /// Label and value.
    pub facts: Vec<(&'static str, Cell)>,
    pub table: Option<Table>,
    /// Of the table.
    pub pages: Pages,
    /// Oldest first.
    pub moments: Vec<Moment>,
    /// Title and text, as it is.
    pub texts: Vec<(&'static str, String)>,
    pub buttons: Vec<Button>,
    pub links: Vec<(&'static str, String)>,
}

impl DetailPage {
    pub fn new(shell: Shell) -> Self {
        Self {
            shell,
            goes_on: false,
            lead: Vec::new(),
            facts: Vec::new(),
            table: None,
            pages: Pages::default(),
            moments: Vec::new(),
            texts: Vec::new(),
            buttons: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Looks by itself how this goes on, while it waits for something.
    pub fn follow(&mut self, state: &Cell) {
        self.shell.live = Some(Live {
            is_open: state.waits(),
            state: state.text.clone(),
        });
    }

    pub fn respond(mut self, status: StatusCode) -> Response {
        if let Some(live) = &mut self.shell.live {
            live.is_open |= self.goes_on;
        }
        respond(status, self.shell.language, &self)
    }
}

/// A form without fields to fill in.
#[derive(Debug)]
pub struct Button {
    pub label: &'static str,
    pub action: String,
    pub hidden: Vec<(&'static str, String)>,
}

/// Something that has happened.
#[derive(Debug, Default)]
pub struct Moment {
    pub at: String,
    pub phrase: &'static str,
    /// The class of a state's colour and shape; empty if it is none.
    pub state: &'static str,
    /// What was said, in our words.
    pub told: &'static str,
    pub detail: Text,
    /// More of it, each with its name.
    pub named: Vec<(&'static str, Cell)>,
}

impl Moment {
    fn time(&self) -> Text {
        moment(&self.at)
    }
}
