//! Looks at a payer's wallet before anybody charges it.
//!
//! Promise: nobody is prompted, nothing is recorded, and a look is made only while no query about
//! money waits for its turn.

use std::{sync::Arc, time::Duration};

use chassis::{phone::Phone, provider::Provider};
use rails::WalletOutcome;
use tokio::time::{sleep, timeout};

use crate::{
    service::Service,
    turns::{RailTurns, Turn},
};

/// How long a look waits for its turn. After that, nothing is known of the wallet.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How often it tries. The budget of a rail that allows ten calls a second earns one in 100 ms.
const TRY_EVERY: Duration = Duration::from_millis(20);

impl Service {
    /// What the rail says of a wallet. Unknown as well if the rail is busy.
    pub async fn check_wallet(&self, provider: Provider, phone: &Phone) -> WalletOutcome {
        let rail = self.rails.for_provider(provider);
        if !rail.name.terms().tells_wallets {
            return WalletOutcome::Unknown;
        }
        let Ok(turn) = timeout(WAIT_MAX, turn(self.turns.at(rail.name))).await else {
            metrics::counter!("wallet_looks_refused_total").increment(1);
            return WalletOutcome::Unknown;
        };
        turn.using(async { rail.wallet(provider, phone).await.outcome })
            .await
    }
}

async fn turn(turns: &Arc<RailTurns>) -> Turn {
    loop {
        if let Some(turn) = turns.take_look() {
            return turn;
        }
        sleep(TRY_EVERY).await;
    }
}
