//! The one client of MTN's collection product, and of its disbursement product.

use chassis::{config::Refusals, money::Currency};
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

    /// Subscription key of MTN's disbursement product. Without it and the next two, that product is
    /// not there for anybody.
    #[arg(
        long,
        env = "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
        hide_env_values = true
    )]
    pub momo_disbursement_subscription_key: Option<String>,

    /// API user that gets MTN's tokens for disbursements.
    #[arg(long, env = "MOMO_DISBURSEMENT_API_USER", hide_env_values = true)]
    pub momo_disbursement_api_user: Option<String>,

    /// Key of that API user.
    #[arg(long, env = "MOMO_DISBURSEMENT_API_KEY", hide_env_values = true)]
    pub momo_disbursement_api_key: Option<String>,

    /// The only X-Target-Environment that MTN serves.
    #[arg(long, env = "MOMO_TARGET_ENVIRONMENT", default_value = "mtnghana")]
    pub momo_target_environment: String,

    /// The only currency that MTN debits and pays.
    #[arg(long, env = "MOMO_CURRENCY", default_value = "GHS")]
    pub momo_currency: Currency,

    /// The API user's providerCallbackHost. Without it, callbacks may go anywhere.
    #[arg(long, env = "MOMO_CALLBACK_HOST")]
    pub momo_callback_host: Option<String>,
}

/// What one of MTN's products is called with.
#[derive(Clone, Copy)]
pub struct Product<'s> {
    /// The first segment of its paths.
    pub name: &'static str,
    pub subscription_key: &'s str,
    pub api_user: &'s str,
    pub api_key: &'s str,
}

impl MomoSettings {
    pub fn check(&self, refusals: &mut Refusals) {
        let given = [
            (
                "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
                &self.momo_disbursement_subscription_key,
            ),
            (
                "MOMO_DISBURSEMENT_API_USER",
                &self.momo_disbursement_api_user,
            ),
            ("MOMO_DISBURSEMENT_API_KEY", &self.momo_disbursement_api_key),
        ];
        if given.iter().all(|(_, value)| value.is_none()) {
            return;
        }
        for (variable, value) in given {
            let wants = "a value, as the others have one";
            refusals.unless(value.is_some(), variable, wants);
        }
    }

    pub fn collection(&self) -> Product<'_> {
        Product {
            name: "collection",
            subscription_key: &self.momo_subscription_key,
            api_user: &self.momo_api_user,
            api_key: &self.momo_api_key,
        }
    }

    pub fn disbursement(&self) -> Option<Product<'_>> {
        Some(Product {
            name: "disbursement",
            subscription_key: self.momo_disbursement_subscription_key.as_deref()?,
            api_user: self.momo_disbursement_api_user.as_deref()?,
            api_key: self.momo_disbursement_api_key.as_deref()?,
        })
    }
}
