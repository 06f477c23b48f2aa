//! Pages of lists that are ordered by time and id, newest first. A page begins after a place of the
//! list, so what is added meanwhile neither repeats an entry nor skips one.

use std::{borrow::Cow, fmt, str::FromStr};

use crate::{
    clock::Timestamp,
    limits::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX},
};

/// The place of an entry in its list. Prints as the token that leads to what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<I> {
    pub at: Timestamp,
    pub id: I,
}

/// The text is not a place in the only form that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place in a list")]
pub struct PlaceError;

impl<I: fmt::Display> fmt::Display for Place<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.unix_millis(), self.id)
    }
}

impl<I: FromStr + fmt::Display> FromStr for Place<I> {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let parse = || {
            let (millis, id) = text.split_once('.')?;
            let at = Timestamp::from_unix_millis(millis.parse().ok()?).ok()?;
            let id = id.parse().ok()?;
            Some(Self { at, id }).filter(|place| at.is_recordable() && place.to_string() == text)
        };
        parse().ok_or(PlaceError)
    }
}

impl<I> Place<I> {
    /// The same place, with its id as the store orders it.
    pub fn map<J>(self, id: impl FnOnce(I) -> J) -> Place<J> {
        Place {
            at: self.at,
            id: id(self.id),
        }
    }
}

/// A part of a list: from a place on, which is the older end, and before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<I> {
    pub from: Place<I>,
    pub before: Place<I>,
}

/// A page as a caller asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<I> {
    pub span: Span<I>,
    /// Most entries of the page.
    pub size: u32,
}

impl<I> PageRequest<I> {
    /// The same page, but no older than where the search for it stops.
    pub fn down_to(mut self, stops_at: Option<Place<I>>) -> Self {
        if let Some(place) = stops_at {
            self.span.from = place;
        }
        self
    }
}

/// What is wrong with a request for a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct PageFault {
    pub field: &'static str,
    pub message: Cow<'static, str>,
}

/// A page as it is asked for between the services: the size (0: the default), the token of the page
/// before, and since when and until before when its entries were made. Empty texts are absent.
#[derive(Clone, Copy, Debug)]
pub struct PageAsked<'a> {
    pub size: u32,
    pub token: &'a str,
    pub from: &'a str,
    pub to: &'a str,
}

/// What is said of a token that is none of ours.
pub const TOKEN_FAULT: &str = "must be a token from the previous answer";

/// How many entries a page may have that is asked for like this (0: the default).
pub fn size(asked: u32) -> Result<u32, PageFault> {
    match asked {
        0 => Ok(PAGE_SIZE_DEFAULT),
        size @ 1..=PAGE_SIZE_MAX => Ok(size),
        _ => {
            let message = format!("must be at most {PAGE_SIZE_MAX}");
            Err(fault("page_size", message))
        }
    }
}

impl PageAsked<'_> {
    /// `id`: how the store orders the tokens' ids. Nothing is ordered before `J::default()`.
    pub fn parse<I, J>(self, id: impl FnOnce(I) -> J) -> Result<PageRequest<J>, PageFault>
    where
        I: FromStr + fmt::Display,
        J: Default,
    {
        let size = size(self.size)?;
        let from = time("from", self.from)?.unwrap_or(Timestamp::EPOCH);
        let to = time("to", self.to)?.unwrap_or(Timestamp::END);
        let after: Option<Place<I>> = match self.token {
            "" => None,
            token => Some(
                token
                    .parse()
                    .map_err(|_| fault("page_token", TOKEN_FAULT))?,
            ),
        };
        let start_of = |at| Place {
            at,
            id: J::default(),
        };
        let before = match after {
            Some(after) if after.at < to => after.map(id),
            Some(_) | None => start_of(to),
        };
        let from = start_of(from);
        Ok(PageRequest {
            span: Span { from, before },
            size,
        })
    }
}

fn time(field: &'static str, text: &str) -> Result<Option<Timestamp>, PageFault> {
    match text {
        "" => Ok(None),
        text => match text.parse::<Timestamp>() {
            Ok(at) if at.is_recordable() => Ok(Some(at)),
            Ok(_) | Err(_) => Err(fault(field, "must be a time from 1970 on")),
        },
    }
}

fn fault(field: &'static str, message: impl Into<Cow<'static, str>>) -> PageFault {
    PageFault {
        field,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ChargeId, CustomerId};

    fn asked<'a>(token: &'a str, from: &'a str, to: &'a str) -> PageAsked<'a> {
        PageAsked {
            size: 0,
            token,
            from,
            to,
        }
    }

    #[test]
    fn a_place_parses_only_as_it_is_printed() {
        let at = Timestamp::from_unix_millis(1_700_000_000_007).unwrap();
        let (id, customer) = (ChargeId::new(), CustomerId::new());
        let place = Place { at, id };
        assert_eq!(place.to_string().parse(), Ok(place));
        let place = Place { at, id: customer };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in [
            String::new(),
            "7".to_owned(),
            format!("7.{id}x"),
            format!("+7.{id}"),
            format!("07.{id}"),
            format!("-7.{id}"),
            format!("253402300800000.{id}"),
            format!("7.{}", id.to_string().to_uppercase()),
        ] {
            assert_eq!(text.parse::<Place<ChargeId>>(), Err(PlaceError), "{text}");
        }
    }

    #[test]
    fn a_page_is_within_its_times_and_after_its_token() {
        let (day, later) = ("2026-01-31T00:00:00.000Z", "2026-02-01T00:00:00.000Z");
        let place = |text: &str, id: ChargeId| Place {
            at: text.parse().unwrap(),
            id: id.uuid(),
        };
        let start = |text| place(text, uuid::Uuid::nil().into());
        let parse = |token, from, to| asked(token, from, to).parse(ChargeId::uuid).unwrap().span;
        assert_eq!(parse("", day, later).from, start(day));
        assert_eq!(parse("", day, later).before, start(later));
        let id = ChargeId::new();
        let token = Place {
            at: day.parse().unwrap(),
            id,
        };
        let token = token.to_string();
        assert_eq!(parse(&token, "", later).before, place(day, id));
        assert_eq!(parse(&token, "", day).before, start(day));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |asked: PageAsked<'_>| asked.parse(ChargeId::uuid).unwrap_err().field;
        assert_eq!(refused(asked("x", "", "")), "page_token");
        assert_eq!(refused(asked("", "yesterday", "")), "from");
        assert_eq!(refused(asked("", "", "1969-12-31T23:59:59.999Z")), "to");
        let large = PageAsked {
            size: PAGE_SIZE_MAX + 1,
            ..asked("", "", "")
        };
        assert_eq!(refused(large), "page_size");
    }
}
