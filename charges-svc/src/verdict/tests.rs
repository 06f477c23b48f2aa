//! Every answer of a rail, in every state.

use std::time::Duration;

use chassis::money::Currency;
use proptest::{prelude::*, sample::select};

use super::*;
use crate::{case::CaseKind, charge::tests::charge as fresh};

const SCHEDULE: [Duration; 1] = [Duration::from_secs(15)];
const SECOND: Duration = Duration::from_secs(1);

fn timing() -> Timing<'static> {
    Timing {
        schedule: &SCHEDULE,
        approval_window: Duration::from_secs(180),
        otp_lifetime: Duration::from_secs(600),
    }
}

/// A charge in this state.
fn charge(state: State) -> Charge {
    let fresh = fresh();
    let steps: &[Event] = match state {
        State::Submitting => &[],
        State::Initiated => &[Event::Unanswered],
        State::OtpRequired => &[Event::CodeWanted],
        State::OtpSubmitting => &[Event::CodeWanted, Event::CodeSent],
        State::Settled => &[Event::Accepted, Event::Settled],
        State::Failed => &[Event::Failed(FailureReason::PayerTimeout)],
        State::Void => &[Event::Withdrawn],
    };
    let step = |charge: Charge, event: &Event| charge.after(*event, charge.created_at, timing());
    steps.iter().try_fold(fresh, step).expect("legal steps")
}

fn ours(charge: &Charge) -> Found {
    Found::Succeeded {
        rail_reference: charge.rail_reference.to_string(),
        amount: Some(charge.amount()),
        fee: None,
    }
}

fn verdict(charge: &Charge, found: &Found, age: Duration) -> Verdict {
    judge(charge, found, charge.submitted_at + age, timing())
}

/// The kind of the case that is opened, and what goes to suspense, in minor units.
fn opened(verdict: &Verdict) -> Option<(CaseKind, Option<i64>)> {
    match verdict {
        Verdict::Open { kind, suspense, .. } => Some((*kind, suspense.map(Money::minor_units))),
        Verdict::AskAgain | Verdict::Change(_) => None,
    }
}

const OPEN: [State; 4] = [
    State::Submitting,
    State::Initiated,
    State::OtpRequired,
    State::OtpSubmitting,
];

#[test]
fn our_money_settles_a_charge_from_every_open_state() {
    for state in OPEN {
        let charge = charge(state);
        let verdict = verdict(&charge, &ours(&charge), SECOND);
        assert_eq!(verdict, Verdict::Change(Event::Settled), "{state}");
    }
}

#[test]
fn another_amount_currency_or_reference_is_a_case_and_never_settles() {
    let charge = charge(State::Initiated);
    let reference = charge.rail_reference.to_string();
    let found = |rail_reference: &str, amount| Found::Succeeded {
        rail_reference: rail_reference.to_owned(),
        amount,
        fee: None,
    };
    let money = |minor, currency| Some(Money::new(minor, currency));
    for (found, suspense) in [
        (found(&reference, money(2549, Currency::GHS)), Some(2549)),
        (found(&reference, money(2550, Currency::USD)), Some(2550)),
        (
            found("somebody else's", money(2550, Currency::GHS)),
            Some(2550),
        ),
        (found(&reference, None), None),
        (found(&reference, money(0, Currency::GHS)), None),
    ] {
        let verdict = verdict(&charge, &found, SECOND);
        assert_eq!(
            opened(&verdict),
            Some((CaseKind::Mismatch, suspense)),
            "{found:?}"
        );
    }
}

#[test]
fn a_mismatched_charge_never_settles_later() {
    let mut charge = charge(State::Initiated);
    charge.mismatched = true;
    assert_eq!(verdict(&charge, &ours(&charge), DAY), Verdict::AskAgain);
    let mut failed = self::charge(State::Failed);
    failed.mismatched = true;
    assert_eq!(verdict(&failed, &ours(&failed), DAY), Verdict::AskAgain);
}

#[test]
fn money_after_a_failure_is_late_money_and_changes_nothing_else() {
    let charge = charge(State::Failed);
    let verdict = verdict(&charge, &ours(&charge), SECOND);
    assert_eq!(opened(&verdict), Some((CaseKind::LateMoney, Some(2550))));
}

#[test]
fn an_unknown_reference_fails_a_charge_only_after_the_window_and_if_never_seen() {
    let failed = Verdict::Change(Event::Failed(FailureReason::RailUnavailable));
    for state in [State::Submitting, State::Initiated] {
        let mut charge = charge(state);
        let too_early = verdict(&charge, &Found::ReferenceUnknown, 179 * SECOND);
        assert_ne!(too_early, failed, "{state}");
        let conclusive = verdict(&charge, &Found::ReferenceUnknown, 180 * SECOND);
        assert_eq!(conclusive, failed, "{state}");
        charge.seen_at_rail = true;
        let known_before = verdict(&charge, &Found::ReferenceUnknown, 180 * SECOND);
        assert_ne!(known_before, failed, "{state}");
    }
    for state in [State::OtpRequired, State::OtpSubmitting] {
        let charge = charge(state);
        let verdict = verdict(&charge, &Found::ReferenceUnknown, 181 * SECOND);
        assert_eq!(verdict, Verdict::AskAgain, "{state}");
    }
}

