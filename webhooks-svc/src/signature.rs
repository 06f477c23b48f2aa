//! How a delivery proves that we sent it (spec §6.3).

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use crate::endpoint::SigningSecrets;

/// How old a signature may be, or how far in the future, for receivers to take it.
pub const TOLERANCE_SECONDS: i64 = 300;

/// The value of `X-Service-Signature`: `t=<unix seconds>,v1=<hex>`, and a second `v1` while the
/// previous secret signs too.
pub fn header(secrets: &SigningSecrets, unix_seconds: i64, body: &str) -> String {
    let secrets = [Some(&secrets.current), secrets.previous.as_ref()];
    let signatures = secrets.into_iter().flatten();
    let signatures = signatures.map(|secret| sign(secret, unix_seconds, body));
    let parts = std::iter::once(format!("t={unix_seconds}"))
        .chain(signatures.map(|signature| format!("v1={signature}")));
    parts.collect::<Vec<_>>().join(",")
}

/// Whether any of these signatures is this secret's, told in constant time. The body is hashed once.
pub fn is_any_by(
    secret: &SecretString,
    unix_seconds: &str,
    body: &[u8],
    signatures: &[Vec<u8>],
) -> bool {
    let mac = mac(secret, unix_seconds, body);
    let mut signatures = signatures.iter();
    signatures.any(|signature| mac.clone().verify_slice(signature).is_ok())
}

/// Lower-case hex HMAC-SHA256 of `<unix seconds>.<body>`.
fn sign(secret: &SecretString, unix_seconds: i64, body: &str) -> String {
    let mac = mac(secret, &unix_seconds.to_string(), body.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

fn mac(secret: &SecretString, unix_seconds: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(unix_seconds.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}
