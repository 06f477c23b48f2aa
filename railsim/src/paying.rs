//! What the rails do with requests to pay somebody, and with credits that are due.
//!
//! Promise: an account is credited at most once per reference. Every decision is made under the
//! book's lock, on the state that it changes.

use chassis::clock::Timestamp;

use crate::{
    book::Pages,
    credit::{
        Credit, CreditRequest, Event, State, Step,
        story::{Failure, Story},
    },
    rail::Rail,
};

/// What becomes of a request to pay.
pub enum Taking {
    Taken(Box<Credit>),
    /// Its reference was used before.
    Again,
    /// There is no such payee.
    NoPayee,
    /// The float does not cover it.
    NoFloat,
    /// It is not executed.
    Unavailable,
    /// It is lost on its way.
    Lost,
}

/// Takes or refuses a request. One that is refused or lost leaves its reference free, as nothing
/// was created.
pub fn take(pages: &mut Pages, request: CreditRequest, now: Timestamp) -> Taking {
    let (rail, reference) = (request.rail, request.reference.clone());
    let known = pages.credits().find(rail, &reference);
    if known.is_some_and(|credit| credit.state != State::Untaken) {
        pages.record_credit(rail, &reference, Event::RequestedAgain);
        return Taking::Again;
    }
    let credit = pages.request_credit(request, now);
    let is_first = credit.requests == 1;
    match credit.story {
        Story::PayeeRefused => Taking::NoPayee,
        Story::Unavailable if is_first => Taking::Unavailable,
        Story::CutBefore if is_first => Taking::Lost,
        _ if is_refused(pages, &credit) => Taking::NoFloat,
        _ => {
            let taken = pages.record_credit(rail, &reference, Event::Taken { at: now });
            Taking::Taken(Box::new(taken))
        }
    }
}

/// Whether a credit is refused at once because of the float. Story 206 is, on a rail that does not
/// look at it again later.
fn is_refused(pages: &Pages, credit: &Credit) -> bool {
    let rail = credit.request.rail;
    let pays = rail.pays();
    if pays.takes_first {
        return !is_covered(pages, credit);
    }
    pays.looks_first && pages.credits().float_minor(rail) < credit.cost()
}

/// Whether the float holds what a credit costs. In story 206 it does not until it was filled.
fn is_covered(pages: &Pages, credit: &Credit) -> bool {
    let rail = credit.request.rail;
    let credits = pages.credits();
    let is_empty = credit.story == Story::FloatEmpty && !credits.was_filled(rail);
    !is_empty && credits.float_minor(rail) >= credit.cost()
}

/// What a query returns: `None` for a reference that was not taken.
pub fn tell(pages: &mut Pages, rail: Rail, reference: &str, now: Timestamp) -> Option<Credit> {
    let credit = pages.credits().find(rail, reference)?;
    if credit.state == State::Untaken {
        return None;
    }
    let told = credit.clone();
    if told.waits_to_be_told() {
        pages.record_credit(rail, reference, Event::Told { at: now });
    }
    Some(told)
}

/// Does what is due by `now`. Returns the credits to call back about.
pub fn play_due(pages: &mut Pages, now: Timestamp) -> Vec<Credit> {
    let mut callbacks = Vec::new();
    while let Some((credit, step)) = pages.credits().first_due(now) {
        let credit = credit.clone();
        let (rail, reference) = (credit.request.rail, &credit.request.reference);
        let event = match step {
            Step::Credit => paid_or_not(pages, &credit, now),
            Step::Fail(Failure::FloatEmpty) => paid_or_not(pages, &credit, now),
            Step::Fail(failure) => Event::Failed { failure, at: now },
            Step::Reverse => Event::Reversed { at: now },
            Step::CallBack => {
                if rail.behaviour().repeats_callbacks {
                    pages.set_calling_credit(rail, reference, true);
                } else {
                    // One that is sent only once is recorded as done before it is sent.
                    pages.record_credit(rail, reference, Event::CalledBack);
                }
                callbacks.push(credit);
                continue;
            }
        };
        pages.record_credit(rail, reference, event);
    }
    callbacks
}

/// A rail that takes nothing at first looks at its float when it pays.
fn paid_or_not(pages: &Pages, credit: &Credit, at: Timestamp) -> Event {
    let looks_now = !credit.request.rail.pays().takes_first;
    if looks_now && !is_covered(pages, credit) {
        let failure = Failure::FloatEmpty;
        return Event::Failed { failure, at };
    }
    paid(credit, at)
}

fn paid(credit: &Credit, at: Timestamp) -> Event {
    let amount_minor = credit.reported().minor_units();
    Event::Credited { amount_minor, at }
}
