//! Steps and records that are written together mean what they mean one after the other.

use std::collections::BTreeMap;

use charges_svc::{
    charge::{Charge, Event},
    ledger,
    store::{
        self,
        evidence::{Action, Statement},
        idempotency::{Answer, KEYS},
        steps::{HintEnd, Step, Written},
    },
};
use chassis::{
    charge_status::ChargeStatus,
    failure::FailureReason,
    ids::MerchantId,
    money::{Currency, Money},
    testing::{check_refusal, fake_server::empty, until},
};
use db::{
    Insert, Tx,
    idempotency::{IdempotencyKey, KeyUse},
};
use futures::future::join_all;
use proptest::prelude::*;
use proto::charges::{ChargeStatus as ProtoStatus, GetChargeRequest};
use rails::testing::with_tokens;
use tonic::Code;

use crate::{
    store::Bare,
    world::{Neighbour, World, lease, new_charge, request, timing},
};

/// What happens to a charge, and how it stood before.
#[derive(Clone, Debug)]
struct Plan {
    merchant: usize,
    /// A callback waits.
    is_hinted: bool,
    /// The same was said before.
    is_repeated: bool,
    /// Its request has been answered.
    is_answered: bool,
    event: Option<Event>,
    fee: i64,
    hint: HintEnd,
    is_seen: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let events = prop_oneof![
        Just(None),
        Just(Some(Event::Accepted)),
        Just(Some(Event::CodeWanted)),
        Just(Some(Event::Unanswered)),
        Just(Some(Event::Settled)),
        Just(Some(Event::Settled)),
        Just(Some(Event::Failed(FailureReason::PayerDeclined))),
    ];
    let hints = prop_oneof![Just(HintEnd::NotYet), Just(HintEnd::Answered)];
    let yes = any::<bool>;
    (
        0..3_usize,
        yes(),
        yes(),
        yes(),
        events,
        0..3_i64,
        hints,
        yes(),
    )
        .prop_map(
            |(merchant, is_hinted, is_repeated, is_answered, event, fee, hint, is_seen)| Plan {
                merchant,
                is_hinted,
                is_repeated,
                is_answered,
                event,
                fee,
                hint,
                is_seen,
            },
        )
}

