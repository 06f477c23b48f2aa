//! Every answer from a rail, in every state.

use std::time::Duration;

use chassis::money::Currency;
use proptest::{prelude::*, sample::select};

use super::*;
use crate::{case::CaseKind, charge::tests::charge as fresh};

const SCHEDULE: [Duration; 1] = [Duration::from_secs(15)];
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// From the submission of the payment or the code: 18 s in which the network can take it, the
/// network's 180 s, and a margin of 30 s.
const FINAL: Duration = Duration::from_secs(18 + 180 + 30);

fn timing() -> Timing<'static> {
    Timing {
        schedule: &SCHEDULE,
        approval_window: Duration::from_secs(180),
        otp_lifetime: Duration::from_secs(600),
        resend_within: None,
    }
}

/// The timing of a rail to which a request may go out twice.
fn resending() -> Timing<'static> {
    Timing {
        resend_within: Some(90 * SECOND),
        ..timing()
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
    let step =
        |charge: Charge, event: &Event| charge.after(*event, charge.facts.created_at, timing());
    steps.iter().try_fold(fresh, step).expect("legal steps")
}

fn ours(charge: &Charge) -> QueryOutcome {
    QueryOutcome::Succeeded {
        rail_reference: charge.facts.rail_reference.to_string(),
        amount: Some(charge.facts.amount()),
        fee: None,
    }
}

fn verdict(charge: &Charge, found: &QueryOutcome, age: Duration) -> Verdict {
    judge(charge, found, charge.timer.submitted_at + age, timing())
}

