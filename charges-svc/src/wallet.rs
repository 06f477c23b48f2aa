//! Looks at a payer's wallet before anybody charges it.
//!
//! Promise: nobody is prompted, nothing is recorded, and a look is made only while no query about
//! money waits for its turn.

use chassis::{phone::Phone, provider::Provider};
use rails::WalletOutcome;

use crate::service::Service;

impl Service {
    /// What the rail says of a wallet. Unknown as well if the rail is busy.
    pub async fn check_wallet(&self, provider: Provider, phone: &Phone) -> WalletOutcome {
        let rail = self.rails.for_provider(provider);
        if !rail.name.terms().tells_wallets {
            return WalletOutcome::Unknown;
        }
        let Some(turn) = self.turns.at(rail.name).take_look() else {
            return WalletOutcome::Unknown;
        };
        turn.using(async { rail.wallet(phone).await.outcome }).await
    }
}
