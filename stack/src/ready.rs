//! What the stack reports once it is ready: the ready file, and the lines on the terminal.

use std::{fs, io, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use serde::Serialize;

/// Content of the ready file. Addresses are URLs.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    pub api: String,
    pub checkout: String,
    pub dashboard: String,
    pub handset: String,
    /// The page with all mail that was caught.
    pub mail: String,
    /// Where mail is caught: host and port, without a scheme.
    pub smtp: String,
    /// `POST {clock}` with `{"advance_seconds": 86400}` moves time forward.
    pub clock: String,
    pub grpc: GrpcAddresses,
    pub demo: DemoMerchant,
}

#[derive(Clone, Debug, Serialize)]
pub struct GrpcAddresses {
    pub merchants: String,
    pub sessions: String,
    pub charges: String,
    pub webhooks: String,
    pub ratelimit: String,
    /// Where the services listen to operators: for `payctl`.
    pub merchants_operators: String,
    pub charges_operators: String,
    pub webhooks_operators: String,
}

/// A verified merchant for trying things out.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct DemoMerchant {
    pub merchant_id: String,
    pub api_key: String,
    /// Who may log in at the dashboard; present if `cargo run` has let somebody in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<DemoLogin>,
    /// Present once the merchant has a webhook endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
}

/// A person of the demo merchant.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct DemoLogin {
    pub email: String,
    pub password: String,
}

impl Ready {
    /// Writes the file atomically, so that nobody sees a part of it. Only its owner can read it.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        write_private(file, &serde_json::to_vec_pretty(self)?)
    }

    /// Prints what a person needs to take the first payment.
    pub fn print(&self) {
        println!(
            "\n\
             The payment service is ready. Everything here is simulated; no money moves.\n\n\
             \x20 API        {api}\n\
             \x20 Checkout   {checkout}\n\
             \x20 Dashboard  {dashboard}{login}\n\
             \x20 Handsets   {handset}   (approve or decline payments here)\n\
             \x20 Mail       {mail}\n\
             \x20 API key    {key}\n\n\
             Take a payment:\n\n\
             curl -s {api}/api/v1/payments/charge \\\n\
             \x20 -H 'Authorization: Bearer {key}' \\\n\
             \x20 -H 'Content-Type: application/json' \\\n\
             \x20 -d '{{\"amount\": 25.50, \"mobile_number\": \"0240000001\", \"provider\": \"MTN\"}}'\n",
            api = self.api,
            checkout = self.checkout,
            dashboard = self.dashboard,
            login = self
                .demo
                .login
                .as_ref()
                .map_or_else(String::new, |login| format!(
                    "   ({}, password {})",
                    login.email, login.password
                )),
            handset = self.handset,
            mail = self.mail,
            key = self.demo.api_key,
        );
    }
}

/// Replaces a file atomically. Only its owner can read it.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let written = Path::new(&name);
    if let Err(error) = fs::remove_file(written)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = fs::OpenOptions::new();
    let mut output = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(written)?;
    output.write_all(content)?;
    output.sync_all()?;
    fs::rename(written, file)
}
