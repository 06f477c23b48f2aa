//! Lists of charges, payouts and refunds, and the wallets that sessions-svc lacks.

use std::time::Duration;

use charges_svc::charge::{Charge, Event};
use chassis::{
    clock::Timestamp,
    failure::FailureReason,
    ids::{ChargeId, DisbursementId, MerchantId, RailReference, Reference, TxIdDisplay},
    money::{Currency, Money},
    testing::{check_invalid, until},
};
use proto::{
    charges::{
        ChargeStatus, DisbursementStatus, ListChargesRequest, ListPayoutsRequest,
        ListRefundsRequest, Provider as ProtoProvider,
    },
    sessions::{TransactionPlace, Wallet, WalletOfTransaction},
};
use uuid::Uuid;

use crate::world::{World, new_charge, new_momo_charge};

impl World {
    /// The references on a page, and where the next begins.
    pub async fn listed(&self, request: ListChargesRequest) -> (Vec<String>, String) {
        let page = self.charges.clone().list_charges(request).await.unwrap();
        let page = page.into_inner();
        let charges = page.charges.into_iter().filter_map(|listed| listed.charge);
        (
            charges.map(|charge| charge.reference).collect(),
            page.next_page_token,
        )
    }

    /// The merchant finds these charges, and another one none.
    pub async fn check_found(&self, request: ListChargesRequest, found: &[&Charge]) {
        let anothers = ListChargesRequest {
            merchant_id: MerchantId::new().to_string(),
            ..request.clone()
        };
        let expected = (references(found), String::new());
        assert_eq!(self.listed(request).await, expected);
        assert_eq!(self.listed(anothers).await, (Vec::new(), String::new()));
    }

    /// Writes a charge of this merchant's that has gone through these events.
    async fn given_by(&self, merchant: MerchantId, events: &[Event], age: Duration) -> Charge {
        let mut charge = new_charge(self.clock.now() - age);
        charge.facts_mut().merchant_id = merchant;
        self.given(charge, events).await
    }

    /// Writes copies of a charge that has failed, one each millisecond, the last of them now.
    async fn write_failed(&self, charge: &Charge, count: u64) {
        let now = self.clock.now();
        let rows = usize::try_from(count).unwrap();
        let (merchant, phone) = (charge.facts.merchant_id, charge.facts.phone.clone());
        let shown = (0..count).map(|_| TxIdDisplay::new());
        let shown: Vec<TxIdDisplay> = shown.collect();
        let mut tx = self.db.begin().await.unwrap();
        tx.sql_set(
            "given (id uuid, merchant uuid, session uuid, shown text, told text, at_rail uuid,
                    token text, called text, at timestamptz)
             insert into charges
                 (transaction_id, merchant_id, session_id, hosted, charge_number, tx_id_display,
                  reference, rail, rail_reference, callback_token, amount_minor, currency,
                  session_amount_minor, session_currency, provider, phone, state, version,
                  failure_reason, otp_tries, seen_at_rail, mismatched, submitted_at, hints,
                  created_at, updated_at)
             select id, merchant, session, false, 1, shown, told, 'paystack', at_rail, token, 100,
                  'GHS', 100, 'GHS', 'TELECEL', called, 'FAILED', 2, 'PAYER_DECLINED', 0, true,
                  false, at, 0, at, at
             from given",
            rows,
        )
        .column((0..count).map(|_| ChargeId::new()))
        .column((0..count).map(|_| merchant))
        .column((0..count).map(|_| Uuid::new_v4()))
        .column(&shown)
        .column(shown.iter().map(Reference::new))
        .column((0..count).map(|_| RailReference::new()))
        .column((0..count).map(|_| Uuid::new_v4().to_string()))
        .column((0..count).map(|_| phone.clone()))
        .column((0..count).rev().map(|ago| now - Duration::from_millis(ago)))
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }

    /// Writes payouts, the first of them now and each a second older. Those in `newer` have a kind of
    /// destination that only a newer version knows.
    async fn write_payouts(&self, merchant: MerchantId, count: usize, newer: &[usize]) {
        let now: Timestamp = self.clock.now();
        let ages = || (0..count).map(|place| Duration::from_secs(place as u64));
        let kinds = (0..count).map(|place| match newer.contains(&place) {
            true => "NEWER",
            false => "MOBILE_MONEY",
        });
        let mut tx = self.db.begin().await.unwrap();
        tx.sql_set(
            "given (id uuid, shown text, merchant uuid, going_to text, at_rail uuid, token text,
                    at timestamptz)
             insert into disbursements
                 (disbursement_id, kind, shown_id, merchant_id, amount_minor, currency, scheduled,
                  destination_type, provider, account, rail, rail_reference, callback_token,
                  created_at, state, version, updated_at, completed_at, hints)
             select id, 'PAYOUT', shown, merchant, 100, 'GHS', false, going_to, 'MTN',
                  '+233241234567', 'momo', at_rail, token, at, 'COMPLETED', 3, at, at, 0
             from given",
            count,
        )
        .column((0..count).map(|_| DisbursementId::new()))
        .column((0..count).map(|place| format!("PO-{place}")))
        .column((0..count).map(|_| merchant))
        .column(kinds)
        .column((0..count).map(|_| RailReference::new()))
        .column((0..count).map(|_| Uuid::new_v4().to_string()))
        .column(ages().map(|age| now - age))
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }
}

