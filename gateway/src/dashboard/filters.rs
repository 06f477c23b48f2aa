//! The filters of a list, and the place in it.
//!
//! Both live in the address alone, so that a page can be kept, sent to somebody, and gone back to.
//! Wrong ones are told beside their fields, and nothing is listed then: a list that leaves a filter
//! out looks like one in which everything has passed it.

use std::fmt::Display;
use std::str::FromStr;

use axum::response::Response;
use chassis::{clock::Day, money::Money, page::Place};
use http::StatusCode;
use proto::charges::Provider;
use url::form_urlencoded;

use super::{
    enter::parameter,
    money_out::parse_amount,
    networks,
    page::{Cell, Control, Field, FilterForm, PAGE_ROWS, Pages, Refusal, TablePage, blame},
    text::Phrase,
};
use crate::error::Error;

/// How many entries a page asks for.
pub const PAGE_SIZE: u32 = PAGE_ROWS as u32;

/// The parameter that says where a page begins.
const AFTER: &str = "after";

/// The parameter that says where the pages before it begin, newest first, with blanks between. The
/// first page is not among them.
const PASSED: &str = "passed";

/// What is said of an address whose place is none.
pub const NOT_WHOLE: &str = "This address is not whole. Start from the newest.";

/// How many of them are remembered. Whoever goes back further begins with the newest.
const PASSED_MAX: usize = 20;

/// A page of a list as a service has answered it.
#[derive(Debug)]
pub struct Listed<R> {
    pub rows: Vec<R>,
    /// Empty on the last page.
    pub next_page_token: String,
}

impl<R> Listed<R> {
    /// The only page of a list without entries.
    pub const fn none() -> Self {
        Self {
            rows: Vec::new(),
            next_page_token: String::new(),
        }
    }
}

/// A list's filters as they are read from its address.
#[derive(Debug)]
pub struct Filters<'q> {
    query: Option<&'q str>,
    path: &'q str,
    fields: Vec<Field>,
    notice: Option<Phrase>,
    after: String,
    passed: Vec<String>,
}

impl<'q> Filters<'q> {
    /// Reads the query of the list at `path`.
    pub fn new(path: &'q str, query: Option<&'q str>) -> Self {
        Self {
            query,
            path,
            fields: Vec::new(),
            notice: None,
            after: String::new(),
            passed: Vec::new(),
        }
    }

