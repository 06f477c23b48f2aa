//! Signing secrets: generated here, encrypted at rest ([`chassis::sealed`]), and never logged.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::ids::{EndpointId, MerchantId};
use secrecy::SecretString;

/// Random bytes in a signing secret.
const SECRET_BYTES: usize = 32;

/// A new secret: `whsec_` and base64. The whole text keys the HMAC.
pub fn generate() -> SecretString {
    let mut bytes = [0_u8; SECRET_BYTES];
    rand::fill(&mut bytes);
    format!("whsec_{}", STANDARD.encode(bytes)).into()
}

/// What an encrypted secret is bound to.
pub fn owner(merchant_id: MerchantId, endpoint_id: EndpointId) -> String {
    format!("{merchant_id}/{endpoint_id}")
}
