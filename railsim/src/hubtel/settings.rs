//! The one client of Hubtel.

use std::net::IpAddr;

use chassis::config::Refusals;
use clap::Args;

/// How many addresses Hubtel lists for one service.
const ADDRESSES_MAX: usize = 4;

#[derive(Clone, Args)]
pub struct HubtelSettings {
    /// Hubtel's API id.
    #[arg(long, env = "HUBTEL_API_ID", hide_env_values = true)]
    pub hubtel_api_id: String,

    /// Key of that API id.
    #[arg(long, env = "HUBTEL_API_KEY", hide_env_values = true)]
    pub hubtel_api_key: String,

    /// Hubtel's account that collects.
    #[arg(long, env = "HUBTEL_POS_SALES_ID")]
    pub hubtel_pos_sales_id: String,

    /// Hubtel's account that pays.
    #[arg(long, env = "HUBTEL_PREPAID_DEPOSIT_ID")]
    pub hubtel_prepaid_deposit_id: String,

    /// The only IP addresses that may call Hubtel, at most four. Without any, everybody may.
    #[arg(long, env = "HUBTEL_ALLOWED_ADDRESSES", value_delimiter = ',')]
    pub hubtel_allowed_addresses: Vec<IpAddr>,
}

impl HubtelSettings {
    pub fn check(&self, refusals: &mut Refusals) {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let id = &self.hubtel_api_id;
        let wants = "one word without a colon";
        refusals.unless(is_word(id) && !id.contains(':'), "HUBTEL_API_ID", wants);
        let is_key = is_word(&self.hubtel_api_key);
        refusals.unless(is_key, "HUBTEL_API_KEY", "one word");
        for (variable, account) in [
            ("HUBTEL_POS_SALES_ID", &self.hubtel_pos_sales_id),
            ("HUBTEL_PREPAID_DEPOSIT_ID", &self.hubtel_prepaid_deposit_id),
        ] {
            let is_id = !account.is_empty() && account.bytes().all(|b| b.is_ascii_alphanumeric());
            refusals.unless(is_id, variable, "letters and digits");
        }
        let are_few = self.hubtel_allowed_addresses.len() <= ADDRESSES_MAX;
        let wants = "at most four addresses";
        refusals.unless(are_few, "HUBTEL_ALLOWED_ADDRESSES", wants);
    }
}