#[test]
fn a_code_expires_only_while_the_rail_still_waits_for_it() {
    let charge = charge(State::OtpRequired);
    let (before, after) = (599 * SECOND, 600 * SECOND);
    let expired = Verdict::Change(Event::Failed(FailureReason::OtpExpired));
    assert_eq!(
        verdict(&charge, &Found::OtpRequired, before),
        Verdict::AskAgain
    );
    assert_eq!(verdict(&charge, &Found::OtpRequired, after), expired);
    assert_eq!(verdict(&charge, &Found::Unknown, after), Verdict::AskAgain);
    assert_eq!(verdict(&charge, &Found::Pending, before), Verdict::AskAgain);
    assert_eq!(
        verdict(&charge, &Found::Pending, after),
        Verdict::Change(Event::Accepted)
    );
}

#[test]
fn a_charge_whose_submitter_died_is_open_to_every_outcome() {
    let charge = charge(State::Submitting);
    for found in [Found::Unknown, Found::ReferenceUnknown] {
        let unanswered = Verdict::Change(Event::Unanswered);
        assert_eq!(verdict(&charge, &found, SECOND), unanswered);
    }
    let accepted = Verdict::Change(Event::Accepted);
    assert_eq!(verdict(&charge, &Found::Pending, SECOND), accepted);
}

#[test]
fn a_lost_reply_to_a_code_is_found_by_asking() {
    let charge = charge(State::OtpSubmitting);
    let wanted = Verdict::Change(Event::CodeWanted);
    assert_eq!(verdict(&charge, &Found::OtpRequired, SECOND), wanted);
    let accepted = Verdict::Change(Event::Accepted);
    assert_eq!(verdict(&charge, &Found::Pending, SECOND), accepted);
}

#[test]
fn after_a_day_without_an_outcome_an_operator_has_a_case() {
    let charge = charge(State::Initiated);
    for found in [Found::Pending, Found::Unknown] {
        assert_eq!(verdict(&charge, &found, DAY - SECOND), Verdict::AskAgain);
        let verdict = verdict(&charge, &found, DAY);
        assert_eq!(opened(&verdict), Some((CaseKind::UnknownOutcome, None)));
    }
}

#[test]
fn a_payment_that_the_rail_took_back_is_a_case() {
    for state in [State::Initiated, State::Settled, State::Failed] {
        let verdict = verdict(&charge(state), &Found::Reversed, SECOND);
        assert_eq!(
            opened(&verdict),
            Some((CaseKind::Reversed, None)),
            "{state}"
        );
    }
}

fn any_found() -> impl Strategy<Value = Found> {
    let amount = prop_oneof![
        Just(None),
        (2549..2552_i64, select(vec![Currency::GHS, Currency::USD]))
            .prop_map(|(minor, currency)| Some(Money::new(minor, currency))),
    ];
    prop_oneof![
        Just(Found::Pending),
        Just(Found::OtpRequired),
        (any::<bool>(), amount).prop_map(|(ours, amount)| Found::Succeeded {
            rail_reference: if ours {
                "ours".to_owned()
            } else {
                "another".to_owned()
            },
            amount,
            fee: None,
        }),
        Just(Found::Failed(FailureReason::PayerDeclined)),
        Just(Found::Reversed),
        Just(Found::ReferenceUnknown),
        Just(Found::Unknown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_answer_of_a_rail_breaks_a_charge(
        state in select(&OPEN[..]),
        found in any_found(),
        seconds in 0..200_000_u64,
        seen in any::<bool>(),
    ) {
        let mut charge = charge(state);
        charge.seen_at_rail |= seen;
        let reference = charge.rail_reference.to_string();
        let found = match found {
            Found::Succeeded { rail_reference, amount, fee } if rail_reference == "ours" => {
                Found::Succeeded { rail_reference: reference, amount, fee }
            }
            found => found,
        };
        let now = charge.submitted_at + Duration::from_secs(seconds);
        if let Verdict::Change(event) = judge(&charge, &found, now, timing()) {
            prop_assert!(charge.after(event, now, timing()).is_ok(), "{state} {event:?}");
            match event {
                Event::Settled => prop_assert_eq!(&found, &ours(&charge)),
                // Never because time went by or nothing was heard.
                Event::Failed(_) => prop_assert!(matches!(
                    found,
                    Found::Failed(_) | Found::OtpRequired | Found::ReferenceUnknown
                )),
                Event::Accepted => prop_assert_eq!(&found, &Found::Pending),
                Event::CodeWanted => prop_assert_eq!(&found, &Found::OtpRequired),
                Event::Unanswered => prop_assert_eq!(state, State::Submitting),
                other => prop_assert!(false, "no answer means {other:?}"),
            }
        }
    }
}
