//! What stands in a table or beside a label.

use chassis::clock::Timestamp;

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