impl World {
    /// The refunds on the only page.
    async fn listed_refunds(&self, request: ListRefundsRequest) -> Vec<String> {
        let page = self.disbursements.clone().list_refunds(request).await;
        let page = page.unwrap().into_inner();
        assert_eq!(page.next_page_token, "");
        let refunds = page.refunds.into_iter();
        refunds.map(|refund| refund.refund_id).collect()
    }

    /// Writes a refund of a charge, in the state of what arrived. Returns its shown id.
    async fn given_refund(&self, charge: &Charge, age: Duration) -> String {
        let (facts, id) = (&charge.facts, DisbursementId::new());
        let shown = format!("RF-{id}");
        let mut tx = self.db.begin().await.unwrap();
        tx.sql(
            "insert into disbursements
                 (disbursement_id, kind, shown_id, merchant_id, amount_minor, currency,
                  transaction_id, reference, session_id, scheduled, destination_type, provider,
                  account, rail, rail_reference, callback_token, created_at, state, version,
                  updated_at, completed_at, hints)
             values ($1, 'REFUND', $2, $3, 100, 'GHS', $4, $5, $6, false, 'MOBILE_MONEY', 'MTN',
                  '+233241234567', 'momo', $7, $8, $9, 'COMPLETED', 3, $9, $9, 0)",
        )
        .bind(id)
        .bind(&shown)
        .bind(facts.merchant_id)
        .bind(facts.transaction_id)
        .bind(facts.reference.as_str())
        .bind(facts.session_id)
        .bind(RailReference::new())
        .bind(Uuid::new_v4().to_string())
        .bind(self.clock.now() - age)
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
        shown
    }
}

pub fn of(merchant: MerchantId) -> ListChargesRequest {
    ListChargesRequest {
        merchant_id: merchant.to_string(),
        ..ListChargesRequest::default()
    }
}

pub fn references(charges: &[&Charge]) -> Vec<String> {
    let references = charges
        .iter()
        .map(|charge| charge.facts.reference.to_string());
    references.collect()
}

#[tokio::test]
async fn charges_are_listed_newest_first_without_void_ones_and_nothing_moves() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let mut written = Vec::new();
    for age in [50, 40, 30, 30, 30, 20] {
        let age = Duration::from_secs(age);
        written.push(world.given_by(merchant, &[Event::Accepted], age).await);
    }
    let void = [Event::Withdrawn];
    world
        .given_by(merchant, &void, Duration::from_secs(35))
        .await;
    let mut request = ListChargesRequest {
        page_size: 2,
        ..of(merchant)
    };
    let mut listed = Vec::new();
    loop {
        let (more, next) = world.listed(request.clone()).await;
        listed.extend(more);
        world.given_by(merchant, &void, Duration::ZERO).await;
        world
            .given_by(merchant, &[Event::Accepted], Duration::ZERO)
            .await;
        request.page_token = next;
        if request.page_token.is_empty() {
            break;
        }
    }
    let key = |charge: &Charge| (charge.facts.created_at, charge.facts.transaction_id);
    written.sort_by_key(|charge| std::cmp::Reverse(key(charge)));
    assert_eq!(listed, references(&written.iter().collect::<Vec<_>>()));
    world.end().await;
}

