use chassis::money::Currency;

use super::*;

fn ghs(minor: i64) -> Money {
    Money::new(minor, Currency::GHS)
}

fn line(said: Said, direction: Direction, amount: Money) -> ReportLine {
    ReportLine {
        number: 1,
        reference: "a".to_owned(),
        rail_id: String::new(),
        direction,
        amount,
        said,
        at: None,
    }
}

fn known(direction: Direction, booked: &[i64], is_taken_back: bool) -> Known {
    Known {
        subject: Uuid::nil(),
        shown: "TX-1".to_owned(),
        direction,
        state: "FAILED".to_owned(),
        booked: booked.iter().map(|minor| ghs(*minor)).collect(),
        is_taken_back,
    }
}

fn kind(line: &ReportLine, known: &Known) -> Option<CaseKind> {
    judge(line, Some(known)).map(|(kind, _)| kind)
}

#[test]
fn only_what_both_sides_say_matches() {
    use CaseKind::{ReportContradicts as Contradicts, ReportDiffers as Differs};
    use Direction::{In, Out};
    use Said::{Failed, Paid, Reversed};
    for (said, way, minor, booked, is_taken_back, expected) in [
        (Paid, In, 100, &[100][..], false, None),
        (Paid, In, 100, &[100], true, None),
        (Paid, In, 101, &[100], false, Some(Differs)),
        (Paid, In, 100, &[], false, Some(Contradicts)),
        // Late money and a settlement of one charge: either is ours.
        (Paid, In, 100, &[90, 100], false, None),
        (Failed, In, 100, &[], false, None),
        (Failed, In, 100, &[100], false, Some(Contradicts)),
        (Reversed, In, 100, &[100], true, None),
        (Reversed, In, 100, &[100], false, Some(Contradicts)),
        (Reversed, In, 100, &[], false, None),
        (Reversed, In, 90, &[100], true, Some(Differs)),
        // Money that went back is a reversal, in the report's other word.
        (Paid, Out, 100, &[100], true, None),
        (Paid, Out, 100, &[100], false, Some(Contradicts)),
    ] {
        let line = line(said, way, ghs(minor));
        let known = known(In, booked, is_taken_back);
        assert_eq!(kind(&line, &known), expected, "{line:?} {known:?}");
    }
}

#[test]
fn another_currency_differs_and_an_unknown_line_is_told_by_its_reference() {
    let usd = line(Said::Paid, Direction::In, Money::new(100, Currency::USD));
    let (kind, detail) = judge(&usd, Some(&known(Direction::In, &[100], false))).unwrap();
    assert_eq!(kind, CaseKind::ReportDiffers);
    assert_eq!(
        detail,
        "the report says that USD 1.00 was paid in; we booked GHS 1.00"
    );
    let (kind, detail) = judge(&usd, None).unwrap();
    assert_eq!(kind, CaseKind::ReportUnknown);
    assert!(detail.contains("under the reference a"), "{detail}");
}

#[test]
fn a_line_is_known_by_the_rails_id_or_by_all_that_it_says() {
    let rail = RailName::ALL[0];
    let one = line(Said::Paid, Direction::In, ghs(100));
    let id = one.id(rail);
    assert_eq!(one.id(rail), id);
    let other_amount = line(Said::Paid, Direction::In, ghs(101));
    assert_ne!(other_amount.id(rail), id);
    assert_ne!(one.id(RailName::ALL[1]), id);
    let with_id = |amount| ReportLine {
        rail_id: "7".to_owned(),
        ..line(Said::Paid, Direction::In, amount)
    };
    assert_eq!(with_id(ghs(100)).id(rail), with_id(ghs(101)).id(rail));
    let taken_back = ReportLine {
        said: Said::Reversed,
        ..with_id(ghs(100))
    };
    assert_ne!(taken_back.id(rail), with_id(ghs(100)).id(rail));
}

fn period(from: i64, to: i64) -> Period {
    let at = |millis| Timestamp::from_unix_millis(millis).unwrap();
    Period {
        from: at(from),
        to: at(to),
    }
}

#[test]
fn periods_continue_each_other_in_any_order_unless_there_is_a_gap() {
    let day = period(20, 30);
    assert_eq!(day.continued(&[]), day);
    let others = [
        period(0, 10),
        period(31, 40),
        period(15, 20),
        period(10, 16),
    ];
    assert_eq!(day.continued(&others), period(0, 30));
    assert_eq!(day.continued(&[period(22, 24)]), day);
}

#[test]
fn a_record_is_missing_only_where_reports_cover_all_of_its_time() {
    let (day, covered) = (period(20, 30), period(10, 30));
    for (moved, absence) in [
        (period(22, 25), Absence::Missing),
        (period(19, 21), Absence::Missing),
        (period(9, 21), Absence::Undecided),
        (period(29, 31), Absence::Undecided),
        (period(12, 15), Absence::Elsewhere),
        (period(12, 20), Absence::Elsewhere),
        (period(30, 33), Absence::Elsewhere),
    ] {
        assert_eq!(judge_absence(moved, day, covered), absence, "{moved:?}");
    }
}
