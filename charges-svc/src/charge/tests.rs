//! The state machine against a model of its own: a plain table of what is allowed.

use std::time::Duration;

use chassis::{
    charge_status::ChargeStatus,
    failure::FailureReason,
    ids::MerchantId,
    money::{Currency, Money},
    provider::Provider,
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::asked_by::AskedBy;

const REASONS: [FailureReason; 3] = [
    FailureReason::PayerDeclined,
    FailureReason::RailUnavailable,
    FailureReason::OtpExpired,
];

/// From, event, to. Everything else is illegal.
const LEGAL: [(&str, &str, &str); 22] = [
    ("SUBMITTING", "withdrawn", "VOID"),
    ("SUBMITTING", "accepted", "INITIATED"),
    ("SUBMITTING", "approved", "INITIATED"),
    ("SUBMITTING", "unanswered", "INITIATED"),
    ("SUBMITTING", "already known", "INITIATED"),
    ("SUBMITTING", "code wanted", "OTP_REQUIRED"),
    ("SUBMITTING", "settled", "SETTLED"),
    ("SUBMITTING", "failed", "FAILED"),
    ("INITIATED", "code wanted", "OTP_REQUIRED"),
    ("INITIATED", "settled", "SETTLED"),
    ("INITIATED", "failed", "FAILED"),
    ("OTP_REQUIRED", "code sent", "OTP_SUBMITTING"),
    ("OTP_REQUIRED", "accepted", "INITIATED"),
    ("OTP_REQUIRED", "settled", "SETTLED"),
    ("OTP_REQUIRED", "failed", "FAILED"),
    ("OTP_SUBMITTING", "accepted", "INITIATED"),
    ("OTP_SUBMITTING", "approved", "INITIATED"),
    ("OTP_SUBMITTING", "code wanted", "OTP_REQUIRED"),
    ("OTP_SUBMITTING", "code wrong", "OTP_REQUIRED"),
    ("OTP_SUBMITTING", "code not sent", "OTP_REQUIRED"),
    ("OTP_SUBMITTING", "settled", "SETTLED"),
    ("OTP_SUBMITTING", "failed", "FAILED"),
];

/// The table, with the one rule that it cannot express: the third try is the last, and ends the
/// charge if the rail calls it wrong.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    state: &'static str,
    tries: i64,
    reason: Option<&'static str>,
}

impl Model {
    fn step(&self, event: Event) -> Option<Self> {
        let name = name(event);
        let (_, _, to) = LEGAL
            .iter()
            .find(|(from, on, _)| *from == self.state && *on == name)?;
        let mut next = Self {
            state: to,
            ..self.clone()
        };
        match event {
            Event::CodeSent => next.tries += 1,
            Event::CodeNotSent => next.tries -= 1,
            Event::Failed(reason) => next.reason = Some(reason.code()),
            Event::CodeWrong if self.tries == 3 => {
                (next.state, next.reason) = ("FAILED", Some("OTP_ATTEMPTS_EXCEEDED"));
            }
            Event::CodeWanted if self.tries == 3 => return None,
            _ => {}
        }
        Some(next)
    }
}

fn name(event: Event) -> &'static str {
    match event {
        Event::Withdrawn => "withdrawn",
        Event::Accepted => "accepted",
        Event::Approved => "approved",
        Event::Unanswered => "unanswered",
        Event::AlreadyKnown => "already known",
        Event::CodeWanted => "code wanted",
        Event::CodeSent => "code sent",
        Event::CodeWrong => "code wrong",
        Event::CodeNotSent => "code not sent",
        Event::Settled => "settled",
        Event::Failed(_) => "failed",
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Withdrawn),
        4 => Just(Event::Accepted),
        1 => Just(Event::Approved),
        2 => Just(Event::Unanswered),
        1 => Just(Event::AlreadyKnown),
        6 => Just(Event::CodeWanted),
        8 => Just(Event::CodeSent),
        6 => Just(Event::CodeWrong),
        2 => Just(Event::CodeNotSent),
        1 => Just(Event::Settled),
        1 => select(&REASONS[..]).prop_map(Event::Failed),
    ]
}

/// Events, each with the seconds since the one before it.
fn any_history() -> impl Strategy<Value = Vec<(Event, u64)>> {
    vec((any_event(), 0..2_000_u64), 0..60)
}