fn looking(merchant: MerchantId, look: &dyn Fn(&mut ListChargesRequest)) -> ListChargesRequest {
    let mut request = of(merchant);
    look(&mut request);
    request
}

#[tokio::test]
async fn charges_are_found_by_what_they_are_and_never_another_merchants() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let mut mtn = new_momo_charge(world.clock.now() - Duration::from_secs(3));
    mtn.facts_mut().merchant_id = merchant;
    mtn.facts_mut().phone = "+233241234567".parse().unwrap();
    let mtn = world.given(mtn, &[Event::Accepted, Event::Settled]).await;
    let failed = Event::Failed(FailureReason::PayerDeclined);
    let age = Duration::from_secs(2);
    let declined = world.given_by(merchant, &[failed], age).await;
    let again = world
        .given_next_charge(&declined, &[Event::CodeWanted])
        .await;
    let by = |look: &dyn Fn(&mut ListChargesRequest)| looking(merchant, look);
    let session = Some(declined.facts.session_id.to_string());
    let reference = Some(mtn.facts.reference.to_string());
    for (request, found) in [
        (
            by(&|wanted| wanted.reference.clone_from(&reference)),
            vec![&mtn],
        ),
        (
            by(&|wanted| wanted.session_id.clone_from(&session)),
            vec![&again, &declined],
        ),
        (
            by(&|wanted| wanted.phone = Some("+233241234567".to_owned())),
            vec![&mtn],
        ),
        (
            by(&|wanted| wanted.phone = Some("+233201234002".to_owned())),
            vec![&again, &declined],
        ),
        (
            by(&|wanted| wanted.status = ChargeStatus::Failed.into()),
            vec![&declined],
        ),
        (
            by(&|wanted| wanted.status = ChargeStatus::Initiated.into()),
            vec![],
        ),
        (
            by(&|wanted| wanted.provider = ProtoProvider::Mtn.into()),
            vec![&mtn],
        ),
        (
            by(&|wanted| {
                wanted.session_id.clone_from(&session);
                wanted.status = ChargeStatus::OtpRequired.into();
            }),
            vec![&again],
        ),
        (
            by(&|wanted| {
                wanted.session_id.clone_from(&session);
                wanted.reference.clone_from(&reference);
            }),
            vec![],
        ),
    ] {
        world.check_found(request, &found).await;
    }
    world.end().await;
}

#[tokio::test]
async fn charges_are_found_by_what_payers_see_by_reason_and_by_amount() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let settled = [Event::Accepted, Event::Settled];
    let paid = world
        .given_by(merchant, &settled, Duration::from_secs(3))
        .await;
    let failed = Event::Failed(FailureReason::PayerDeclined);
    let declined = world
        .given_by(merchant, &[failed], Duration::from_secs(2))
        .await;
    let all = paid.facts.amount().minor_units();
    let cedis = |minor_units| Some(Money::new(minor_units, Currency::GHS).into());
    let by = |look: &dyn Fn(&mut ListChargesRequest)| looking(merchant, look);
    let shown = Some(paid.facts.tx_id_display.to_string());
    for (request, found) in [
        (
            by(&|wanted| wanted.tx_id_display.clone_from(&shown)),
            vec![&paid],
        ),
        (
            by(&|wanted| {
                wanted.tx_id_display.clone_from(&shown);
                wanted.reference = Some(declined.facts.reference.to_string());
            }),
            vec![],
        ),
        (
            by(&|wanted| wanted.failure_reason = Some("PAYER_DECLINED".to_owned())),
            vec![&declined],
        ),
        (
            by(&|wanted| wanted.failure_reason = Some("INSUFFICIENT_FUNDS".to_owned())),
            vec![],
        ),
        (
            by(&|wanted| {
                wanted.amount_from = cedis(all);
                wanted.amount_to = cedis(all);
            }),
            vec![&declined, &paid],
        ),
        (by(&|wanted| wanted.amount_from = cedis(all + 1)), vec![]),
        (by(&|wanted| wanted.amount_to = cedis(all - 1)), vec![]),
    ] {
        world.check_found(request, &found).await;
    }
    world.end().await;
}

