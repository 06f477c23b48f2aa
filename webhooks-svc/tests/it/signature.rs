//! Spec §6.3, verified by code that shares nothing with ours.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use chassis::testing::until;
use proto::webhooks::{DeliveryStatus, Endpoint, RotateSecretRequest};
use sha2::{Digest as _, Sha256};
use webhooks_svc::{endpoint::SigningSecrets, signature};

use crate::{
    receiver::{Arrival, Receiver},
    world::{HOUR, World},
};

/// Reads secret, time, signature and body, in hex, a line each; prints how many of them agree.
const PYTHON: &str = r#"
import hashlib, hmac, sys
right = 0
for line in sys.stdin:
    secret, t, v1, body = (bytes.fromhex(word) for word in line.rstrip("\n").split(" "))
    digest = hmac.new(secret, t + b"." + body, hashlib.sha256).hexdigest()
    right += hmac.compare_digest(digest, v1.decode())
print(right)
"#;

/// HMAC by its definition (RFC 2104).
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> String {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::digest([&block.map(|byte| byte ^ 0x36), message].concat());
    let outer = Sha256::digest([&block.map(|byte| byte ^ 0x5c)[..], &inner].concat());
    hex::encode(outer)
}

/// Splits `t=…,v1=…[,v1=…]`.
pub fn parts(header: &str) -> (i64, Vec<String>) {
    let mut parts = header.split(',');
    let t = parts
        .next()
        .unwrap()
        .strip_prefix("t=")
        .unwrap()
        .parse()
        .unwrap();
    let signatures = parts.map(|part| part.strip_prefix("v1=").unwrap().to_owned());
    (t, signatures.collect())
}

/// Which of the secrets' signatures the delivery carries, in order.
pub fn check_signed_by(received: &Arrival, secrets: &[&str]) {
    let (t, signatures) = parts(received.header("x-service-signature"));
    let message = [format!("{t}.").as_bytes(), &received.body].concat();
    let expected: Vec<_> = secrets
        .iter()
        .map(|secret| hmac_sha256(secret.as_bytes(), &message))
        .collect();
    assert_eq!(signatures, expected);
}

async fn rotate(world: &mut World, merchant_id: &str) -> Endpoint {
    let request = RotateSecretRequest {
        merchant_id: merchant_id.to_owned(),
    };
    world
        .operations
        .rotate_secret(request)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn every_attempt_is_signed_in_real_time() {
    let receiver = Receiver::always(500).await;
    let mut world = World::start().await;
    let endpoint = world.endpoint(&receiver.url()).await;
    let id = world.deliver(&endpoint.merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.advance(100 * HOUR).await;
    let seen = receiver.received();
    assert_eq!(seen.len(), 7);
    let now = world.clock.host_now().unix_seconds();
    for copy in &seen {
        check_signed_by(copy, &[&endpoint.signing_secret]);
        let (t, _) = parts(copy.header("x-service-signature"));
        assert!(
            (now - 60..=now).contains(&t),
            "t is real time, not the moved one"
        );
    }
}

#[tokio::test]
async fn after_a_rotation_both_secrets_sign_for_24_hours() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let old = world.endpoint(&receiver.url()).await;
    let merchant_id = old.merchant_id.clone();
    let new = rotate(&mut world, &merchant_id).await;
    assert_ne!(new.signing_secret, old.signing_secret);
    assert_eq!(
        new.previous_signing_secret.as_ref(),
        Some(&old.signing_secret)
    );
    let check = async |world: &mut World, secrets: &[&str]| {
        let before = receiver.received().len();
        let id = world.deliver(&merchant_id).await;
        world.in_state(&id, DeliveryStatus::Delivered).await;
        check_signed_by(&receiver.received()[before], secrets);
    };
    check(&mut world, &[&new.signing_secret, &old.signing_secret]).await;
    world.advance(23 * HOUR).await;
    let mut world = world.restart().await;
    check(&mut world, &[&new.signing_secret, &old.signing_secret]).await;
    let newest = rotate(&mut world, &merchant_id).await;
    check(&mut world, &[&newest.signing_secret, &new.signing_secret]).await;
    world.advance(24 * HOUR).await;
    check(&mut world, &[&newest.signing_secret]).await;
    assert_eq!(
        world
            .get_endpoint(&merchant_id)
            .await
            .previous_signing_secret,
        None
    );
}

#[tokio::test]
async fn independent_code_agrees_on_ten_thousand_bodies() {
    const BODIES: usize = 10_000;
    let mut lines = String::new();
    for number in 0..BODIES {
        let mut bytes = [0_u8; 512];
        rand::fill(&mut bytes);
        let body: String = bytes[..number % 512]
            .iter()
            .map(|byte| char::from(*byte))
            .collect();
        let secret = webhooks_svc::secret::generate();
        let text = secrecy::ExposeSecret::expose_secret(&secret).to_owned();
        let secrets = SigningSecrets {
            current: secret,
            previous: None,
        };
        let t = i64::try_from(number).unwrap() * 200_003;
        let (signed_at, signatures) = parts(&signature::header(&secrets, t, &body));
        assert_eq!(signed_at, t);
        let message = [format!("{t}.").as_bytes(), body.as_bytes()].concat();
        assert_eq!(signatures, [hmac_sha256(text.as_bytes(), &message)]);
        let words = [text, t.to_string(), signatures[0].clone(), body].map(hex::encode);
        lines.push_str(&words.join(" "));
        lines.push('\n');
    }
    // If there is a Python, it has to agree as well.
    let python = Command::new("python3")
        .args(["-c", PYTHON])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else { return };
    python
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = python.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        BODIES.to_string()
    );
}

#[tokio::test]
async fn two_endpoints_have_two_secrets() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let (one, two) = (
        world.endpoint(&receiver.url()).await,
        world.endpoint(&receiver.url()).await,
    );
    world.deliver(&one.merchant_id).await;
    until("it arrives", async || receiver.received().len() == 1).await;
    world.deliver(&two.merchant_id).await;
    until("it arrives", async || receiver.received().len() == 2).await;
    check_signed_by(&receiver.received()[0], &[&one.signing_secret]);
    check_signed_by(&receiver.received()[1], &[&two.signing_secret]);
}
