//! What is wrong with a signature that a receiver refuses.

use chassis::{clock::Clock, ids::MerchantId, testing::check_invalid};
use proto::webhooks::{
    BodyChange, DeliveryStatus, DiagnoseSignatureRequest, HeaderFault, RotateSecretRequest,
    SignatureDiagnosis, SignatureFinding as Finding,
};
use tonic::Status;

use crate::{
    receiver::{Arrival, Receiver},
    signature::{hmac_sha256, parts},
    world::{HOUR, World},
};

async fn diagnose(
    world: &World,
    merchant_id: &str,
    header: &str,
    body: impl Into<Vec<u8>>,
    event_id: &str,
) -> Result<SignatureDiagnosis, Status> {
    let request = DiagnoseSignatureRequest {
        merchant_id: merchant_id.to_owned(),
        header: header.to_owned(),
        body: body.into(),
        event_id: event_id.to_owned(),
    };
    let told = world.people.clone().diagnose_signature(request).await?;
    Ok(told.into_inner())
}

/// Two events as they arrived, oldest first.
async fn two(world: &mut World, receiver: &Receiver, merchant_id: &str) -> [Arrival; 2] {
    for _ in 0..2 {
        let id = world.deliver(merchant_id).await;
        world.in_state(&id, DeliveryStatus::Delivered).await;
    }
    receiver.received().try_into().unwrap()
}

fn signed(secret: &str, seconds: i64, body: &[u8]) -> String {
    let message = [format!("{seconds}.").as_bytes(), body].concat();
    format!(
        "t={seconds},v1={}",
        hmac_sha256(secret.as_bytes(), &message)
    )
}

#[tokio::test]
async fn every_kind_of_broken_signature_is_told() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let endpoint = world.endpoint(&receiver.url()).await;
    let merchant_id = endpoint.merchant_id.clone();
    let [other, event] = two(&mut world, &receiver, &merchant_id).await;
    let header = event.header("x-service-signature").to_owned();
    let (t, _) = parts(&header);
    let body = event.text();
    let secret = &endpoint.signing_secret;
    let newline = format!("{body}\n");
    let parsed: serde_json::Value = serde_json::from_str(body).unwrap();
    let written = serde_json::to_string_pretty(&parsed).unwrap();
    let changed = body.replace("25.50", "2550.00");
    let late = signed(secret, t - 301, body.as_bytes());
    let wrong = signed("whsec_another", t, body.as_bytes());
    for (header, body, finding) in [
        (header.as_str(), body, Finding::Valid),
        ("t=1", body, Finding::MalformedHeader),
        (&late, body, Finding::ClockOff),
        (&header, &newline, Finding::LineBreaks),
        (&header, &written, Finding::Reserialised),
        (&header, &changed, Finding::BodyChanged),
        (&header, other.text(), Finding::OtherEvent),
        (&header, "", Finding::EmptyBody),
        (&wrong, body, Finding::WrongSecret),
    ] {
        let told = diagnose(&world, &merchant_id, header, body, "").await;
        let told = told.unwrap();
        assert_eq!(told.finding(), finding, "{told:?}");
        let shown = format!("{told:?}");
        assert!(!shown.contains(secret.as_str()) && !shown.contains("v1"));
        match finding {
            Finding::MalformedHeader => {
                assert_eq!(told.header_fault(), HeaderFault::NoSignature);
            }
            Finding::LineBreaks => assert_eq!(told.body_change(), BodyChange::NewlineAdded),
            Finding::ClockOff => assert!(told.age_seconds() >= 301 && !told.is_fresh),
            Finding::OtherEvent => {
                assert_eq!(told.signed_event_id(), event.event_id());
                assert_eq!(told.body_event_id(), other.event_id());
            }
            _ => assert!(told.is_fresh),
        }
    }
    // The merchant may know which event it was, though its deliveries are long past.
    let text = diagnose(&world, &merchant_id, &header, "text", event.event_id()).await;
    assert_eq!(text.unwrap().finding(), Finding::BodyChanged);
}

#[tokio::test]
async fn the_previous_secret_is_told_even_when_it_no_longer_signs() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let endpoint = world.endpoint(&receiver.url()).await;
    let merchant_id = endpoint.merchant_id.clone();
    let rotate = RotateSecretRequest {
        merchant_id: merchant_id.clone(),
    };
    world.operations.rotate_secret(rotate).await.unwrap();
    world.advance(25 * HOUR).await;
    let now = Clock::system().host_now().unix_seconds();
    let header = signed(&endpoint.signing_secret, now, b"{}");
    let told = diagnose(&world, &merchant_id, &header, "{}", "")
        .await
        .unwrap();
    assert_eq!(told.finding(), Finding::ValidWithPrevious);
    let told = diagnose(&world, &merchant_id, &header, "{}\r\n", "").await;
    let told = told.unwrap();
    assert_eq!(told.finding(), Finding::LineBreaks);
    assert!(told.is_by_previous);
}

#[tokio::test]
async fn anothers_event_tells_nothing() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let [_, event] = two(&mut world, &receiver, &merchant_id).await;
    let other = world.endpoint(&receiver.url()).await.merchant_id;
    let header = event.header("x-service-signature");
    for body in [event.text(), "{}"] {
        let told = diagnose(&world, &other, header, body, event.event_id()).await;
        let told = told.unwrap();
        assert_eq!(told.finding(), Finding::WrongSecret);
        assert_eq!((told.signed_event_id, told.body_event_id), (None, None));
    }
}

#[tokio::test]
async fn what_is_too_long_to_be_one_is_refused() {
    let world = World::start().await;
    let nobody = MerchantId::new().to_string();
    let header = "x".repeat(2_001);
    check_invalid(diagnose(&world, &nobody, &header, "", "").await, "header");
    let body = vec![b' '; 64 * 1_024 + 1];
    check_invalid(diagnose(&world, &nobody, "", body, "").await, "body");
    let event = diagnose(&world, &nobody, "", "", "evt").await;
    check_invalid(event, "event_id");
}
