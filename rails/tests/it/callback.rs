//! Which callbacks are accepted.

use chassis::ids::RailReference;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rails::{Callback, CallbackError, CallbackSubject, RailName};
use sha2::Sha512;

use super::{CALLBACK_TOKEN, SECRET_KEY, rails};

/// What `rail` makes of such a callback.
fn read(
    rail: RailName,
    token: &str,
    body: &[u8],
    signature: Option<&str>,
) -> Result<CallbackSubject, CallbackError> {
    let signature = signature.map(|text| ("x-paystack-signature".to_owned(), text.to_owned()));
    let callback = Callback {
        token: token.to_owned(),
        headers: signature.into_iter().collect(),
        body: body.to_vec(),
    };
    rails(&[]).unwrap().get(rail).read_callback(&callback)
}

fn sign(key: &str, body: &[u8]) -> String {
    let mac = Hmac::<Sha512>::new_from_slice(key.as_bytes()).unwrap();
    hex::encode(mac.chain_update(body).finalize().into_bytes())
}

#[test]
fn a_callback_is_believed_with_its_token_and_signature() {
    let rail_reference = RailReference::new();
    let body = format!(
        r#"{{"event":"charge.success","data":{{"reference":"{rail_reference}","amount":2550}}}}"#
    );
    let signature = sign(SECRET_KEY, body.as_bytes());
    let read = |token: &str, signature: Option<&str>| {
        read(RailName::Paystack, token, body.as_bytes(), signature)
    };
    assert_eq!(
        read(CALLBACK_TOKEN, Some(&signature)),
        Ok(CallbackSubject::Reference(rail_reference))
    );
    assert_eq!(
        read(CALLBACK_TOKEN, Some(&signature.to_uppercase())),
        Ok(CallbackSubject::Reference(rail_reference))
    );
    for token in [
        "",
        "callback-token-configureD",
        "callback-token-configured2",
    ] {
        assert_eq!(
            read(token, Some(&signature)),
            Err(CallbackError::WrongToken),
            "{token}"
        );
    }
    let other_key = sign("sk_test_other", body.as_bytes());
    let other_body = sign(SECRET_KEY, b"{}");
    let cut = &signature[..64];
    for signature in [
        None,
        Some(""),
        Some("zz"),
        Some(other_key.as_str()),
        Some(other_body.as_str()),
        Some(cut),
    ] {
        let read = read(CALLBACK_TOKEN, signature);
        assert_eq!(read, Err(CallbackError::WrongSignature), "{signature:?}");
    }
}

#[test]
fn a_signature_is_the_one_that_others_compute() {
    // printf '{}' | openssl dgst -sha512 -hmac sk_test_abcdef
    let signature = "c13dfe86f607320de36e689f7fbeea36c3a28467afd1fc1064862a6882a73dd7b3968b01a7eb5d73c9784706f4d27a6ff4420b638ac692c56f116d477715b9cc";
    assert_eq!(
        read(RailName::Paystack, CALLBACK_TOKEN, b"{}", Some(signature)),
        Ok(CallbackSubject::Nothing)
    );
}

#[test]
fn a_signed_callback_about_nothing_of_ours_names_nothing() {
    for body in [
        "",
        "{}",
        "not json",
        r#"{"data":null}"#,
        r#"{"data":{"reference":7}}"#,
        r#"{"data":{"reference":"not-ours"}}"#,
    ] {
        let signature = sign(SECRET_KEY, body.as_bytes());
        let body = body.as_bytes();
        let read = read(RailName::Paystack, CALLBACK_TOKEN, body, Some(&signature));
        assert_eq!(read, Ok(CallbackSubject::Nothing), "{body:?}");
    }
}

#[test]
fn mtn_signs_nothing_so_the_address_is_what_its_callbacks_are_known_by() {
    for (body, signature) in [("{}", None), ("not json", Some("00ff"))] {
        let read = read(RailName::Momo, "any-token", body.as_bytes(), signature);
        assert_eq!(read, Ok(CallbackSubject::Address), "{body}");
    }
    assert!(RailName::Momo.terms().callback_headers.is_empty());
}