    /// Reads what was typed into a field. An empty one filters nothing.
    pub fn read<T, E: Into<Phrase>>(
        &mut self,
        field: Field,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let typed = parameter(self.query, field.name);
        let typed = typed.trim();
        let read = match typed {
            "" => Ok(None),
            typed => parse(typed).map(Some),
        };
        let (read, error) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(error.into())),
        };
        self.fields.push(field.value(typed).error(error));
        read
    }

    /// One of a closed list, by its code.
    pub fn choice<T>(
        &mut self,
        name: &'static str,
        label: &'static str,
        choices: &'static [(&'static str, &'static str)],
        from_code: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let field = Field::new(name, label, Control::Choice(choices));
        self.read(field, |code| {
            from_code(code).ok_or("Choose one from the list.")
        })
    }

    pub fn network(&mut self) -> Option<Provider> {
        self.choice(
            "network",
            "Network",
            &networks::WITH_ANY,
            Provider::from_code,
        )
    }

    /// Since when and until before when what is listed was made, as the services read it; empty where
    /// there is no bound. People name the last day that they still want.
    pub fn days(&mut self) -> (String, String) {
        let mut day = |name, label| {
            let field = Field::new(name, label, Control::Input("date"));
            self.read(field, |text| {
                let day = text.parse::<Day>();
                day.map_err(|_| "Give a day such as 2026-11-24.")
            })
        };
        let (from, to) = (day("from", "From"), day("to", "Until"));
        if from.zip(to).is_some_and(|(from, to)| to < from)
            && let Some(field) = self.fields.last_mut()
        {
            field.error = Some("The last day must not be before the first.".into());
        }
        let from = from.map(|day| format!("{day}T00:00:00.000Z"));
        let to = to.map(|day| day.end().to_string());
        (from.unwrap_or_default(), to.unwrap_or_default())
    }

    /// From what amount and up to which, both included.
    pub fn amounts(&mut self) -> [Option<Money>; 2] {
        let mut amount = |name, label| self.read(Field::text(name, label), parse_amount);
        let amounts = [
            amount("amount_from", "GHS at least"),
            amount("amount_to", "GHS at most"),
        ];
        if let [Some(least), Some(most)] = amounts
            && most.minor_units() < least.minor_units()
            && let Some(field) = self.fields.last_mut()
        {
            field.error = Some("It must not be less than the least.".into());
        }
        amounts
    }

    /// The service's token of the page, empty for the first. `I` identifies what is listed.
    pub fn after<I: FromStr + Display>(&mut self) -> String {
        let after = parameter(self.query, AFTER);
        let passed = parameter(self.query, PASSED);
        let passed: Vec<&str> = passed.split_whitespace().collect();
        let is_place = |token: &str| token.parse::<Place<I>>().is_ok();
        let is_whole = match after.as_str() {
            "" => passed.is_empty(),
            after => is_place(after) && passed.iter().all(|token| is_place(token)),
        };
        if !is_whole || passed.len() > PASSED_MAX {
            self.notice = Some(NOT_WHOLE.into());
            return String::new();
        }
        self.after.clone_from(&after);
        self.passed = passed.into_iter().map(str::to_owned).collect();
        after
    }

    pub fn is_wrong(&self) -> bool {
        self.notice.is_some() || self.fields.iter().any(|field| field.error.is_some())
    }

    /// This list from its newest entry on, filtered the same.
    pub fn newest(&self) -> String {
        self.address(self.path, "", &[])
    }

    /// The page that this one was reached from, if this is not the first.
    fn newer(&self) -> Option<String> {
        match self.passed.split_last() {
            _ if self.after.is_empty() => None,
            Some((newer, passed)) => Some(self.address(self.path, newer, passed)),
            None => Some(self.newest()),
        }
    }

    /// The page that begins at a service's token.
    fn older(&self, token: &str) -> String {
        let mut passed = self.passed.clone();
        if !self.after.is_empty() {
            passed.push(self.after.clone());
        }
        let forgotten = passed.len().saturating_sub(PASSED_MAX);
        self.address(
            self.path,
            token,
            passed.get(forgotten..).unwrap_or_default(),
        )
    }

    /// The ways from this page, after which the service's token leads on. From one that cannot be
    /// shown, to the first.
    pub fn pages(&self, next_page_token: &str) -> Pages {
        Pages {
            older: (!next_page_token.is_empty()).then(|| self.older(next_page_token)),
            newer: self.newer(),
            newest: (!self.passed.is_empty() || self.notice.is_some()).then(|| self.newest()),
        }
    }

    /// This list, filtered the same, at a path and from a place on.
    fn address(&self, path: &str, after: &str, passed: &[String]) -> String {
        let filled = self.fields.iter().filter(|field| !field.value.is_empty());
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(filled.map(|field| (field.name, &field.value)));
        if !after.is_empty() {
            query.append_pair(AFTER, after);
        }
        if !passed.is_empty() {
            query.append_pair(PASSED, &passed.join(" "));
        }
        match query.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    /// Answers with the page of the list, or with what is wrong in its filters. `export` is where the
    /// list is a file, or empty.
    pub async fn list(
        mut self,
        mut page: TablePage,
        export: &str,
        listing: impl Future<Output = Result<Listed<Vec<Cell>>, Error>>,
    ) -> Result<Response, Refusal> {
        let mut next_page_token = String::new();
        if !self.is_wrong() {
            match listing.await {
                Ok(listed) => {
                    page.rows = listed.rows;
                    next_page_token = listed.next_page_token;
                }
                Err(Error::Validation(faults)) => {
                    self.notice = blame(&mut self.fields, &faults);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let status = match self.is_wrong() {
            true => StatusCode::BAD_REQUEST,
            false => StatusCode::OK,
        };
        page.pages = self.pages(&next_page_token);
        let export = match export {
            "" => String::new(),
            path => self.address(path, "", &[]),
        };
        page.filters = Some(FilterForm {
            action: self.path.to_owned(),
            submit: "Filter",
            fields: self.fields,
            notice: self.notice,
            export,
        });
        Ok(page.respond(status))
    }
}

#[cfg(test)]
mod tests {
    use chassis::ids::ChargeId;

    use super::*;

    #[test]
    fn the_last_day_is_still_listed() {
        let mut filters = Filters::new("/x", Some("from=2026-11-24&to=2026-11-24"));
        let (from, to) = filters.days();
        assert_eq!(from, "2026-11-24T00:00:00.000Z");
        assert_eq!(to, "2026-11-25T00:00:00.000Z");
        assert!(!filters.is_wrong());
        let kept = filters.address("/x.csv", "", &[]);
        assert_eq!(kept, "/x.csv?from=2026-11-24&to=2026-11-24");
    }

    #[test]
    fn what_is_empty_filters_nothing_and_what_is_wrong_is_told() {
        for (query, is_wrong) in [
            ("", false),
            ("from=&to=&network=&after=", false),
            ("network=MTN&other=1", false),
            ("network=mtn", true),
            ("from=2026-13-01", true),
            ("from=24.11.2026", true),
            ("from=2026-11-24&to=2026-11-23", true),
            ("after=1", true),
            ("after=1.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e", false),
            ("passed=1.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e", true),
            ("amount_from=1,250.00&amount_to=1250", false),
            ("amount_from=25,50", true),
            ("amount_from=2&amount_to=1", true),
        ] {
            let mut filters = Filters::new("/x", Some(query));
            filters.days();
            filters.network();
            filters.amounts();
            filters.after::<ChargeId>();
            assert_eq!(filters.is_wrong(), is_wrong, "{query}");
        }
    }

    #[test]
    fn whoever_goes_on_can_go_back_page_by_page() {
        let token = |at: usize| format!("{at}.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e");
        let mut address = "/x?network=MTN".to_owned();
        let mut walked = Vec::new();
        for page in 0..PASSED_MAX + 3 {
            let query = address.split_once('?').map(|(_, query)| query.to_owned());
            let mut filters = Filters::new("/x", query.as_deref());
            filters.network();
            filters.after::<ChargeId>();
            assert!(!filters.is_wrong(), "{address}");
            let newer = filters.newer();
            match (page, walked.last()) {
                (0, _) => assert_eq!(newer, None),
                // The oldest are forgotten, so these lead to the same page in another way.
                (page, Some(before)) if page <= PASSED_MAX + 1 => {
                    assert_eq!(newer.as_ref(), Some(before));
                }
                _ => assert!(
                    newer
                        .unwrap()
                        .contains(&format!("after={}", token(page - 1)))
                ),
            }
            let older = filters.older(&token(page + 1));
            walked.push(address);
            address = older;
        }
    }
}