#[tokio::test]
async fn refunds_are_found_by_their_charge_and_session_and_never_another_merchants() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let failed = Event::Failed(FailureReason::PayerDeclined);
    let declined = world
        .given_by(merchant, &[failed], Duration::from_secs(9))
        .await;
    let settled = [Event::Accepted, Event::Settled];
    let paid = world.given_next_charge(&declined, &settled).await;
    let elsewhere = world
        .given_by(merchant, &settled, Duration::from_secs(8))
        .await;
    let mut refunds = Vec::new();
    for (charge, age) in [(&declined, 3), (&paid, 2), (&elsewhere, 1), (&paid, 0)] {
        refunds.push(world.given_refund(charge, Duration::from_secs(age)).await);
    }
    let session = Some(paid.facts.session_id.to_string());
    let all = ListRefundsRequest {
        merchant_id: merchant.to_string(),
        ..ListRefundsRequest::default()
    };
    let of_session = ListRefundsRequest {
        session_id: session,
        ..all.clone()
    };
    let pending = ListRefundsRequest {
        status: DisbursementStatus::Pending.into(),
        ..of_session.clone()
    };
    let of_both = |reference: &Reference| ListRefundsRequest {
        reference: reference.to_string(),
        ..of_session.clone()
    };
    for (request, found) in [
        (all, &[3, 2, 1, 0][..]),
        (of_session.clone(), &[3, 1, 0]),
        (of_both(&paid.facts.reference), &[3, 1]),
        (of_both(&elsewhere.facts.reference), &[]),
        (pending, &[]),
    ] {
        let expected = found.iter().map(|place| refunds[*place].clone());
        let expected: Vec<String> = expected.collect();
        assert_eq!(world.listed_refunds(request.clone()).await, expected);
        let anothers = ListRefundsRequest {
            merchant_id: MerchantId::new().to_string(),
            ..request
        };
        assert_eq!(world.listed_refunds(anothers).await, Vec::<String>::new());
    }
    let unreadable = ListRefundsRequest {
        session_id: Some("1".to_owned()),
        ..of_session
    };
    let answer = world.disbursements.clone().list_refunds(unreadable).await;
    check_invalid(answer, "session_id");
    world.end().await;
}

#[tokio::test]
async fn a_listed_charge_shows_its_payer_masked() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let mut charge = new_momo_charge(world.clock.now() - Duration::from_secs(3));
    charge.facts_mut().merchant_id = merchant;
    charge.facts_mut().phone = "+233241234567".parse().unwrap();
    world
        .given(charge, &[Event::Accepted, Event::Settled])
        .await;
    let page = world
        .charges
        .clone()
        .list_charges(of(merchant))
        .await
        .unwrap();
    let masked: Vec<String> = page
        .into_inner()
        .charges
        .into_iter()
        .map(|listed| listed.payer_masked)
        .collect();
    assert_eq!(masked, ["024 ••• 4567"]);
    world.end().await;
}

#[tokio::test]
async fn a_search_among_many_leads_on_without_having_found_any() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let settled = [Event::Accepted, Event::Settled];
    let age = Duration::from_secs(60);
    let charge = world.given_by(merchant, &settled, age).await;
    world.write_failed(&charge, 10_500).await;
    for phone in [None, Some(charge.facts.phone.as_e164().to_owned())] {
        let mut request = ListChargesRequest {
            status: ChargeStatus::Settled.into(),
            phone,
            ..of(merchant)
        };
        let (found, next) = world.listed(request.clone()).await;
        assert_eq!(found, Vec::<String>::new());
        assert!(!next.is_empty(), "the search goes on");
        request.page_token = next;
        let expected = (references(&[&charge]), String::new());
        assert_eq!(world.listed(request).await, expected);
    }
    world.end().await;
}

