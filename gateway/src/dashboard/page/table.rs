//! A page with a list: its table, the filters above it, and the ways to older and newer entries.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::{Cell, Control, Field, Shell, first, heads, respond, told};
use crate::dashboard::text::{Phrase, Text, filters};

/// Most rows of a page of a list.
pub const PAGE_ROWS: usize = 50;

/// A page with a table, newest first.
#[derive(Debug, Template)]
#[template(path = "dashboard/table.html")]
pub struct TablePage {
    pub shell: Shell,
    pub lead: Vec<&'static str>,
    /// What stands above the table: label and value.
    pub facts: Vec<(&'static str, Cell)>,
    /// What makes another row: label and address.
    pub button: Option<(&'static str, String)>,
    /// The table's name, if it is not the page's.
    pub caption: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
    /// Where the buttons of rows send.
    pub row_action: &'static str,
    /// A button for all rows, which sends there, too.
    pub all_action: Option<&'static str>,
    /// What to say, and to do next, if there is no row.
    pub empty: &'static str,
    pub pages: Pages,
    pub filters: Option<FilterForm>,
    /// Something else that can be asked for, below it all.
    pub below: Option<FilterForm>,
}

impl TablePage {
    pub fn new(shell: Shell, columns: &[&'static str]) -> Self {
        Self {
            shell,
            lead: Vec::new(),
            facts: Vec::new(),
            button: None,
            caption: "",
            columns: columns.to_vec(),
            rows: Vec::new(),
            row_action: "",
            all_action: None,
            empty: "",
            pages: Pages::default(),
            filters: None,
            below: None,
        }
    }

    /// The filters are wrong, so that nothing was looked for.
    fn is_refused(&self) -> bool {
        self.filters.as_ref().is_some_and(FilterForm::is_wrong)
    }

    fn is_filtered(&self) -> bool {
        let filters = self.filters.as_ref();
        filters.is_some_and(|filters| !filters.applied().is_empty())
    }

    /// The services stopped looking before the page was full.
    fn is_cut_short(&self) -> bool {
        self.pages.older.is_some() && self.filters.is_some() && self.rows.len() < PAGE_ROWS
    }

    pub fn respond(mut self, status: StatusCode) -> Response {
        let below = self.below.as_ref();
        self.shell.is_error = self.is_refused() || below.is_some_and(FilterForm::is_wrong);
        respond(status, self.shell.language, &self)
    }
}

/// The ways to a list's other pages.
#[derive(Debug, Default)]
pub struct Pages {
    /// The page that follows.
    pub older: Option<String>,
    /// The page before this one.
    pub newer: Option<String>,
    /// The first page, if it is further away.
    pub newest: Option<String>,
}

/// How many of many filters are shown before anybody asks for more, so that a phone shows what is
/// listed, too.
const FIRST_FILTERS: usize = 3;

/// As many are shown at once.
const FEW_FILTERS: usize = 4;

/// The filters above a table.
#[derive(Debug)]
pub struct FilterForm {
    /// The list's own address.
    pub action: String,
    pub submit: &'static str,
    pub fields: Vec<Field>,
    /// What is wrong, if no field is to blame.
    pub notice: Option<Phrase>,
    /// Where the same list is a file; empty if nowhere.
    pub export: String,
}

impl FilterForm {
    pub fn is_wrong(&self) -> bool {
        self.notice.is_some() || self.fields.iter().any(|field| field.error.is_some())
    }

    fn first(&self) -> &[Field] {
        self.halves().0
    }

    fn more(&self) -> &[Field] {
        self.halves().1
    }

    fn halves(&self) -> (&[Field], &[Field]) {
        let shown = match self.fields.len() {
            all @ ..=FEW_FILTERS => all,
            _ => FIRST_FILTERS,
        };
        self.fields.split_at(shown)
    }

    /// Whether others than the first are used, which is all that a phone shows beside what it lists.
    fn uses_more(&self) -> bool {
        let mut others = self.fields.iter().skip(1);
        others.any(|field| !field.value.is_empty() || field.error.is_some())
    }

    /// What is filtered by: the labels of the fields that are filled in, and what is in them.
    pub fn applied(&self) -> Vec<(&'static str, Text)> {
        told(&self.fields)
    }
}
