//! The one client of the MTN collection product.

use chassis::money::Currency;
use clap::Args;

#[derive(Clone, Args)]
pub struct MomoSettings {
    /// Subscription key of MTN's collection product.
    #[arg(long, env = "MOMO_SUBSCRIPTION_KEY", hide_env_values = true)]
    pub momo_subscription_key: String,

    /// API user that gets MTN's tokens.
    #[arg(long, env = "MOMO_API_USER", hide_env_values = true)]
    pub momo_api_user: String,

    /// Key of that API user.
    #[arg(long, env = "MOMO_API_KEY", hide_env_values = true)]
    pub momo_api_key: String,

    /// The only X-Target-Environment that MTN serves.
    #[arg(long, env = "MOMO_TARGET_ENVIRONMENT", default_value = "mtnghana")]
    pub momo_target_environment: String,

    /// The only currency that MTN debits.
    #[arg(long, env = "MOMO_CURRENCY", default_value = "GHS")]
    pub momo_currency: Currency,

    /// The API user's providerCallbackHost. Without it, callbacks may go anywhere.
    #[arg(long, env = "MOMO_CALLBACK_HOST")]
    pub momo_callback_host: Option<String>,
}