#[tokio::test]
async fn a_page_of_payouts_that_only_a_newer_version_knows_does_not_end_the_list() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    world.write_payouts(merchant, 7, &[0, 2, 3, 6]).await;
    let mut pages = Vec::new();
    let mut request = ListPayoutsRequest {
        merchant_id: merchant.to_string(),
        page_size: 2,
        ..ListPayoutsRequest::default()
    };
    loop {
        let page = world
            .disbursements
            .clone()
            .list_payouts(request.clone())
            .await;
        let page = page.unwrap().into_inner();
        let ids = page.payouts.into_iter().map(|payout| payout.payout_id);
        pages.push(ids.collect::<Vec<_>>());
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [vec!["PO-1"], vec![], vec!["PO-4", "PO-5"], vec![]]);
    let pending = ListPayoutsRequest {
        status: DisbursementStatus::Pending.into(),
        ..request.clone()
    };
    let found = world.disbursements.clone().list_payouts(pending).await;
    assert_eq!(found.unwrap().into_inner().payouts, []);
    world.end().await;
}

#[tokio::test]
async fn what_cannot_be_looked_for_is_named() {
    let world = World::start().await;
    let merchant = MerchantId::new();
    let bad = |spoil: &dyn Fn(&mut ListChargesRequest)| {
        let mut request = of(merchant);
        spoil(&mut request);
        request
    };
    let id = ChargeId::new();
    for (request, field) in [
        (
            bad(&|wanted| wanted.page_token = id.to_string()),
            "page_token",
        ),
        (
            bad(&|wanted| wanted.page_token = format!("1.{id}0")),
            "page_token",
        ),
        (bad(&|wanted| wanted.page_size = 101), "page_size"),
        (bad(&|wanted| wanted.from = "2026-01-31".to_owned()), "from"),
        (
            bad(&|wanted| wanted.reference = Some("TX-1".to_owned())),
            "reference",
        ),
        (
            bad(&|wanted| wanted.session_id = Some(String::new())),
            "session_id",
        ),
        (
            bad(&|wanted| wanted.phone = Some("024".to_owned())),
            "phone",
        ),
        (
            bad(&|wanted| wanted.tx_id_display = Some("TX-1-1".to_owned())),
            "tx_id_display",
        ),
        (
            bad(&|wanted| wanted.failure_reason = Some("BECAUSE".to_owned())),
            "failure_reason",
        ),
        (
            bad(&|wanted| wanted.amount_from = Some(Money::new(1, Currency::USD).into())),
            "amount_from",
        ),
        (
            bad(&|wanted| wanted.merchant_id = String::new()),
            "merchant_id",
        ),
    ] {
        check_invalid(world.charges.clone().list_charges(request).await, field);
    }
    world.end().await;
}

#[tokio::test]
async fn one_replica_gives_transactions_their_wallets_page_by_page_and_then_rests() {
    let world = World::start().await;
    let replica = world.replica().await;
    let mut places = Vec::new();
    let mut expected = Vec::new();
    for number in 0..3 {
        let charge = world.given_charge(&[Event::Accepted]).await;
        let place = TransactionPlace {
            session_id: charge.facts.session_id.to_string(),
            charge_number: number,
            transaction_id: charge.facts.transaction_id.to_string(),
        };
        places.push(place.clone());
        expected.push(WalletOfTransaction {
            transaction: Some(place),
            wallet: Some(Wallet {
                provider: "TELECEL".to_owned(),
                last_four: "4002".to_owned(),
            }),
        });
    }
    // One that nobody knows holds up none.
    places.insert(
        1,
        TransactionPlace {
            transaction_id: ChargeId::new().to_string(),
            ..places[0].clone()
        },
    );
    world.updates.lack(places);
    world.clock.advance(Duration::from_secs(31)).await.unwrap();
    until("the wallets were added", async || {
        world.updates.wallets() == expected
    })
    .await;
    // Now that it is at the end, none looks again before it has rested.
    for minutes in [10, 61] {
        let rested = Duration::from_secs(minutes * 60);
        world.clock.advance(rested).await.unwrap();
    }
    let of_round = ["", "1", "2", "3"];
    until("the next round ended", async || {
        world.updates.pages().len() >= 2 * of_round.len()
    })
    .await;
    let pages = world.updates.pages();
    let tokens: Vec<&str> = pages.iter().map(|(token, _)| token.as_str()).collect();
    assert_eq!(tokens, [of_round, of_round].concat());
    for round in pages.chunks(of_round.len()) {
        for pair in round.windows(2) {
            let paused = pair[1].1 - pair[0].1;
            assert!(paused >= Duration::from_millis(990), "{paused:?}");
        }
    }
    replica.stop().await;
    world.end().await;
}
