use chassis::money::Currency;

use super::*;
use crate::time::{HOUR, MINUTE};

const FLOAT_MINOR: i64 = 100_000;

fn asked(rail: Rail, amount_minor: i64) -> CreditRequest {
    CreditRequest {
        rail,
        reference: "reference".to_owned(),
        account: "+233240000001".to_owned(),
        amount: Money::new(amount_minor, Currency::GHS),
        callback: None,
    }
}

/// Looks whenever something happens, until nothing does any more. Returns all that was said, each
/// with what had been paid by then.
fn live_through(
    credits: &mut Credits,
    asked: &CreditRequest,
    life: TransferLife,
) -> Vec<(Word, i64)> {
    let key = asked.key();
    let mut said = vec![(credits.take(asked, life, 10).0, 0)];
    while let Some(due) = credits.next_due() {
        credits.pass(due);
        let choices = credits.draw("looks");
        let (word, _) = credits.look(&key, choices, due + HOUR);
        let paid = credits.transfers().iter().map(Transfer::paid_minor).sum();
        said.push((word, paid));
    }
    said
}

#[test]
fn words_credits_and_float_agree_in_every_life() {
    let (mut paid, mut reversed, mut refused) = (0, 0, 0);
    for seed in 0..6_000_u64 {
        let rail = Rail::ALL[usize::try_from(seed % 3).unwrap()];
        let mut credits = Credits::new(seed);
        credits.fill(rail, FLOAT_MINOR);
        let asked = asked(rail, 2_550);
        let (mut life, _) = credits.arrive(&asked, 0);
        life.pays_again = false;
        let is_refused = life.refused.is_some();
        let said = live_through(&mut credits, &asked, life.clone());
        let again = credits.take(&asked, life, 20).0;
        let transfer = credits.transfers().remove(0);

        assert_eq!(is_refused, transfer.taken_at.is_empty(), "{transfer:?}");
        assert_eq!(is_refused, again != Word::Duplicate409, "{again:?}");
        assert!(transfer.credits.len() <= 1, "{transfer:?}");
        for (word, paid_minor) in &said {
            match word {
                Word::Success => assert!(*paid_minor > 0, "{said:?}"),
                Word::Failed(_) | Word::Refused(_) => assert_eq!(*paid_minor, 0, "{said:?}"),
                _ => {}
            }
        }
        let gone = transfer.paid_minor() + transfer.fee_minor;
        assert_eq!(
            credits.float(rail).held_minor,
            FLOAT_MINOR - gone,
            "{transfer:?}"
        );
        paid += usize::from(transfer.paid_minor() > 0);
        reversed += usize::from(transfer.reversed_at.is_some());
        refused += usize::from(is_refused);
    }
    assert!(
        paid > 4_000 && reversed > 100 && refused > 200,
        "{paid} {reversed} {refused}"
    );
}

#[test]
fn an_empty_float_pays_nobody() {
    for seed in 0..1_000_u64 {
        for rail in Rail::ALL {
            let mut credits = Credits::new(seed);
            credits.fill(rail, 2_500);
            let asked = asked(rail, 2_550);
            let (life, _) = credits.arrive(&asked, 0);
            live_through(&mut credits, &asked, life);
            let transfer = credits.transfers().remove(0);
            assert!(transfer.credits.is_empty(), "{transfer:?}");
            assert_eq!(credits.float(rail).held_minor, 2_500);
        }
    }
}

#[test]
fn a_transfer_may_not_be_seen_for_longer_than_the_services_wait() {
    let mut choices = Choices::of(1, "lives");
    let lives: Vec<TransferLife> = (0..2_000)
        .map(|_| TransferLife::draw(&mut choices, Rail::Momo))
        .collect();
    assert!(lives.iter().any(|life| life.unseen > 15 * MINUTE));
    // What is settled last in a run still ends in it.
    assert!(
        lives
            .iter()
            .all(|life| life.ends_after + life.lag < 13 * HOUR)
    );
    assert!(
        lives.iter().all(|life| life.reversed_after.is_none()),
        "MTN takes nothing back"
    );
}
