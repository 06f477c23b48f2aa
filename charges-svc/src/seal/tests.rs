//! Any change to a block changes its hash.

use super::*;

const PREVIOUS: &str = "00ff";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis).expect("a moment")
}

fn line(number: i64, account: &str, amount: i64) -> SealedLine {
    SealedLine {
        kind: "SETTLEMENT".to_owned(),
        subject: Uuid::from_u128(7),
        line: Some(number),
        account: Some(account.to_owned()),
        amount_minor: Some(amount),
        currency: Some("GHS".to_owned()),
        posted_at: Some(at(5)),
    }
}

fn lines() -> Vec<SealedLine> {
    vec![
        line(1, "rail:momo:clearing", -2550),
        line(2, "merchant:1", 2550),
    ]
}

fn sealed(lines: &[SealedLine]) -> String {
    hash(PREVIOUS, 3, at(9), lines)
}

#[test]
fn a_block_keeps_its_hash_for_ever() {
    // Recorded when blocks were first sealed. A change here breaks every existing ledger.
    assert_eq!(
        sealed(&lines()),
        "0b4073e4bb2ae9c2092b93e2a37ae2d2e679861c47be9c6c576e2c762e9bc26e"
    );
    let mut turned = lines();
    turned.reverse();
    assert_eq!(sealed(&turned), sealed(&lines()));
}

#[test]
fn every_field_counts() {
    let changes: [fn(&mut Vec<SealedLine>); 11] = [
        |lines| lines[0].kind.push('S'),
        |lines| lines[0].subject = Uuid::from_u128(8),
        |lines| lines[0].line = Some(3),
        |lines| lines[0].account = Some("rail:momo:clearinG".to_owned()),
        |lines| lines[0].amount_minor = Some(-2551),
        |lines| lines[0].currency = Some("USD".to_owned()),
        |lines| lines[0].posted_at = Some(at(6)),
        |lines| drop(lines.pop()),
        |lines| lines.push(line(3, "suspense", 1)),
        // One field loses what the next gains.
        |lines| {
            (lines[0].account, lines[0].currency) = (
                Some("rail:momo:clearingG".to_owned()),
                Some("HS".to_owned()),
            );
        },
        |lines| {
            let (kind, subject) = (lines[0].kind.clone(), lines[0].subject);
            let (line, account, amount_minor, currency, posted_at) = (None, None, None, None, None);
            *lines = vec![SealedLine {
                kind,
                subject,
                line,
                account,
                amount_minor,
                currency,
                posted_at,
            }];
        },
    ];
    let whole = sealed(&lines());
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = lines();
        change(&mut changed);
        assert_ne!(sealed(&changed), whole, "change {number}");
    }
    assert_ne!(hash("00fe", 3, at(9), &lines()), whole);
    assert_ne!(hash(PREVIOUS, 4, at(9), &lines()), whole);
    assert_ne!(hash(PREVIOUS, 3, at(8), &lines()), whole);
}

#[test]
fn what_does_not_balance_is_named_once() {
    assert_eq!(unbalanced(&lines()), []);
    let mut lines = lines();
    lines[0].amount_minor = Some(-2549);
    let mut dollars = line(3, "suspense", 9);
    dollars.currency = Some("USD".to_owned());
    lines.push(dollars);
    assert_eq!(
        unbalanced(&lines),
        [("SETTLEMENT".to_owned(), Uuid::from_u128(7))]
    );
}
