//! The kinds of pages that the dashboard is made of, each in a file of its own, and the frame that
//! all of them have.

mod cell;
mod detail;
mod form;
mod message;
mod refusal;
mod table;

use askama::Template;
use axum::response::Response;
use http::StatusCode;

pub use self::{
    cell::{Cell, Table, first, heads},
    detail::{Button, DetailPage, Moment},
    form::{Control, Field, FormPage, blame, told},
    message::{LinksPage, MessagePage},
    refusal::Refusal,
    table::{FilterForm, PAGE_ROWS, Pages, TablePage},
};
use super::{
    help::Help,
    text::{ENGLISH, InLanguage, Language, Text},
};
use crate::pages::{self, assets};

/// Which part of the navigation a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Home,
    Payments,
    Customers,
    Balance,
    Payouts,
    Integrations,
    Settings,
    /// For those who are not logged in.
    Outside,
}

/// The navigation, in its order.
const SECTIONS: [(Section, &str, &str); 7] = [
    (Section::Home, "Overview", "/"),
    (Section::Payments, "Payments", "/payments"),
    (Section::Customers, "Customers", "/customers"),
    (Section::Balance, "Balance", "/balance"),
    (Section::Payouts, "Payouts", "/payouts"),
    (
        Section::Integrations,
        "Integrations",
        "/settings/integrations",
    ),
    (Section::Settings, "Settings", "/settings"),
];

/// What every page has.
#[derive(Debug)]
pub struct Shell {
    pub language: &'static Language,
    pub title: &'static str,
    pub section: Section,
    pub who: Option<Who>,
    pub is_error: bool,
    /// What goes on while the page shows it.
    pub live: Option<Live>,
    /// What the form that led here has done.
    pub done: Option<&'static str>,
    pub help: Help,
    pub css: &'static str,
    pub js: &'static str,
}

/// How something stands that a page shows. While it may change, the page looks by itself.
#[derive(Debug)]
pub struct Live {
    pub is_open: bool,
    pub state: Text,
}

/// Who is logged in.
#[derive(Debug)]
pub struct Who {
    pub person_id: String,
    pub merchant: String,
    pub email: String,
    /// Networks and money are simulated.
    pub is_test: bool,
}

impl Shell {
    /// A page for those who are not logged in.
    pub fn outside(title: &'static str) -> Self {
        Self {
            language: &ENGLISH,
            title,
            section: Section::Outside,
            who: None,
            is_error: false,
            live: None,
            done: None,
            help: Help::now(),
            css: &assets::DASHBOARD.css.path,
            js: &assets::DASHBOARD.js.path,
        }
    }

    pub fn inside(who: Who, section: Section, title: &'static str) -> Self {
        Self {
            section,
            who: Some(who),
            ..Self::outside(title)
        }
    }

    pub fn done(self, done: Option<&'static str>) -> Self {
        Self { done, ..self }
    }

    /// The navigation: name, address, and whether it is this page's.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        SECTIONS
            .map(|(section, name, path)| (name, path, section == self.section))
            .into_iter()
    }
}

pub fn respond(status: StatusCode, language: &'static Language, page: &impl Template) -> Response {
    pages::respond_with(status, page, &InLanguage(language))
}
