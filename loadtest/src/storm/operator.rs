//! The operator, who sends each merchant's payouts to another account all the time, and ends in the
//! end what only a person may end.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use chassis::{
    clock::{Clock, Timestamp},
    grpc::Channel,
};
use proto::charges::{
    ResolveDisbursementRequest, SetPayoutSwitchesRequest,
    disbursement_operations_client::DisbursementOperationsClient,
    resolve_disbursement_request::Outcome,
};
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    books::Books,
    choices::Choices,
    store::{Disbursement, Records},
    wallets,
    world::World,
};
use crate::grpc;

/// Bounds of the pause between two changes, in milliseconds.
const PAUSE_MS: (u64, u64) = (20, 200);

/// How long after its last send a disbursement is given up of which its network has taken nothing:
/// much longer than a send may take.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(45);

/// Gives every merchant an account, and lets it ask for payouts.
pub async fn prepare(charges_url: &str, world: &World) -> anyhow::Result<()> {
    let mut operator = connect(charges_url)?;
    let mut choices = Choices::of(world.seed, "accounts");
    for merchant in &world.merchants {
        let account = wallets::payee(&mut choices, &merchant.merchant_id);
        operator.set_payout_account(account).await?;
        let switches = SetPayoutSwitchesRequest {
            merchant_id: merchant.merchant_id.clone(),
            payouts_on_request: Some(true),
            daily_settlement: None,
        };
        operator.set_payout_switches(switches).await?;
    }
    Ok(())
}

/// Changes accounts until the storm calms down.
pub async fn change_accounts(charges_url: &str, world: &World) -> anyhow::Result<()> {
    let mut operator = connect(charges_url)?;
    let mut choices = Choices::of(world.seed, "operator");
    while !world.calm.has_begun() {
        if let Some(merchant) = choices.one_of(&world.merchants) {
            let account = wallets::payee(&mut choices, &merchant.merchant_id);
            // While charges-svc is down there is no answer, and the next change follows.
            drop(operator.set_payout_account(account).await);
        }
        let (from, to) = PAUSE_MS;
        sleep(Duration::from_millis(choices.between(from, to))).await;
    }
    Ok(())
}

/// Ends what only a person may: the answer to its first send was lost, the second was refused, or
/// there is none, and its network has taken neither. In production a case asks for it after a day.
/// Adds what was ended to `given_up`.
pub async fn give_up(
    charges_url: &str,
    records: &Records,
    books: &Books,
    given_up: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let now = Clock::system().now();
    let lost = records.disbursements.iter();
    for one in lost.filter(|one| is_lost(one, records, books, now)) {
        let request = ResolveDisbursementRequest {
            id: one.shown_id.clone(),
            outcome: Some(Outcome::FailedReason("PAYEE_NOT_FOUND".to_owned())),
            evidence: "the network's book: never taken".to_owned(),
        };
        connect(charges_url)?.resolve_disbursement(request).await?;
        given_up.insert(one.shown_id.clone());
    }
    Ok(())
}

fn is_lost(one: &Disbursement, records: &Records, books: &Books, now: Timestamp) -> bool {
    let key = (one.rail.clone(), one.rail_reference.to_string());
    let at_network = books.credits.get(&key);
    let is_never_taken = at_network.is_none_or(|credit| credit.status == "refused");
    // Hubtel gets nothing twice, and a payer who has the money no second refund.
    let may_be_resent = one.rail != "hubtel" && !is_paid_otherwise(one, records);
    let last_sent_at = match may_be_resent {
        true => one.resent_at,
        false => one.resent_at.or(one.sent_at),
    };
    let is_given_up = last_sent_at.is_some_and(|sent_at| now.since(sent_at) >= GIVEN_UP_AFTER);
    one.state == "PROCESSING" && is_given_up && is_never_taken
}

/// Whether another refund of the same charge was paid after it had failed.
fn is_paid_otherwise(one: &Disbursement, records: &Records) -> bool {
    let late = records.postings.iter();
    let late = late.filter(|posting| posting.kind == "LATE_DISBURSEMENT");
    let late: HashSet<Uuid> = late.map(|posting| posting.subject).collect();
    let mut refunds = records.disbursements.iter();
    one.transaction_id.is_some()
        && refunds.any(|other| {
            other.transaction_id == one.transaction_id && late.contains(&other.disbursement_id)
        })
}

fn connect(charges_url: &str) -> anyhow::Result<DisbursementOperationsClient<Channel>> {
    let channel = grpc::connect(charges_url)?;
    Ok(DisbursementOperationsClient::new(channel))
}
