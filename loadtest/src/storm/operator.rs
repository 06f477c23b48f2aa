//! The operator, who sends each merchant's payouts to another account all the time.

use std::time::Duration;

use chassis::grpc::Channel;
use proto::charges::{
    SetPayoutSwitchesRequest, disbursement_operations_client::DisbursementOperationsClient,
};
use tokio::time::sleep;

use super::{choices::Choices, wallets, world::World};
use crate::grpc;

/// Bounds of the pause between two changes, in milliseconds.
const PAUSE_MS: (u64, u64) = (20, 200);

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

fn connect(charges_url: &str) -> anyhow::Result<DisbursementOperationsClient<Channel>> {
    let channel = grpc::connect(charges_url)?;
    Ok(DisbursementOperationsClient::new(channel))
}
