//! A page with a form.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::{Shell, Table, first, heads, respond};
use crate::{
    dashboard::text::{Phrase, Text, filters, phrase},
    field_error::FieldError,
};

/// A page with one form.
#[derive(Debug, Template)]
#[template(path = "dashboard/form.html")]
pub struct FormPage {
    pub shell: Shell,
    /// What it is about.
    pub lead: Vec<Phrase>,
    /// Why nothing came of the last submission, if no field is to blame.
    pub notice: Option<Phrase>,
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

    /// Puts into each field what this says for its name.
    pub fn filled(mut self, value: impl Fn(&str) -> String) -> Self {
        for field in &mut self.fields {
            field.value = value(field.name);
        }
        self
    }

    /// The form again, with what is wrong with one field.
    pub fn refuse_field(mut self, name: &str, error: impl Into<Phrase>) -> Response {
        if let Some(field) = self.fields.iter_mut().find(|field| field.name == name) {
            field.error = Some(error.into());
        }
        self.respond(StatusCode::BAD_REQUEST)
    }

    /// The form again, with what is wrong.
    pub fn refuse(mut self, status: StatusCode, notice: Option<Phrase>) -> Response {
        self.notice = notice;
        self.respond(status)
    }

    pub fn respond(mut self, status: StatusCode) -> Response {
        let errors = self.fields.iter().any(|field| field.error.is_some());
        self.shell.is_error = errors || self.notice.is_some();
        respond(status, self.shell.language, &self)
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
    pub error: Option<Phrase>,
    pub autocomplete: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// An `input` of this type.
    Input(&'static str),
    /// Digits, which may begin with zeros and have blanks between.
    Digits,
    /// A code that may have letters.
    Code,
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

    /// A code of an authenticator, or one for its recovery, which has letters.
    pub fn code() -> Self {
        Self::new("code", "Code", Control::Code).autocomplete("one-time-code")
    }

    /// A code of an authenticator alone.
    pub fn totp() -> Self {
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

    pub fn error(self, error: Option<Phrase>) -> Self {
        Self { error, ..self }
    }

    /// Whether this one of its choices is chosen.
    pub fn has(&self, choice: &str) -> bool {
        self.value.split(' ').any(|chosen| chosen == choice)
    }

    /// What is in it, in the words that it offers.
    fn told(&self) -> Text {
        match self.control {
            Control::Choice(choices) => {
                let mut choices = choices.iter();
                let chosen = choices.find(|(value, _)| *value == self.value);
                chosen.map_or_else(
                    || (&self.value).into(),
                    |(_, label)| Phrase::from(*label).into(),
                )
            }
            _ => (&self.value).into(),
        }
    }

    /// The attributes that lead from the control to its hint and its error. Nothing in them comes
    /// from outside.
    pub(super) fn described(&self) -> String {
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

/// The labels of the fields that are filled in, and what is in them.
pub fn told(fields: &[Field]) -> Vec<(&'static str, Text)> {
    let filled = fields.iter().filter(|field| !field.value.is_empty());
    filled.map(|field| (field.label, field.told())).collect()
}

/// Puts what a service said about fields beside these. Returns what is about none of them.
pub fn blame(fields: &mut [Field], faults: &[FieldError]) -> Option<Phrase> {
    let mut left = None;
    for fault in faults {
        let field = fields.iter_mut().find(|field| field.name == fault.field);
        // It continues the field's name.
        let message = Phrase::of_a_service(fault.message.clone());
        match field {
            Some(field) => {
                let label = Phrase::from(field.label);
                field.error = Some(phrase!("{0} {1}", label, message));
            }
            None => left = Some(phrase!("{0} {1}", &*fault.field, message)),
        }
    }
    left
}