/// The kind of the opened case, and what goes to suspense, in minor units.
fn opened(verdict: &Verdict) -> Option<(CaseKind, Option<i64>)> {
    match verdict {
        Verdict::Open { kind, suspense, .. } => Some((*kind, suspense.map(Money::minor_units))),
        Verdict::AskAgain | Verdict::Resend | Verdict::Change(_) => None,
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
    let reference = charge.facts.rail_reference.to_string();
    let found = |rail_reference: &str, amount| QueryOutcome::Succeeded {
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
    charge.progress.mismatched = true;
    assert_eq!(verdict(&charge, &ours(&charge), DAY), Verdict::AskAgain);
    let mut failed = self::charge(State::Failed);
    failed.progress.mismatched = true;
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
        let too_early = verdict(
            &charge,
            &QueryOutcome::ReferenceUnknown,
            FINAL - MILLISECOND,
        );
        assert_ne!(too_early, failed, "{state}");
        let conclusive = verdict(&charge, &QueryOutcome::ReferenceUnknown, FINAL);
        assert_eq!(conclusive, failed, "{state}");
        charge.progress.seen_at_rail = true;
        let known_before = verdict(&charge, &QueryOutcome::ReferenceUnknown, FINAL);
        assert_ne!(known_before, failed, "{state}");
    }
    for state in [State::OtpRequired, State::OtpSubmitting] {
        let charge = charge(state);
        let verdict = verdict(&charge, &QueryOutcome::ReferenceUnknown, FINAL);
        assert_eq!(verdict, Verdict::AskAgain, "{state}");
    }
}

#[test]
fn a_rail_that_does_not_know_what_it_has_shown_has_said_nothing() {
    let failed = charge(State::Failed);
    let heard_after = |charge: &Charge, days: u32| {
        heard(
            charge,
            &QueryOutcome::ReferenceUnknown,
            failed.progress.updated_at + days * DAY,
        )
        .clone()
    };
    assert_eq!(heard_after(&failed, 3), QueryOutcome::ReferenceUnknown);
    let (mut seen, mut called_back) = (failed.clone(), failed.clone());
    seen.progress.seen_at_rail = true;
    called_back.timer.hints = 1;
    for mut known in [seen, called_back] {
        assert_eq!(heard_after(&known, 3), QueryOutcome::Unknown);
        // By then the rail may have forgotten it.
        assert_eq!(heard_after(&known, 7), QueryOutcome::ReferenceUnknown);
        known.progress.state = State::Initiated;
        assert_eq!(heard_after(&known, 7), QueryOutcome::Unknown);
    }
}

#[test]
fn an_abandoned_payment_has_failed_only_once_the_networks_time_is_over() {
    let failed = Verdict::Change(Event::Failed(FailureReason::PayerTimeout));
    for (state, code_wanted, open) in [
        (State::Submitting, false, Verdict::Change(Event::Accepted)),
        (State::Initiated, false, Verdict::AskAgain),
        (State::OtpRequired, true, Verdict::AskAgain),
        (
            State::OtpSubmitting,
            true,
            Verdict::Change(Event::CodeWanted),
        ),
        (
            State::OtpSubmitting,
            false,
            Verdict::Change(Event::Accepted),
        ),
    ] {
        let (charge, abandoned) = (charge(state), QueryOutcome::Abandoned { code_wanted });
        let early = verdict(&charge, &abandoned, FINAL - MILLISECOND);
        assert_eq!(early, open, "{state}");
        assert_eq!(verdict(&charge, &abandoned, FINAL), failed, "{state}");
    }
}

#[test]
fn after_three_codes_only_the_rails_word_about_the_third_is_an_outcome() {
    for state in [State::Initiated, State::OtpSubmitting] {
        let mut charge = charge(state);
        charge.progress.otp_tries = 3;
        let wanted = verdict(&charge, &QueryOutcome::OtpRequired, FINAL);
        assert_eq!(wanted, Verdict::AskAgain, "{state}");
    }
}

#[test]
fn a_request_that_got_lost_goes_out_once_more_on_the_rails_word() {
    let charge = charge(State::Submitting);
    let judged = |charge: &Charge, found: &QueryOutcome, age: Duration| {
        judge(charge, found, charge.facts.created_at + age, resending())
    };
    let unknown = &QueryOutcome::ReferenceUnknown;
    assert_eq!(judged(&charge, unknown, 30 * SECOND), Verdict::Resend);
    // The rail gave no answer, so it is queried again while there is time.
    let silent = judged(&charge, &QueryOutcome::Unknown, 30 * SECOND);
    assert_eq!(silent, Verdict::AskAgain);
    let unanswered = Verdict::Change(Event::Unanswered);
    assert_eq!(judged(&charge, unknown, 90 * SECOND), unanswered);
    assert_eq!(
        judged(&charge, &QueryOutcome::Unknown, 90 * SECOND),
        unanswered
    );
    let mut resent = charge.clone();
    resent
        .timer
        .begin_resend(charge.facts.created_at + 30 * SECOND);
    assert_eq!(judged(&resent, unknown, 31 * SECOND), unanswered);
    let accepted = Verdict::Change(Event::Accepted);
    assert_eq!(judged(&charge, &QueryOutcome::Pending, SECOND), accepted);
}

#[test]
fn a_code_expires_only_while_the_rail_still_waits_for_it() {
    let charge = charge(State::OtpRequired);
    let (before, after) = (599 * SECOND, 600 * SECOND);
    let expired = Verdict::Change(Event::Failed(FailureReason::OtpExpired));
    assert_eq!(
        verdict(&charge, &QueryOutcome::OtpRequired, before),
        Verdict::AskAgain
    );
    assert_eq!(verdict(&charge, &QueryOutcome::OtpRequired, after), expired);
    assert_eq!(
        verdict(&charge, &QueryOutcome::Unknown, after),
        Verdict::AskAgain
    );
    assert_eq!(
        verdict(&charge, &QueryOutcome::Pending, before),
        Verdict::AskAgain
    );
    assert_eq!(
        verdict(&charge, &QueryOutcome::Pending, after),
        Verdict::Change(Event::Accepted)
    );
}

#[test]
fn a_code_expires_only_once_no_earlier_one_can_be_accepted() {
    let charge = charge(State::OtpRequired);
    let start = charge.facts.created_at;
    let step =
        |charge: Charge, event, at| charge.after(event, start + at, timing()).expect("legal");
    // Its reply was lost, and the rail has not checked it yet.
    let sent = step(charge, Event::CodeSent, 590 * SECOND);
    let charge = step(sent, Event::CodeWanted, 600 * SECOND);
    let judged = |at| judge(&charge, &QueryOutcome::OtpRequired, start + at, timing());
    assert_eq!(judged(600 * SECOND), Verdict::AskAgain);
    assert_eq!(judged(590 * SECOND + FINAL - SECOND), Verdict::AskAgain);
    let expired = Verdict::Change(Event::Failed(FailureReason::OtpExpired));
    assert_eq!(judged(590 * SECOND + FINAL), expired);
}

#[test]
fn a_charge_whose_submitter_died_is_open_to_every_outcome() {
    let charge = charge(State::Submitting);
    for found in [QueryOutcome::Unknown, QueryOutcome::ReferenceUnknown] {
        let unanswered = Verdict::Change(Event::Unanswered);
        assert_eq!(verdict(&charge, &found, SECOND), unanswered);
    }
    let accepted = Verdict::Change(Event::Accepted);
    assert_eq!(verdict(&charge, &QueryOutcome::Pending, SECOND), accepted);
}

#[test]
fn a_lost_reply_to_a_code_is_found_by_asking() {
    let charge = charge(State::OtpSubmitting);
    let wanted = Verdict::Change(Event::CodeWanted);
    assert_eq!(verdict(&charge, &QueryOutcome::OtpRequired, SECOND), wanted);
    let accepted = Verdict::Change(Event::Accepted);
    assert_eq!(verdict(&charge, &QueryOutcome::Pending, SECOND), accepted);
}

#[test]
fn after_a_day_without_an_outcome_an_operator_has_a_case() {
    let charge = charge(State::Initiated);
    for found in [QueryOutcome::Pending, QueryOutcome::Unknown] {
        assert_eq!(verdict(&charge, &found, DAY - SECOND), Verdict::AskAgain);
        let verdict = verdict(&charge, &found, DAY);
        assert_eq!(opened(&verdict), Some((CaseKind::UnknownOutcome, None)));
    }
}

#[test]
fn a_payment_that_the_rail_took_back_is_a_case() {
    for state in [State::Initiated, State::Settled, State::Failed] {
        let verdict = verdict(&charge(state), &QueryOutcome::Reversed, SECOND);
        assert_eq!(
            opened(&verdict),
            Some((CaseKind::Reversed, None)),
            "{state}"
        );
    }
}

fn any_found() -> impl Strategy<Value = QueryOutcome> {
    let amount = prop_oneof![
        Just(None),
        (2549..2552_i64, select(vec![Currency::GHS, Currency::USD]))
            .prop_map(|(minor, currency)| Some(Money::new(minor, currency))),
    ];
    prop_oneof![
        Just(QueryOutcome::Pending),
        Just(QueryOutcome::OtpRequired),
        any::<bool>().prop_map(|code_wanted| QueryOutcome::Abandoned { code_wanted }),
        (any::<bool>(), amount).prop_map(|(ours, amount)| QueryOutcome::Succeeded {
            rail_reference: if ours {
                "ours".to_owned()
            } else {
                "another".to_owned()
            },
            amount,
            fee: None,
        }),
        Just(QueryOutcome::Failed(FailureReason::PayerDeclined)),
        Just(QueryOutcome::Reversed),
        Just(QueryOutcome::ReferenceUnknown),
        Just(QueryOutcome::Unknown),
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
        tries in 0..=3_i64,
    ) {
        let mut charge = charge(state);
        if matches!(state, State::Initiated | State::OtpSubmitting) {
            charge.progress.otp_tries = charge.progress.otp_tries.max(tries);
        }
        charge.progress.seen_at_rail |= seen;
        let reference = charge.facts.rail_reference.to_string();
        let found = match found {
            QueryOutcome::Succeeded { rail_reference, amount, fee } if rail_reference == "ours" => {
                QueryOutcome::Succeeded { rail_reference: reference, amount, fee }
            }
            found => found,
        };
        let now = charge.timer.submitted_at + Duration::from_secs(seconds);
        if let Verdict::Change(event) = judge(&charge, &found, now, timing()) {
            prop_assert!(charge.after(event, now, timing()).is_ok(), "{state} {event:?}");
            match event {
                Event::Settled => prop_assert_eq!(&found, &ours(&charge)),
                // Never because time passed or nothing was heard, and never by our own count of
                // tries.
                Event::Failed(reason) => {
                    let by = match reason {
                        FailureReason::OtpExpired => state == State::OtpRequired,
                        FailureReason::PayerTimeout => {
                            matches!(found, QueryOutcome::Abandoned { .. })
                        }
                        FailureReason::RailUnavailable => found == QueryOutcome::ReferenceUnknown,
                        _ => matches!(found, QueryOutcome::Failed(_)),
                    };
                    prop_assert!(by, "{state} {found:?} {reason:?}");
                }
                Event::Accepted | Event::CodeWanted => {
                    let wants_code = match found {
                        QueryOutcome::Pending => Some(false),
                        QueryOutcome::OtpRequired => Some(true),
                        QueryOutcome::Abandoned { code_wanted } => Some(code_wanted),
                        _ => None,
                    };
                    prop_assert_eq!(wants_code, Some(event == Event::CodeWanted));
                }
                Event::Unanswered => prop_assert_eq!(state, State::Submitting),
                other => prop_assert!(false, "no answer means {other:?}"),
            }
        }
    }

    /// The network's clock for the payer starts when it takes the payment or the code, whenever
    /// that is. What it leaves open before that clock has run out never ends the charge, in
    /// whatever order it comes.
    #[test]
    fn nothing_that_a_network_leaves_open_is_an_end_before_its_own_time(
        wants_code in any::<bool>(),
        begins_ms in 0..10_000_u64,
        takes_ms in 0..8_000_u64,
        heard in any::<bool>(),
        may_resend in any::<bool>(),
        queries in prop::collection::vec((0..300_000_u64, 0..6_usize), 1..20),
    ) {
        let timing = if may_resend { resending() } else { timing() };
        let ms = Duration::from_millis;
        let mut charge = charge(if wants_code { State::OtpSubmitting } else { State::Submitting });
        let start = charge.timer.submitted_at;
        let mut taken = start + ms(begins_ms) + ms(takes_ms);
        if heard {
            charge.timer.end_call(taken);
        }
        let mut queries = queries;
        queries.sort_unstable();
        for (at, said) in queries {
            let now = start + ms(at);
            let said = [
                QueryOutcome::Abandoned { code_wanted: false },
                QueryOutcome::Abandoned { code_wanted: true },
                QueryOutcome::ReferenceUnknown,
                QueryOutcome::Unknown,
                QueryOutcome::Pending,
                QueryOutcome::OtpRequired,
            ][said].clone();
            match judge(&charge, &said, now, timing) {
                Verdict::Change(Event::Failed(reason)) => {
                    prop_assert!(now >= timing.final_at(taken), "{reason:?} {now}");
                    break;
                }
                Verdict::Change(event) => {
                    let rail_goes_on = charge.progress.state == State::OtpRequired;
                    charge = charge.after(event, now, timing).expect("legal");
                    if charge.progress.state == State::OtpRequired {
                        charge = charge.after(Event::CodeSent, now, timing).expect("legal");
                        taken = now + ms(begins_ms) + ms(takes_ms);
                    } else if rail_goes_on {
                        taken = now;
                    }
                    charge.progress.seen_at_rail |= shows_reference(&said);
                }
                Verdict::Resend => {
                    charge.timer.begin_resend(now);
                    taken = now + ms(begins_ms) + ms(takes_ms);
                }
                Verdict::AskAgain | Verdict::Open { .. } => {}
            }
        }
    }
}