const SCHEDULE: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(60)];

pub fn timing() -> Timing<'static> {
    Timing {
        schedule: &SCHEDULE,
        approval_window: Duration::from_secs(300),
        otp_lifetime: Duration::from_secs(600),
        resend_within: Some(Duration::from_secs(90)),
    }
}

/// A fresh charge of GHS 25.50.
pub fn charge() -> Charge {
    let new = NewCharge {
        merchant_id: MerchantId::new(),
        merchant_name: "Kofi's".to_owned(),
        amount: Money::new(2550, Currency::GHS),
        phone: "+233241234567".parse().expect("a phone number"),
        provider: Provider::Telecel,
        description: None,
        payer_email: None,
        payer_name: None,
        hosted: None,
        asked_by: AskedBy::default(),
    };
    let now = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
    Charge::new(&new, RailName::Paystack, now, timing())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_history_goes_as_the_model_says(history in any_history()) {
        let mut model = Model { state: "SUBMITTING", tries: 0, reason: None };
        let fresh = charge();
        let (mut progress, now) = (fresh.progress, fresh.facts.created_at);
        let mut settled = 0;
        for (event, _) in history {
            match (progress.after(event, now), model.step(event)) {
                (Ok(to), Some(model_to)) => {
                    prop_assert!(!progress.state.is_terminal(), "a terminal state changed");
                    settled += u32::from(to.state == State::Settled);
                    (progress, model) = (to, model_to);
                }
                (Err(illegal), None) => prop_assert_eq!(illegal.state, progress.state),
                (machine, model) => prop_assert!(false, "{machine:?} is not {model:?}"),
            }
            prop_assert_eq!(progress.state.code(), model.state);
            prop_assert_eq!(progress.otp_tries, model.tries);
            prop_assert_eq!(progress.failure_reason.as_deref(), model.reason);
            prop_assert!((0..=OTP_TRIES_MAX).contains(&progress.otp_tries));
            prop_assert_eq!(progress.failure_reason.is_some(), progress.state == State::Failed);
        }
        prop_assert!(settled <= 1);
    }

    #[test]
    fn an_open_charge_always_has_a_time_when_its_rail_is_asked(history in any_history()) {
        let mut charge = charge();
        let mut now = charge.facts.created_at;
        for (event, seconds) in history {
            now = now + Duration::from_secs(seconds);
            let Ok(after) = charge.after(event, now, timing()) else { continue };
            prop_assert_eq!(after.progress.version, charge.progress.version + 1);
            prop_assert!(after.progress.seen_at_rail >= charge.progress.seen_at_rail);
            prop_assert!(after.timer.submitted_at >= charge.timer.submitted_at);
            prop_assert!(after.timer.taken_by >= Some(after.timer.submitted_at));
            prop_assert_eq!(after.timer.taken_by, Some(after.timer.taken_by()));
            let next = after.timer.next_query_at;
            match after.progress.state {
                State::Submitting | State::Initiated | State::OtpSubmitting => {
                    let is_now = event == Event::Approved && next == Some(now);
                    prop_assert!(is_now || next.is_some_and(|next| next > now));
                }
                State::OtpRequired => {
                    let is_timer = next.is_some() && next == after.timer.otp_expires_at;
                    prop_assert!(is_timer || next.is_some_and(|next| next > now));
                }
                State::Failed => prop_assert_eq!(next, Some(now + Duration::from_secs(3600))),
                State::Settled | State::Void => prop_assert_eq!(next, None),
            }
            charge = after;
        }
    }
}

#[test]
fn a_code_lives_ten_minutes_from_when_it_was_first_wanted() {
    let minute = Duration::from_secs(60);
    let charge = charge();
    let start = charge.facts.created_at;
    let wanted = charge
        .after(Event::CodeWanted, start, timing())
        .expect("legal");
    assert_eq!(wanted.timer.next_query_at, Some(start + 10 * minute));
    let sent = wanted
        .after(Event::CodeSent, start + 4 * minute, timing())
        .expect("legal");
    assert_eq!(
        sent.timer.submitted_at,
        start + 4 * minute,
        "the schedule starts again at the submit"
    );
    let again = sent
        .after(Event::CodeWrong, start + 5 * minute, timing())
        .expect("legal");
    assert_eq!(again.timer.next_query_at, Some(start + 10 * minute));
    assert_eq!(again.progress.otp_tries_left(), 2);
}