/// Writes a charge as planned, and returns the step that it is to take.
async fn given(bare: &Bare, merchants: &[MerchantId], number: usize, plan: &Plan) -> Step {
    let now = bare.clock.now();
    let mut charge = new_charge(now);
    charge.facts_mut().merchant_id = merchants[plan.merchant];
    charge.facts_mut().description = Some(format!("charge {number}"));
    charge.claim = lease(&bare.clock).into();
    let id = charge.facts.transaction_id;
    let mut tx = bare.db.begin().await.unwrap();
    let key = IdempotencyKey {
        merchant_id: charge.facts.merchant_id,
        key: format!("c:{id}"),
        fingerprint: "f".to_owned(),
    };
    let taken: KeyUse<store::idempotency::FirstRequest> =
        KEYS.take(&mut tx, &key, id, now).await.unwrap();
    assert!(matches!(taken, KeyUse::First));
    let inserted = store::charges::insert(&mut tx, &charge).await.unwrap();
    assert_eq!(inserted, Insert::Inserted);
    if plan.is_hinted {
        let _there = store::hints::put(&mut tx, id, now).await.unwrap();
        charge.timer.hints = 1;
    }
    let said = Statement {
        action: Action::Query,
        outcome: "pending",
        rail_text: Some(format!("HTTP 200 to {number}")),
        at: now,
    };
    if plan.is_repeated {
        let said = (said.action, said.outcome);
        let text = format!("HTTP 200 to {number}");
        store::evidence::keep(&mut tx, id.uuid(), said, Some(&text), now)
            .await
            .unwrap();
    }
    if plan.is_answered {
        let (status, message) = (ChargeStatus::Initiated, "before");
        let _first = store::idempotency::answer(&mut tx, id, status, message)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut after = match plan.event {
        Some(event) => charge.after(event, now, timing()).unwrap(),
        None => charge.clone(),
    };
    after.progress.seen_at_rail |= plan.is_seen;
    let mut step = Step::new(&charge, after, now);
    step.hint = plan.hint.clone();
    step.evidence = Some(said);
    if plan.event == Some(Event::Settled) {
        step.postings
            .push(ledger::settlement(&charge.facts).unwrap());
        if plan.fee > 0 {
            let fee = Money::new(plan.fee, Currency::GHS);
            let fee = ledger::rail_fee(&charge.facts, fee, "rails").unwrap();
            step.postings.push(fee);
        }
    } else {
        step.answer = Some(Answer {
            status: ChargeStatus::Initiated,
            message: "now".to_owned(),
        });
    }
    step
}

/// Everything that is written about charges, by their descriptions and merchants' numbers.
async fn written(bare: &Bare, steps: &[Step], merchants: &[MerchantId]) -> Vec<String> {
    let mut conn = bare.db.read().await.unwrap();
    let mut all = Vec::new();
    for step in steps {
        let id = step.after.facts.transaction_id;
        let charge = store::charges::find(&mut conn, id).await.unwrap().unwrap();
        all.push(format!("{:?}", charge.progress.state));
        all.push(format!(
            "{:?} {:?}",
            charge.progress.version, charge.progress.failure_reason
        ));
        all.push(format!(
            "{} {}",
            charge.progress.seen_at_rail, charge.timer.hints
        ));
        all.push(format!("{}", charge.claim.fence.is_some()));
        let due = charge.timer.next_query_at;
        all.push(format!(
            "{:?}",
            due.map(|due| due.since(charge.facts.created_at))
        ));
        let (is_waiting, status, message, is_kept): (bool, Option<String>, Option<String>, bool) =
            conn.sql(
                "select hint_due_at is not null, answer_status, answer_message, forget_at is null
                 from charges join idempotency_keys
                     on idempotency_keys.transaction_id = charges.transaction_id
                 where charges.transaction_id = $1",
            )
            .bind(id)
            .one()
            .await
            .unwrap();
        all.push(format!("{is_waiting} {status:?} {message:?} {is_kept}"));
        for said in store::evidence::list(&mut conn, id.uuid()).await.unwrap() {
            all.push(format!(
                "{} {} {}",
                said.outcome, said.rail_text, said.times
            ));
        }
        for line in store::postings::list(&mut conn, id).await.unwrap() {
            let (merchant, _) = line.account.split_once(':').unwrap();
            all.push(format!("{} {merchant} {:?}", line.kind, line.amount()));
        }
    }
    for merchant in merchants {
        let balances = store::postings::balances(&mut conn, *merchant, false)
            .await
            .unwrap();
        all.push(format!("{balances:?}"));
    }
    assert_eq!(store::postings::imbalances(&mut conn).await.unwrap(), []);
    let left = store::postings::false_balances(&mut conn).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let unqueued = store::blocks::unqueued(&mut conn, 10).await.unwrap();
    assert_eq!(unqueued, []);
    all
}

async fn write(bare: &Bare, steps: &[&Step]) -> Written {
    let mut tx: Tx = bare.db.begin().await.unwrap();
    let written = store::steps::write(&mut tx, steps).await.unwrap();
    if written == Written::All {
        tx.commit().await.unwrap();
    }
    written
}

/// How steps are written.
enum Way {
    OneByOne,
    Together,
    /// Without a look at their charges; on PostgreSQL only.
    AtOnce,
}

fn merchants() -> [MerchantId; 3] {
    [(); 3].map(|()| MerchantId::new())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_set_of_steps_is_what_its_steps_are(plans in prop::collection::vec(plan(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut each = Vec::new();
            for way in [Way::OneByOne, Way::Together, Way::AtOnce] {
                let (bare, merchants) = (Bare::new().await, merchants());
                let mut steps = Vec::new();
                for (number, plan) in plans.iter().enumerate() {
                    steps.push(given(&bare, &merchants, number, plan).await);
                }
                let all: Vec<&Step> = steps.iter().collect();
                match way {
                    Way::OneByOne => {
                        for step in &all {
                            assert_eq!(write(&bare, &[step]).await, Written::All);
                        }
                    }
                    Way::AtOnce if bare.db.is_postgres() => {
                        assert!(store::steps::write_at_once(&bare.db, &all).await.unwrap());
                    }
                    Way::Together | Way::AtOnce => {
                        assert_eq!(write(&bare, &all).await, Written::All);
                    }
                }
                each.push(written(&bare, &steps, &merchants).await);
            }
            assert_eq!(each[0], each[1]);
            assert_eq!(each[0], each[2]);
        });
    }
}

/// A charge that settles for this merchant.
fn settling(merchant: usize) -> Plan {
    Plan {
        merchant,
        is_hinted: false,
        is_repeated: false,
        is_answered: false,
        event: Some(Event::Settled),
        fee: 1,
        hint: HintEnd::NotYet,
        is_seen: true,
    }
}

#[tokio::test]
async fn a_step_is_not_written_at_once_if_its_charge_has_changed_or_is_locked() {
    let bare = Bare::new().await;
    if !bare.db.is_postgres() {
        return;
    }
    let merchants = merchants();
    let changes = [
        "update charges set hints = hints + 1 where transaction_id = $1",
        "update charges set fence = null, lease_until = null where transaction_id = $1",
        "update charges set fence = rail_reference where transaction_id = $1",
        "update charges set version = version + 1 where transaction_id = $1",
        "update charges set resent_at = created_at where transaction_id = $1",
        "update charges set mismatched = true where transaction_id = $1",
        "update charges set state = 'INITIATED' where transaction_id = $1",
        // It has not changed, but whoever has it locked may change it.
        "select 1 from charges where transaction_id = $1 for update",
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut steps = Vec::new();
        for _ in 0..3 {
            steps.push(given(&bare, &merchants, number, &settling(0)).await);
        }
        let all: Vec<&Step> = steps.iter().collect();
        let mut tx = bare.db.begin().await.unwrap();
        let id = steps[1].after.facts.transaction_id;
        tx.sql(change).bind(id).run().await.unwrap();
        let is_locked = change.starts_with("select");
        if !is_locked {
            tx.commit().await.unwrap();
            tx = bare.db.begin().await.unwrap();
        }
        let is_written = store::steps::write_at_once(&bare.db, &all).await.unwrap();
        assert!(!is_written, "{change}");
        drop(tx);
        for step in [&steps[0], &steps[2]] {
            // The server tells of a failure a moment before it lets go of the charges.
            until("their charges are free", async || {
                let written = store::steps::write_at_once(&bare.db, &[step]).await;
                written.unwrap()
            })
            .await;
        }
    }
    let mut conn = bare.db.read().await.unwrap();
    let balance = store::postings::balances(&mut conn, merchants[0], false).await;
    let settled = i64::try_from(2 * changes.len()).unwrap();
    assert_eq!(
        balance.unwrap().available,
        [Money::new(settled * 2550, Currency::GHS)]
    );
}

/// Whoever was late to see it may write so, and has not changed the charge otherwise.
#[tokio::test]
async fn what_the_rail_has_shown_meanwhile_stays_shown() {
    let (bare, merchants) = (Bare::new().await, merchants());
    if !bare.db.is_postgres() {
        return;
    }
    let plan = Plan {
        event: Some(Event::Unanswered),
        is_seen: false,
        ..settling(0)
    };
    let step = given(&bare, &merchants, 0, &plan).await;
    let id = step.after.facts.transaction_id;
    let mut tx = bare.db.begin().await.unwrap();
    let seen = "update charges set seen_at_rail = true where transaction_id = $1";
    tx.sql(seen).bind(id).run().await.unwrap();
    tx.commit().await.unwrap();
    let written = store::steps::write_at_once(&bare.db, &[&step]).await;
    assert!(written.unwrap());
    let mut conn = bare.db.read().await.unwrap();
    let charge = store::charges::find(&mut conn, id).await.unwrap().unwrap();
    assert!(charge.progress.seen_at_rail);
}

#[tokio::test]
async fn a_step_that_was_written_is_not_written_at_once_again() {
    let (bare, merchants) = (Bare::new().await, merchants());
    if !bare.db.is_postgres() {
        return;
    }
    let step = given(&bare, &merchants, 0, &settling(0)).await;
    for is_first in [true, false] {
        let written = store::steps::write_at_once(&bare.db, &[&step]).await;
        assert_eq!(written.unwrap(), is_first);
    }
}

#[tokio::test]
async fn a_step_whose_posting_is_there_is_not_written_at_once() {
    let (bare, merchants) = (Bare::new().await, merchants());
    if !bare.db.is_postgres() {
        return;
    }
    let step = given(&bare, &merchants, 0, &settling(0)).await;
    let mut tx = bare.db.begin().await.unwrap();
    let posted = store::postings::post(&mut tx, &step.postings[0], step.at).await;
    assert_eq!(posted.unwrap(), Insert::Inserted);
    tx.commit().await.unwrap();
    let written = store::steps::write_at_once(&bare.db, &[&step]).await;
    assert!(!written.unwrap());
    let mut conn = bare.db.read().await.unwrap();
    let balance = store::postings::balances(&mut conn, merchants[0], false).await;
    assert_eq!(
        balance.unwrap().available,
        [Money::new(2550, Currency::GHS)]
    );
    let id = step.after.facts.transaction_id;
    let charge = store::charges::find(&mut conn, id).await.unwrap().unwrap();
    assert!(!charge.progress.state.is_terminal());
}

#[tokio::test]
async fn a_charge_that_has_changed_takes_no_step_and_neither_does_its_set() {
    let (bare, merchants) = (Bare::new().await, merchants());
    let plan = settling(0);
    let mut steps = Vec::new();
    for number in 0..4 {
        steps.push(given(&bare, &merchants, number, &plan).await);
    }
    assert_eq!(write(&bare, &[&steps[2]]).await, Written::All);
    let all: Vec<&Step> = steps.iter().collect();
    assert_eq!(write(&bare, &all).await, Written::NotAsBefore);
    let mut conn = bare.db.read().await.unwrap();
    let balance = store::postings::balances(&mut conn, merchants[0], false).await;
    assert_eq!(
        balance.unwrap().available,
        [Money::new(2550, Currency::GHS)]
    );
    drop(conn);
    assert_eq!(
        write(&bare, &[&steps[0], &steps[1], &steps[3]]).await,
        Written::All
    );
    let mut conn = bare.db.read().await.unwrap();
    let balance = store::postings::balances(&mut conn, merchants[0], false).await;
    assert_eq!(
        balance.unwrap().available,
        [Money::new(4 * 2550, Currency::GHS)]
    );
}

/// Two replicas settle at the same time, for the same merchants and in opposite orders.
#[tokio::test]
async fn sets_that_share_merchants_do_not_wait_for_each_other() {
    let (bare, merchants) = (Bare::new().await, merchants());
    let mut sets: Vec<Vec<Step>> = Vec::new();
    for round in 0..8 {
        let mut set = Vec::new();
        for number in 0..6 {
            let plan = settling(match round % 2 {
                0 => number % 3,
                _ => 2 - number % 3,
            });
            set.push(given(&bare, &merchants, number, &plan).await);
        }
        sets.push(set);
    }
    let writing = sets.iter().map(async |set| {
        let set: Vec<&Step> = set.iter().collect();
        write(&bare, &set).await
    });
    for written in join_all(writing).await {
        assert_eq!(written, Written::All);
    }
    let mut conn = bare.db.read().await.unwrap();
    for merchant in merchants {
        let balance = store::postings::balances(&mut conn, merchant, false).await;
        assert_eq!(
            balance.unwrap().available,
            [Money::new(16 * 2550, Currency::GHS)]
        );
    }
}

/// Each request of a storm has its own outcome, and so has each that repeats it.
#[tokio::test]
async fn requests_that_come_at_once_are_each_recorded_and_answered() {
    let network = with_tokens(|_| empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let requests: Vec<_> = (0..40).map(|_| request()).collect();
    let create = |request: &proto::charges::CreateChargeRequest| {
        let (mut charges, request) = (world.charges.clone(), request.clone());
        async move { charges.create_charge(request).await }
    };
    let answers = join_all(requests.iter().chain(&requests).map(create)).await;
    let mut references: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let keys = requests.iter().chain(&requests);
    for (request, answer) in keys.zip(answers) {
        match answer {
            Ok(answer) => {
                let reference = answer.into_inner().charge.unwrap().reference;
                let key = request.idempotency_key.as_str();
                references.entry(key).or_default().push(reference);
            }
            Err(status) => assert_eq!(
                chassis::grpc::reason(&status).as_deref(),
                Some("IDEMPOTENCY_IN_PROGRESS")
            ),
        }
    }
    assert_eq!(references.len(), 40, "each key is answered");
    for told in references.values() {
        assert!(told.iter().all(|reference| *reference == told[0]));
    }
    let asked = |call: &String| call.starts_with("POST") && call.ends_with("/requesttopay");
    let posted = network.calls().iter().filter(|call| asked(call)).count();
    assert_eq!(posted, 40, "each goes to the rail once");
    assert!(
        world.updates.batches() > 0,
        "their sessions are opened together"
    );
    // The same again is the same answer.
    for request in &requests {
        let again = create(request).await.unwrap().into_inner();
        let reference = again.charge.unwrap().reference;
        assert_eq!(references[request.idempotency_key.as_str()][0], reference);
    }
    world.end().await;
}

/// Charges of one session that come at once: one is recorded.
#[tokio::test]
async fn a_set_records_one_charge_of_a_session() {
    let bare = Bare::new().await;
    let mut charges: Vec<Charge> = (0..3).map(|_| new_charge(bare.clock.now())).collect();
    let session_id = charges[0].facts.session_id;
    for charge in &mut charges {
        let facts = charge.facts_mut();
        (facts.session_id, facts.hosted) = (session_id, true);
    }
    let other = new_charge(bare.clock.now());
    let mut tx = bare.db.begin().await.unwrap();
    let mut set: Vec<_> = charges.iter().map(|charge| (charge, None)).collect();
    set.push((&other, Some(1)));
    let inserted = store::charges::insert_set(&mut tx, &set).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(inserted.len(), 2);
    assert!(inserted.contains(&(other.facts.transaction_id, 1)));
}

#[tokio::test]
async fn charges_that_are_read_together_are_shown_each_to_its_own_reader() {
    let world = World::start().await;
    let mut wanted = Vec::new();
    for events in [&[][..], &[Event::Accepted], &[Event::Withdrawn]] {
        let charge = world.given_charge(events).await;
        let shown = charge.progress.state.shown();
        let (own, foreign) = (charge.facts.merchant_id, MerchantId::new());
        for (merchant, shown) in [(own, shown), (foreign, None), (own, shown)] {
            wanted.push((charge.facts.reference.clone(), merchant, shown));
        }
    }
    for _ in 0..5 {
        let answers = join_all(wanted.iter().map(|(reference, merchant, _)| {
            let mut charges = world.charges.clone();
            let get = GetChargeRequest {
                merchant_id: merchant.to_string(),
                reference: reference.to_string(),
            };
            async move { charges.get_charge(get).await }
        }))
        .await;
        for ((reference, _, shown), answer) in wanted.iter().zip(answers) {
            let Some(shown) = shown else {
                check_refusal(answer, Code::NotFound, "CHARGE_NOT_FOUND");
                continue;
            };
            let charge = answer.unwrap().into_inner();
            assert_eq!(charge.reference, reference.as_str());
            assert_eq!(charge.status(), ProtoStatus::from(*shown));
        }
    }
    world.end().await;
}
