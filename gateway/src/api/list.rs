//! What the addresses that list something share: their parameters and the shape of their answers.

use std::{borrow::Cow, collections::BTreeSet, fmt::Display, str::FromStr, time::Duration};

use chassis::{
    clock::Timestamp,
    closed_list::count_unknown,
    error_chain::chain,
    ids::{Reference, SessionId},
    limits::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX},
    page::Place,
    phone::Phone,
    provider::MUST_BE_PROVIDER,
};
use proto::charges::Provider;
use serde::Serialize;
use url::form_urlencoded;

use crate::{
    error::Error,
    field_error::{Fault, FieldCode, FieldError, UNKNOWN_FIELDS_MAX},
};

/// Longest wait for what has not happened yet.
const WAIT_SECONDS_MAX: u32 = 30;

/// A page of a list, newest first. `next_cursor` leads to the next page, however few entries this one
/// has, and is null on the last.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// The only page of a list without entries.
    pub const fn none() -> Self {
        Self {
            data: Vec::new(),
            next_cursor: None,
        }
    }

    /// A page of `list` that a service answered with, whose token is empty on the last. An entry that
    /// this version cannot show, because a newer one has written it, is counted and left out.
    pub fn new<S>(list: &'static str, found: Vec<S>, next_page_token: String) -> Self
    where
        T: TryFrom<S, Error = Error>,
    {
        let shown = found.into_iter().filter_map(|entry| {
            let shown = T::try_from(entry);
            let shown = shown.inspect_err(|error| {
                tracing::error!(list, error = %chain(error), "an entry is left out of the list");
                count_unknown(list);
            });
            shown.ok()
        });
        Self {
            data: shown.collect(),
            next_cursor: Some(next_page_token).filter(|token| !token.is_empty()),
        }
    }
}

/// An address's parameters as they are read, with the errors found so far.
#[derive(Debug)]
pub struct Parameters {
    given: Vec<(String, String)>,
    /// Those that were asked for, given or not.
    known: Vec<&'static str>,
    errors: Vec<FieldError>,
}