#[test]
fn the_network_can_have_taken_a_payment_until_its_call_is_over() {
    let second = Duration::from_secs(1);
    let mut charge = charge();
    let start = charge.facts.created_at;
    // The call begins at most ten seconds after the record and takes at most eight.
    assert_eq!(charge.timer.taken_by(), start + 18 * second);
    charge.timer.end_call(start + 4 * second);
    assert_eq!(charge.timer.taken_by(), start + 4 * second);
    charge.timer.end_call(start + 5 * second);
    assert_eq!(
        charge.timer.taken_by(),
        start + 4 * second,
        "it was over before"
    );
    let wanted = charge
        .after(Event::CodeWanted, start + 5 * second, timing())
        .expect("legal");
    let sent = wanted
        .after(Event::CodeSent, start + 60 * second, timing())
        .expect("legal");
    assert_eq!(
        sent.timer.taken_by(),
        start + 78 * second,
        "the code as well"
    );
}

#[test]
fn a_charge_of_a_version_that_noted_no_such_moment_waits_as_long_as_one_can() {
    let second = Duration::from_secs(1);
    let mut charge = charge();
    let start = charge.facts.created_at;
    charge.timer.taken_by = None;
    assert_eq!(charge.timer.taken_by(), start + 18 * second);
    // After a code that such a version sent.
    charge.timer.taken_by = Some(start + second);
    charge.timer.submitted_at = start + 60 * second;
    assert_eq!(charge.timer.taken_by(), start + 78 * second);
}

#[test]
fn a_payment_request_goes_out_once_more_at_most_and_its_time_starts_anew() {
    let second = Duration::from_secs(1);
    let fresh = charge();
    let start = fresh.facts.created_at;
    assert!(fresh.may_be_resent(start + 89 * second, timing()));
    assert!(!fresh.may_be_resent(start + 90 * second, timing()));
    let never = Timing {
        resend_within: None,
        ..timing()
    };
    assert!(!fresh.may_be_resent(start, never));
    let mut seen = fresh.clone();
    seen.progress.seen_at_rail = true;
    assert!(!seen.may_be_resent(start, timing()));
    let mut of_old_version = fresh.clone();
    of_old_version.timer.taken_by = None;
    assert!(!of_old_version.may_be_resent(start, timing()));
    let answered = fresh
        .after(Event::Unanswered, start, timing())
        .expect("legal");
    assert!(!answered.may_be_resent(start, timing()));
    let mut resent = fresh;
    resent.timer.begin_resend(start + 40 * second);
    assert!(!resent.may_be_resent(start + 41 * second, timing()));
    assert_eq!(resent.timer.taken_by(), start + 58 * second);
    // The reply to one request says nothing about the other.
    resent.timer.end_call(start + 41 * second);
    assert_eq!(resent.timer.taken_by(), start + 58 * second);
}

#[test]
fn a_charge_that_is_not_void_is_shown_as_one_of_the_four_statuses() {
    let initiated = Some("INITIATED");
    let shown = [
        initiated,
        initiated,
        Some("OTP_REQUIRED"),
        initiated,
        Some("SETTLED"),
        Some("FAILED"),
        None,
    ];
    for (state, shown) in State::ALL.iter().zip(shown) {
        assert_eq!(state.shown().map(ChargeStatus::code), shown);
    }
    assert_eq!(State::ALL.len(), shown.len());
}

#[test]
fn states_are_read_as_they_were_written() {
    for state in State::ALL {
        assert_eq!(state.code().parse(), Ok(*state));
    }
}

#[test]
fn a_void_charge_is_shown_to_nobody_and_a_reason_only_with_the_failure() {
    let charge = charge();
    let after = |event| charge.after(event, charge.facts.created_at, timing());
    let void = after(Event::Withdrawn).expect("legal");
    assert_eq!(ShownCharge::try_from(void).err(), Some(Void));
    let reason = FailureReason::PayerDeclined;
    let failed = after(Event::Failed(reason)).expect("legal");
    let shown = ShownCharge::try_from(failed).expect("not void");
    assert_eq!(shown.failure_reason.as_deref(), Some(reason.code()));
    assert_eq!(shown.failure_message(), Some(reason.message()));
    assert_eq!(shown.shown_as(ChargeStatus::Initiated).failure_reason, None);
}
