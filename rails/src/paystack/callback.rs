//! A callback is Paystack's only with our token and its signature.

use chassis::ids::RailReference;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::Sha512;
use subtle::ConstantTimeEq as _;

use crate::callback::{Callback, CallbackError, CallbackSubject};

/// The header with the signature over the body.
pub const SIGNATURE: &str = "x-paystack-signature";

/// The part of a callback that is used: which payment to query.
#[derive(Deserialize)]
struct Event {
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    reference: String,
}

/// Checks that a callback is Paystack's, and returns which payment it is about, if it says so.
///
/// # Errors
/// It did not come to the configured address, or Paystack did not sign this body.
pub fn read(
    callback: &Callback,
    secret_key: &SecretString,
    callback_token: &SecretString,
) -> Result<CallbackSubject, CallbackError> {
    let configured = callback_token.expose_secret().as_bytes();
    if !bool::from(configured.ct_eq(callback.token.as_bytes())) {
        return Err(CallbackError::WrongToken);
    }
    let signature = callback.headers.get(SIGNATURE);
    let signature = signature.and_then(|text| hex::decode(text.trim()).ok());
    let signature = signature.ok_or(CallbackError::WrongSignature)?;
    Hmac::<Sha512>::new_from_slice(secret_key.expose_secret().as_bytes())
        .expect("HMAC takes keys of any length")
        .chain_update(&callback.body)
        .verify_slice(&signature)
        .map_err(|_| CallbackError::WrongSignature)?;
    let event: Option<Event> = serde_json::from_slice(&callback.body).ok();
    let reference = event.and_then(|event| event.data.reference.parse::<RailReference>().ok());
    Ok(reference.map_or(CallbackSubject::Nothing, CallbackSubject::Reference))
}