impl Parameters {
    /// Reads what follows the question mark.
    pub fn new(query: Option<&str>) -> Self {
        let query = query.unwrap_or_default().as_bytes();
        Self {
            given: form_urlencoded::parse(query).into_owned().collect(),
            known: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Reads a parameter that may be absent, but not given twice.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Option<T> {
        self.known.push(name);
        let mut values = self.given.iter().filter(|(given, _)| given == name);
        let (_, value) = values.next()?;
        let read = match values.next() {
            None => parse(value),
            Some(_) => Err(Fault::new(FieldCode::InvalidFormat, "must be given once")),
        };
        self.kept(name, read)
    }

    /// Reads a part of the address itself, which is always given.
    pub fn read<T>(
        &mut self,
        name: &'static str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Option<T> {
        self.kept(name, parse(text))
    }

    fn kept<T>(&mut self, name: &'static str, read: Result<T, Fault>) -> Option<T> {
        let fault = match read {
            Ok(read) => return Some(read),
            Err(fault) => fault,
        };
        self.refuse(name, fault);
        None
    }

    fn refuse(&mut self, name: &'static str, fault: Fault) {
        self.errors.push(FieldError {
            field: Cow::Borrowed(name),
            code: fault.code,
            message: Cow::Borrowed(fault.message),
        });
    }

    /// How many entries the page may have.
    pub fn limit(&mut self) -> u32 {
        const FAULT: Fault = Fault::new(FieldCode::OutOfRange, "must be from 1 to 100");
        let limit = self.optional("limit", |text| {
            let limit = whole(text).filter(|limit| (1..=PAGE_SIZE_MAX).contains(limit));
            limit.ok_or(FAULT)
        });
        limit.unwrap_or(PAGE_SIZE_DEFAULT)
    }

    /// How long to wait for what the caller asks about, if it is to be waited for.
    pub fn wait(&mut self) -> Option<Duration> {
        const FAULT: Fault = Fault::new(
            FieldCode::OutOfRange,
            "must be from 1 to 30, a whole number of seconds",
        );
        self.optional("wait", |text| {
            whole(text)
                .filter(|seconds| (1..=WAIT_SECONDS_MAX).contains(seconds))
                .map(|seconds| Duration::from_secs(seconds.into()))
                .ok_or(FAULT)
        })
    }

    /// The service's token of the page, empty for the first. `I` identifies what is listed.
    pub fn cursor<I: FromStr + Display>(&mut self) -> String {
        let cursor = self.optional("cursor", |text| match text.parse::<Place<I>>() {
            Ok(place) => Ok(place.to_string()),
            Err(_) => Err(Fault::new(
                FieldCode::InvalidFormat,
                "must be the next_cursor of another page",
            )),
        });
        cursor.unwrap_or_default()
    }

    /// Since when (inclusive) and until before when what is listed was made, as the services read it;
    /// empty where the caller sets no bound.
    pub fn span(&mut self) -> (String, String) {
        const FAULT: Fault = Fault::new(
            FieldCode::InvalidFormat,
            "must be a time such as 2026-01-31T09:00:00Z",
        );
        const BACKWARDS: Fault = Fault::new(FieldCode::OutOfRange, "must not be before from");
        let mut read = |name| {
            self.optional(name, |text| {
                // No time has a space in it: it is a plus that nobody has encoded.
                Timestamp::parse_rfc_3339(&text.replace(' ', "+")).ok_or(FAULT)
            })
        };
        let (from, to) = (read("from"), read("to"));
        if from.zip(to).is_some_and(|(from, to)| to < from) {
            self.refuse("to", BACKWARDS);
        }
        let asked = |at: Option<Timestamp>| at.map_or_else(String::new, |at| at.to_string());
        (asked(from), asked(to))
    }

    /// The reference of a charge.
    pub fn reference(&mut self) -> Option<Reference> {
        const FAULT: Fault = Fault::new(
            FieldCode::InvalidFormat,
            "must be the reference of a charge, TX-…-…",
        );
        self.optional("reference", |text| text.parse().map_err(|_| FAULT))
    }

    pub fn session_id(&mut self) -> Option<SessionId> {
        const FAULT: Fault = Fault::new(FieldCode::InvalidFormat, "must be a session_id");
        self.optional("session_id", |text| text.parse().map_err(|_| FAULT))
    }

    pub fn phone(&mut self) -> Option<Phone> {
        const FAULT: Fault = Fault::new(
            FieldCode::InvalidPhone,
            "must be a Ghana number or an international number that starts with +, which an \
             address writes as %2B",
        );
        self.optional("phone", |text| Phone::parse_any(text).map_err(|_| FAULT))
    }

    pub fn provider(&mut self) -> Option<Provider> {
        const FAULT: Fault = Fault::new(FieldCode::UnknownProvider, MUST_BE_PROVIDER);
        self.optional("provider", |text| Provider::from_code(text).ok_or(FAULT))
    }

    /// A status, by its code in the contract.
    pub fn status<T>(&mut self, from_code: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        const FAULT: Fault = Fault::new(FieldCode::InvalidFormat, "must be one of the statuses");
        self.optional("status", |text| from_code(text).ok_or(FAULT))
    }

    /// Refuses the request if a parameter had a fault or was not asked for: an answer that leaves a
    /// filter out looks like one in which everything has passed it.
    pub fn finish(mut self) -> Result<(), Error> {
        let names = self.given.iter().map(|(name, _)| name.as_str());
        let unknown: BTreeSet<&str> = names.filter(|name| !self.known.contains(name)).collect();
        let message = format!("is none of {}", self.known.join(", "));
        let unknown = unknown.into_iter().take(UNKNOWN_FIELDS_MAX);
        let unknown = unknown.map(|name| FieldError::unknown(name, message.clone()));
        let unknown: Vec<FieldError> = unknown.collect();
        self.errors.extend(unknown);
        self.finish_ignoring_others()
    }

    /// Refuses the request if a parameter had a fault. Others are ignored, like unknown fields of a
    /// body: addresses of the specification have always taken them.
    pub fn finish_ignoring_others(self) -> Result<(), Error> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(Error::Validation(self.errors)),
        }
    }
}

/// A number as it is written everywhere: no sign, no zeros before it.
pub fn whole<T: FromStr + Display>(text: &str) -> Option<T> {
    let number = text.parse().ok();
    number.filter(|number: &T| number.to_string() == text)
}
