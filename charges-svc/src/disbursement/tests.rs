//! Every way in which a disbursement can change, and no other.

use std::time::Duration;

use chassis::phone::Phone;
use proptest::{prelude::*, sample::select};
use rails::TransferOutcome;

use super::*;
use crate::case::CaseKind;

fn now() -> Timestamp {
    "2026-01-31T09:00:00.000Z".parse().expect("a timestamp")
}

fn payout() -> Disbursement {
    let destination = Destination {
        provider: "MTN".to_owned(),
        account: "+233241234567".to_owned(),
        holder_name: Some("Ama Mensah".to_owned()),
        ..Destination::default()
    };
    let amount = Money::new(2550, Currency::GHS);
    let merchant_id = MerchantId::new();
    Disbursement::payout(
        merchant_id,
        amount,
        destination,
        RailName::Momo,
        false,
        now(),
    )
}

fn sent() -> Disbursement {
    payout().after(Event::Sending, now()).expect("legal")
}

fn paid(disbursement: &Disbursement, amount: Option<Money>) -> TransferOutcome {
    TransferOutcome::Succeeded {
        rail_reference: disbursement.rail_reference.to_string(),
        amount,
        fee: None,
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const QUARTER: Option<Duration> = Some(Duration::from_secs(15 * 60));

/// Whenever it pays, the rail takes its fee from the float.
#[test]
fn the_rails_fee_is_heard_whenever_it_pays() {
    let sent = sent();
    let failed = sent
        .after(Event::Failed(FailureReason::RailError), now())
        .expect("legal");
    let fee = Some(Money::new(100, Currency::GHS));
    let paid = |fee| TransferOutcome::Succeeded {
        rail_reference: sent.rail_reference.to_string(),
        amount: Some(sent.amount()),
        fee,
    };
    assert_eq!(
        judge(&sent, &paid(fee), now(), QUARTER),
        Verdict::Complete { fee }
    );
    assert_eq!(
        judge(&failed, &paid(fee), now(), QUARTER),
        Verdict::PaidLate { fee }
    );
    for none in [Money::new(0, Currency::GHS), Money::new(100, Currency::USD)] {
        let complete = Verdict::Complete { fee: None };
        assert_eq!(judge(&sent, &paid(Some(none)), now(), QUARTER), complete);
    }
}

#[test]
fn only_a_success_that_is_ours_completes() {
    let sent = sent();
    let ours = Some(sent.amount());
    let complete = Verdict::Complete { fee: None };
    assert_eq!(judge(&sent, &paid(&sent, ours), now(), QUARTER), complete);
    let other = TransferOutcome::Succeeded {
        rail_reference: RailReference::new().to_string(),
        amount: ours,
        fee: None,
    };
    let dollars = Some(Money::new(2550, Currency::USD));
    let less = Some(Money::new(2549, Currency::GHS));
    for wrong in [
        other,
        paid(&sent, dollars),
        paid(&sent, less),
        paid(&sent, None),
    ] {
        let verdict = judge(&sent, &wrong, now(), QUARTER);
        let is_case = matches!(verdict, Verdict::Open(CaseKind::Mismatch, _));
        assert!(is_case, "{verdict:?}");
    }
}

/// An operator completes what the rail has not confirmed.
#[test]
fn a_success_of_what_is_completed_is_held_against_what_was_sent() {
    let completed = sent().after(Event::Completed, now()).expect("legal");
    let says = |of: &Disbursement, amount| judge(of, &paid(of, Some(amount)), now(), QUARTER);
    let (ours, less) = (completed.amount(), Money::new(2549, Currency::GHS));
    let is_mismatch = |verdict| matches!(verdict, Verdict::Open(CaseKind::Mismatch, _));
    assert_eq!(says(&completed, ours), Verdict::Confirm { fee: None });
    assert!(is_mismatch(says(&completed, less)));
    let reversed = completed.after(Event::Reversed, now()).expect("legal");
    assert!(
        is_mismatch(says(&reversed, ours)),
        "it cannot be paid and taken back"
    );
}

#[test]
fn what_the_rail_takes_back_is_taken_back_once() {
    let completed = sent().after(Event::Completed, now()).expect("legal");
    let fee = Some(Money::new(100, Currency::GHS));
    let says = |of: &Disbursement| judge(of, &TransferOutcome::Reversed { fee }, now(), QUARTER);
    assert_eq!(says(&completed), Verdict::TakeBack { fee });
    let reversed = completed.after(Event::Reversed, now()).expect("legal");
    assert_eq!(says(&reversed), Verdict::Wait);
    let failed = sent()
        .after(Event::Failed(FailureReason::RailError), now())
        .expect("legal");
    assert_eq!(says(&failed), Verdict::TakeBackLate { fee });
    // Nobody had heard of the success, nor of its fee.
    assert_eq!(says(&sent()), Verdict::FailOfReversal { fee });
}

#[test]
fn what_the_rail_never_saw_goes_out_once_more_after_a_quarter_of_an_hour() {
    let mut sent = sent();
    let unknown = TransferOutcome::ReferenceUnknown;
    assert_eq!(
        judge(&sent, &unknown, now() + 14 * MINUTE, QUARTER),
        Verdict::Wait
    );
    let at = now() + 15 * MINUTE;
    assert_eq!(judge(&sent, &unknown, at, QUARTER), Verdict::SendAgain);
    assert_eq!(judge(&sent, &unknown, at, None), Verdict::Wait);
    sent.resent_at = Some(at);
    assert_eq!(
        judge(&sent, &unknown, at + 60 * MINUTE, QUARTER),
        Verdict::Wait
    );
    let days_later = judge(&sent, &unknown, at + 24 * 60 * MINUTE, QUARTER);
    assert!(matches!(
        days_later,
        Verdict::Open(CaseKind::UnknownOutcome, _)
    ));
}

#[test]
fn what_was_sent_again_is_never_pending_again() {
    let mut sent = sent();
    assert!(sent.after(Event::NotSent, now()).is_ok());
    sent.resent_at = Some(now());
    assert!(sent.after(Event::NotSent, now()).is_err());
}

#[test]
fn a_destination_shows_only_what_its_owner_knows() {
    let payout = payout();
    let phone = Phone::parse_ghana_mobile("0241234567").expect("a number");
    assert_eq!(payout.destination.masked(), phone.masked());
    let bank = |account: &str| Destination {
        destination_type: DestinationType::Bank,
        account: account.to_owned(),
        ..Destination::default()
    };
    assert_eq!(bank("1234567890123").masked(), "••• 0123");
    assert_eq!(bank("123456").masked(), "••• 56");
    assert_eq!(bank("1234").masked(), "••• ");
    let debug = format!("{payout:?}");
    assert!(
        !debug.contains("241234567") && !debug.contains("Mensah"),
        "{debug}"
    );
}

fn any_event() -> impl Strategy<Value = Event> {
    select(vec![
        Event::Sending,
        Event::NotSent,
        Event::Completed,
        Event::Failed(FailureReason::PayeeNotFound),
        Event::Reversed,
    ])
}

proptest! {
    #[test]
    fn an_end_is_final_and_versions_only_grow(events in prop::collection::vec(any_event(), 0..12)) {
        let mut disbursement = payout();
        for event in events {
            let Ok(after) = disbursement.after(event, now()) else { continue };
            let (was, is) = (&disbursement.progress, &after.progress);
            prop_assert_eq!(is.version, was.version + 1);
            if was.state.is_terminal() {
                prop_assert_eq!(is.state, was.state);
                prop_assert_eq!(&is.failure_reason, &was.failure_reason);
                prop_assert_eq!(is.completed_at, was.completed_at);
            }
            prop_assert_eq!(is.state == State::Failed, is.failure_reason.is_some());
            prop_assert_eq!(is.state == State::Completed, is.completed_at.is_some());
            prop_assert!(is.reversed_at.is_none() || is.state == State::Completed);
            prop_assert_eq!(is.state == State::Pending, after.sent_at.is_none() && !is.state.is_terminal());
            disbursement = after;
        }
    }
}

#[test]
fn a_rail_that_has_forgotten_a_transfer_is_asked_again_until_a_week_is_over() {
    let unknown = TransferOutcome::ReferenceUnknown;
    let mut failed = sent();
    failed.progress.state = State::Failed;
    let ended_at = failed.progress.updated_at;
    let next = |days: u64| {
        let at = ended_at + Duration::from_secs(days * 24 * 60 * 60);
        next_query(&failed, &[], is_answer(&failed, &unknown, at), at)
    };
    assert!(next(3).is_some(), "it may still tell");
    assert_eq!(next(7), None);
    let never_sent = Disbursement {
        sent_at: None,
        ..failed.clone()
    };
    assert!(is_answer(&never_sent, &unknown, ended_at));
    assert!(!is_answer(&failed, &TransferOutcome::Unknown, ended_at));
}
