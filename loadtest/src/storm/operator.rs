//! The operator, who sends each merchant's payouts to another account all the time, and ends in the
//! end what only a person may end.

use std::{collections::BTreeSet, time::Duration};

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

/// Ends what only a person may, because its network has taken nothing: the answer to its first send
/// was lost, and the second was refused, or there will be none, as with Hubtel or where the payer has
/// the money by another refund. In production a case asks for it after a day. Adds what was ended to
/// `given_up`.
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
    if one.state != "PROCESSING" {
        return false;
    }
    let key = (one.rail.clone(), one.rail_reference.to_string());
    let at_network = books.credits.get(&key);
    let is_never_taken = at_network.is_none_or(|credit| credit.status == "refused");
    // Hubtel gets nothing twice.
    let may_be_resent = one.rail != "hubtel" && !is_barred(one, records);
    let last_sent_at = match may_be_resent {
        true => one.resent_at,
        false => one.resent_at.or(one.sent_at),
    };
    let is_given_up = last_sent_at.is_some_and(|sent_at| now.since(sent_at) >= GIVEN_UP_AFTER);
    is_given_up && is_never_taken
}

/// Whether charges-svc sends a refund no more, because its payer has the money: the rail took the
/// payment back, or the charge's refunds, with those that were paid after they had failed, would be
/// more than was collected.
fn is_barred(one: &Disbursement, records: &Records) -> bool {
    let mut charges = records.charges.iter();
    let charge = charges.find(|charge| Some(charge.transaction_id) == one.transaction_id);
    let Some(charge) = charge else {
        return false;
    };
    let is_posted = |kind: &str, subject: Uuid| {
        let mut postings = records.postings.iter();
        postings.any(|posting| posting.kind == kind && posting.subject == subject)
    };
    let was_paid_late = |id| is_posted("LATE_DISBURSEMENT", id) && !is_posted("LATE_REVERSAL", id);
    let refunds = records.disbursements.iter().filter(|refund| {
        refund.transaction_id == one.transaction_id
            && refund.reversed_at.is_none()
            && (refund.state != "FAILED" || was_paid_late(refund.disbursement_id))
    });
    let refunded: i64 = refunds.map(|refund| refund.amount_minor).sum();
    let mut cases = records.cases.iter();
    refunded > charge.amount_minor
        || cases.any(|case| case.subject == charge.transaction_id && case.kind == "REVERSED")
}

fn connect(charges_url: &str) -> anyhow::Result<DisbursementOperationsClient<Channel>> {
    let channel = grpc::connect(charges_url)?;
    Ok(DisbursementOperationsClient::new(channel))
}
