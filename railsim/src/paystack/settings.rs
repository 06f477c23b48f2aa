//! The one client of Paystack.

use chassis::config::Refusals;
use clap::Args;
use url::Url;

#[derive(Clone, Args)]
pub struct PaystackSettings {
    /// Secret key of the Paystack integration. It also signs Paystack's webhooks.
    #[arg(long, env = "PAYSTACK_SECRET_KEY", hide_env_values = true)]
    pub paystack_secret_key: String,

    /// Where Paystack sends its webhooks. Without it, it sends none.
    #[arg(long, env = "PAYSTACK_CALLBACK_URL", hide_env_values = true)]
    pub paystack_callback_url: Option<String>,
}

impl PaystackSettings {
    pub fn check(&self, refusals: &mut Refusals) {
        let url = self.paystack_callback_url.as_deref();
        let is_url = |url: &str| Url::parse(url).is_ok_and(|url| url.has_host());
        let wants = "http(s)://host[:port]/path";
        refusals.unless(url.is_none_or(is_url), "PAYSTACK_CALLBACK_URL", wants);
    }
}
