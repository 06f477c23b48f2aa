//! The kinds of pages that the dashboard is made of, and what they show.

use askama::Template;
use axum::response::{IntoResponse, Response};
use chassis::clock::Timestamp;
use http::{StatusCode, header::RETRY_AFTER};
use proto::merchants::KycStatus;

use super::text::{ENGLISH, InLanguage, Language, filters};
use crate::{
    error::Error,
    field_error::FieldError,
    pages::{self, assets},
};

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

/// Most rows of a page of a list.
pub const PAGE_ROWS: usize = 50;

/// What every page has.
#[derive(Debug)]
pub struct Shell {
    pub language: &'static Language,
    pub title: &'static str,
    pub section: Section,
    pub who: Option<Who>,
    pub is_error: bool,
    /// What the form that led here has done.
    pub done: Option<&'static str>,
    pub css: &'static str,
    pub js: &'static str,
}

/// Who is logged in.
#[derive(Debug)]
pub struct Who {
    pub merchant: String,
    pub email: String,
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
            done: None,
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

/// A field of a form, with what was typed and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub control: Control,
    pub value: String,
    pub hint: &'static str,
    pub error: Option<String>,
    pub autocomplete: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// An `input` of this type.
    Input(&'static str),
    /// Digits, which may begin with zeros.
    Digits,
    /// Several lines.
    Area,
    /// One of these: value and label.
    Choice(&'static [(&'static str, &'static str)]),
    /// Any of these: value and label. The field's value has those that are chosen, with blanks
    /// between.
    Checks(&'static [(&'static str, &'static str)]),
}

impl Field {
    pub fn new(name: &'static str, label: &'static str, control: Control) -> Self {
        Self {
            name,
            label,
            control,
            value: String::new(),
            hint: "",
            error: None,
            autocomplete: "off",
        }
    }

    pub fn text(name: &'static str, label: &'static str) -> Self {
        Self::new(name, label, Control::Input("text"))
    }

    pub fn email() -> Self {
        Self::new("email", "E-mail address", Control::Input("email")).autocomplete("username")
    }

    pub fn password() -> Self {
        Self::new("password", "Password", Control::Input("password"))
            .autocomplete("current-password")
    }

    pub fn new_password() -> Self {
        Self::new("password", "Password", Control::Input("password"))
            .autocomplete("new-password")
            .hint(
                "At least 12 characters. Three or four words that do not belong together are good.",
            )
    }

    pub fn code() -> Self {
        Self::new("code", "Code", Control::Digits).autocomplete("one-time-code")
    }

    pub fn value(self, value: &str) -> Self {
        Self {
            value: value.to_owned(),
            ..self
        }
    }

    pub fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    pub fn autocomplete(self, autocomplete: &'static str) -> Self {
        Self {
            autocomplete,
            ..self
        }
    }

    pub fn error(self, error: Option<String>) -> Self {
        Self { error, ..self }
    }

    /// Whether this one of its choices is chosen.
    pub fn has(&self, choice: &str) -> bool {
        self.value.split(' ').any(|chosen| chosen == choice)
    }

    /// The attributes that lead from the control to its hint and its error. Nothing in them comes
    /// from outside.
    fn described(&self) -> String {
        let name = self.name;
        match (self.hint.is_empty(), self.error.is_some()) {
            (true, false) => String::new(),
            (false, false) => format!(" aria-describedby=\"{name}-hint\""),
            (true, true) => format!(" aria-describedby=\"{name}-error\" aria-invalid=\"true\""),
            (false, true) => {
                format!(" aria-describedby=\"{name}-hint {name}-error\" aria-invalid=\"true\"")
            }
        }
    }
}

/// A page with one form.
#[derive(Debug, Template)]
#[template(path = "dashboard/form.html")]
pub struct FormPage {
    pub shell: Shell,
    /// What it is about.
    pub lead: Vec<String>,
    /// Why nothing came of the last submission, if no field is to blame.
    pub notice: Option<String>,
    pub action: &'static str,
    pub hidden: Vec<(&'static str, String)>,
    /// What to copy before the form is sent.
    pub secrets: Vec<(&'static str, String)>,
    /// A picture for a phone's camera: the path of its squares, and how many are in a row.
    pub qr: Option<(String, usize)>,
    pub fields: Vec<Field>,
    pub submit: &'static str,
    /// What stands below the form.
    pub table: Option<Table>,
    /// What it does cannot be taken back.
    pub is_grave: bool,
    /// Where else to go: label and address.
    pub links: Vec<(&'static str, &'static str)>,
}

impl FormPage {
    pub fn new(shell: Shell, action: &'static str, submit: &'static str) -> Self {
        Self {
            shell,
            lead: Vec::new(),
            notice: None,
            action,
            hidden: Vec::new(),
            secrets: Vec::new(),
            qr: None,
            fields: Vec::new(),
            submit,
            table: None,
            is_grave: false,
            links: Vec::new(),
        }
    }

    /// The form again, with what is wrong with one field.
    pub fn refuse_field(mut self, name: &str, error: &str) -> Response {
        for field in self.fields.iter_mut().filter(|field| field.name == name) {
            field.error = Some(error.to_owned());
        }
        self.respond(StatusCode::BAD_REQUEST)
    }

    /// The form again, with what is wrong.
    pub fn refuse(mut self, status: StatusCode, notice: Option<String>) -> Response {
        self.notice = notice;
        self.respond(status)
    }

    pub fn respond(mut self, status: StatusCode) -> Response {
        let errors = self.fields.iter().any(|field| field.error.is_some());
        self.shell.is_error = errors || self.notice.is_some();
        respond(status, &self)
    }
}

/// A page that says something.
#[derive(Debug, Template)]
#[template(path = "dashboard/message.html")]
pub struct MessagePage {
    pub shell: Shell,
    pub lines: Vec<String>,
    /// What to copy: shown in a field of its own.
    pub secrets: Vec<(&'static str, String)>,
    /// Label and address.
    pub next: Option<(&'static str, String)>,
}

impl MessagePage {
    pub fn saying(shell: Shell, line: &str) -> Self {
        Self {
            shell,
            lines: vec![line.to_owned()],
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
        respond(status, &self)
    }
}

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
    /// The page that follows.
    pub older: Option<String>,
    /// The page before this one.
    pub newer: Option<String>,
    /// The first page, if it is further away.
    pub newest: Option<String>,
    pub filters: Option<FilterForm>,
    /// Something else that can be asked for, below it all.
    pub below: Option<FilterForm>,
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
    pub notice: Option<String>,
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

    fn uses_more(&self) -> bool {
        let mut more = self.more().iter();
        more.any(|field| !field.value.is_empty() || field.error.is_some())
    }

    /// What is filtered by: the labels of the fields that are filled in, and what is in them.
    pub fn applied(&self) -> Vec<(&'static str, &str)> {
        let filled = self.fields.iter().filter(|field| !field.value.is_empty());
        let shown = filled.map(|field| {
            let label = match field.control {
                Control::Choice(choices) => {
                    let chosen = choices.iter().find(|(value, _)| *value == field.value);
                    chosen.map(|(_, label)| *label)
                }
                _ => None,
            };
            (field.label, label.unwrap_or(&field.value))
        });
        shown.collect()
    }
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
            older: None,
            newer: None,
            newest: None,
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
    fn goes_on(&self) -> bool {
        self.older.is_some() && self.filters.is_some() && self.rows.len() < PAGE_ROWS
    }

    pub fn respond(mut self, status: StatusCode) -> Response {
        let below = self.below.as_ref();
        self.shell.is_error = self.is_refused() || below.is_some_and(FilterForm::is_wrong);
        respond(status, &self)
    }
}

/// The heads of a table's columns, and which have amounts, as its first row tells.
pub fn heads(columns: &[&'static str], rows: &[Vec<Cell>]) -> Vec<(&'static str, bool)> {
    let first = rows.first().map(Vec::as_slice).unwrap_or_default();
    let is_amount = |index: usize| first.get(index).is_some_and(|cell| cell.is_amount);
    let heads = columns.iter().copied().enumerate();
    heads
        .map(|(index, column)| (column, is_amount(index)))
        .collect()
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
    /// Text from outside, as it is.
    pub detail: String,
}

impl Moment {
    fn time(&self) -> String {
        moment(&self.at)
    }
}

/// A cell of a table, or a fact.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Text from outside, as it is.
    pub text: String,
    /// Words of our own, which are translated.
    pub phrase: &'static str,
    /// The class of a state's colour and shape.
    pub state: &'static str,
    /// What stands below it, smaller.
    pub detail: String,
    /// Where it leads.
    pub link: String,
    pub is_amount: bool,
    /// What can be done: label and address.
    pub action: Option<(&'static str, String)>,
    /// What can be done at once: label, and the field that says to what.
    pub button: Option<(&'static str, &'static str, String)>,
}

impl Cell {
    pub fn text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }

    pub fn phrase(phrase: &'static str) -> Self {
        Self {
            phrase,
            ..Self::default()
        }
    }

    pub fn state(phrase: &'static str, state: &'static str) -> Self {
        Self {
            phrase,
            state,
            ..Self::default()
        }
    }

    pub fn amount(text: String) -> Self {
        Self {
            text,
            is_amount: true,
            ..Self::default()
        }
    }

    /// A moment that a service named, in GMT.
    pub fn time(at: &str) -> Self {
        Self {
            text: moment(at),
            ..Self::default()
        }
    }

    pub fn detail(self, detail: &str) -> Self {
        Self {
            detail: detail.to_owned(),
            ..self
        }
    }

    pub fn link(self, link: String) -> Self {
        Self { link, ..self }
    }

    pub fn button(self, label: &'static str, name: &'static str, value: &str) -> Self {
        Self {
            button: Some((label, name, value.to_owned())),
            ..self
        }
    }

    pub fn action(self, label: &'static str, address: &str) -> Self {
        Self {
            action: Some((label, address.to_owned())),
            ..self
        }
    }
}

/// A page about one thing: its facts, texts to copy, and what can be done with it.
#[derive(Debug, Template)]
#[template(path = "dashboard/detail.html")]
pub struct DetailPage {
    pub shell: Shell,
    pub lead: Vec<String>,
    /// Label and value.
    pub facts: Vec<(&'static str, Cell)>,
    pub table: Option<Table>,
    /// Oldest first.
    pub moments: Vec<Moment>,
    /// Title and text, as it is.
    pub texts: Vec<(&'static str, String)>,
    pub buttons: Vec<Button>,
    pub links: Vec<(&'static str, String)>,
}

/// A table on a page about something else.
#[derive(Debug)]
pub struct Table {
    pub caption: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

/// A form without fields to fill in.
#[derive(Debug)]
pub struct Button {
    pub label: &'static str,
    pub action: String,
    pub hidden: Vec<(&'static str, String)>,
}

impl DetailPage {
    pub fn new(shell: Shell) -> Self {
        Self {
            shell,
            lead: Vec::new(),
            facts: Vec::new(),
            table: None,
            moments: Vec::new(),
            texts: Vec::new(),
            buttons: Vec::new(),
            links: Vec::new(),
        }
    }

    pub fn respond(self, status: StatusCode) -> Response {
        respond(status, &self)
    }
}

/// A page that leads to others: label, address, and what is there.
#[derive(Debug, Template)]
#[template(path = "dashboard/links.html")]
pub struct LinksPage {
    pub shell: Shell,
    pub links: Vec<(&'static str, &'static str, &'static str)>,
}

/// A moment that a service named, as people read it: `25 Nov 2026, 18:05:03 GMT`.
pub fn moment(at: &str) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let Ok(parsed) = at.parse::<Timestamp>() else {
        return at.to_owned();
    };
    let at = parsed.datetime();
    let month = usize::from(u8::from(at.month()));
    let month = MONTHS.get(month - 1).copied().unwrap_or_default();
    format!(
        "{} {month} {}, {:02}:{:02}:{:02}\u{a0}GMT",
        at.day(),
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

pub fn respond(status: StatusCode, page: &impl Template) -> Response {
    pages::respond_with(status, page, &InLanguage(&ENGLISH))
}

/// A request that no page of its own can answer.
#[derive(Debug)]
pub struct Refusal(pub Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(error) = self;
        pages::report(&error);
        let (status, title, line) = match &error {
            Error::NotFound | Error::NoWebhookEndpoint => (
                StatusCode::NOT_FOUND,
                "Page not found",
                "There is nothing at this address. Check the link, or start from the overview.",
            ),
            Error::TooManyGuesses { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many tries",
                "There were too many tries from your network. Wait a few minutes and try again.",
            ),
            Error::CrossSite
            | Error::MethodNotAllowed
            | Error::UnsupportedMediaType
            | Error::PayloadTooLarge
            | Error::RequestTimeout
            | Error::BodyCutOff => (
                error.status(),
                "Not accepted",
                "This form did not come from our page, or not whole, so nothing was done. Open the page again and send it from there.",
            ),
            Error::OutcomeUnknown => (
                error.status(),
                "No answer",
                "It is not known whether this was done. Look at the list before you try again.",
            ),
            _ => {
                let status = match error.status() {
                    status if status.is_server_error() => status,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (
                    status,
                    "Not available right now",
                    "Something does not work on our side. Try again in a moment.",
                )
            }
        };
        let page = MessagePage::saying(Shell::outside(title), line).next("Go to the overview", "/");
        let mut response = page.respond(status);
        if let Error::TooManyGuesses {
            retry_after_seconds,
        } = error
        {
            response
                .headers_mut()
                .insert(RETRY_AFTER, retry_after_seconds.into());
        }
        response
    }
}

/// Puts what a service said about fields beside these. Returns what is about none of them.
pub fn blame(fields: &mut [Field], faults: &[FieldError]) -> Option<String> {
    let mut left = None;
    for fault in faults {
        let field = fields.iter_mut().find(|field| field.name == fault.field);
        let text = match &field {
            Some(field) => format!("{} {}", field.label, fault.message),
            None => format!("{} {}", fault.field, fault.message),
        };
        match field {
            Some(field) => field.error = Some(text),
            None => left = Some(text),
        }
    }
    left
}

/// A state as people read it: a word and the class of its colour and shape.
pub fn kyc_word(status: KycStatus) -> (&'static str, &'static str) {
    match status {
        KycStatus::Unspecified => ("Not sent", "idle"),
        KycStatus::Pending => ("Waiting for review", "wait"),
        KycStatus::InReview => ("In review", "wait"),
        KycStatus::Approved => ("Approved", "good"),
        KycStatus::Rejected => ("Sent back", "bad"),
        KycStatus::Expired => ("Expired", "bad"),
    }
}
