//! Tables, and what stands in them or beside a label.

use crate::dashboard::text::{Phrase, Text, date, moment};

/// The class of states that end by themselves.
const WAITS: &str = "wait";

/// A cell of a table, or a fact.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub text: Text,
    /// The class of a state's colour and shape.
    pub state: &'static str,
    /// What stands below it, smaller.
    pub detail: Text,
    /// Where it leads.
    pub link: String,
    pub is_amount: bool,
    /// Offers to copy the text.
    pub is_copied: bool,
    /// What tells its link, action or button from the others of the page, for those who do not see
    /// where it stands; without it, what stands beside it does.
    pub about: Text,
    /// What can be done: label and address.
    pub action: Option<(&'static str, String)>,
    /// What can be done at once: label, and the field that says to what.
    pub button: Option<(&'static str, &'static str, String)>,
}

impl Cell {
    pub fn of(text: impl Into<Text>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Text from outside, as it is.
    pub fn text(text: &str) -> Self {
        Self::of(text)
    }

    /// Words of our own.
    pub fn phrase(phrase: impl Into<Phrase>) -> Self {
        Self {
            text: phrase.into().into(),
            ..Self::default()
        }
    }

    pub fn state(phrase: &'static str, state: &'static str) -> Self {
        Self {
            state,
            ..Self::phrase(phrase)
        }
    }

    pub fn amount(text: String) -> Self {
        Self {
            text: text.into(),
            is_amount: true,
            ..Self::default()
        }
    }

    /// An identifier of ours, to be copied.
    pub fn id(text: &str) -> Self {
        Self {
            is_copied: true,
            ..Self::text(text)
        }
    }

    /// A moment that a service named, in GMT.
    pub fn time(at: &str) -> Self {
        Self {
            text: moment(at),
            ..Self::default()
        }
    }

    /// A day that a service named.
    pub fn day(day: &str) -> Self {
        Self {
            text: date(day),
            ..Self::default()
        }
    }

    /// Whether it is a state that ends by itself.
    pub fn waits(&self) -> bool {
        self.state == WAITS
    }

    pub fn detail(self, detail: impl Into<Text>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }

    pub fn about(self, about: impl Into<Text>) -> Self {
        Self {
            about: about.into(),
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

/// A table on a page about something else.
#[derive(Debug)]
pub struct Table {
    pub caption: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

/// What a row is about.
pub fn first(row: &[Cell]) -> Text {
    row.first()
        .map(|cell| cell.text.clone())
        .unwrap_or_default()
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
