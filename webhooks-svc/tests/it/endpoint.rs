//! Endpoints: what they keep, what waits for them, and secrets at rest.

use chassis::{
    ids::MerchantId,
    testing::{check_invalid, check_refusal, until},
};
use db::Db;
use proto::webhooks::{
    DeliveryStatus, Endpoint, EventType, GetEndpointRequest, RotateSecretRequest,
    SetEndpointEnabledRequest, SetEndpointRequest,
};
use tonic::Code;

use crate::{
    receiver::Receiver,
    world::{HOUR, MINUTE, OTHER_SECRET_KEY, SECRET_KEY, World, config, payment},
};

#[tokio::test]
async fn setting_an_endpoint_again_keeps_its_secret_and_identity() {
    let mut world = World::start().await;
    let first = world.endpoint("http://127.0.0.1:9/one").await;
    assert!(first.signing_secret.starts_with("whsec_"));
    assert_eq!(first.signing_secret.len(), "whsec_".len() + 44);
    assert_eq!(first.previous_signing_secret, None);
    assert!(first.enabled);
    let again = world
        .try_endpoint(&first.merchant_id, " http://127.0.0.1:9/two ")
        .await
        .unwrap();
    let expected = Endpoint {
        url: "http://127.0.0.1:9/two".to_owned(),
        updated_at: again.updated_at.clone(),
        ..first.clone()
    };
    assert_eq!(again, expected);
    let mut world = world.restart().await;
    assert_eq!(world.get_endpoint(&first.merchant_id).await, again);
    let other = world.endpoint("http://127.0.0.1:9/one").await;
    assert_ne!(other.signing_secret, first.signing_secret);
}

/// Writes to the database as a newer version might have.
async fn write(world: &World, statement: &'static str, id: &str) {
    let db = Db::connect(&world.database.url, 1).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    assert_eq!(tx.sql(statement).bind(id).rows_affected().await.unwrap(), 1);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn an_event_of_a_newer_version_is_sent_and_listed_like_any_other() {
    let mut world = World::start().await;
    let receiver = Receiver::always(200).await;
    let endpoint = world.endpoint(&receiver.url()).await;
    world.enable(&endpoint.merchant_id, false).await;
    let first = world.deliver(&endpoint.merchant_id).await;
    let second = world.deliver(&endpoint.merchant_id).await;
    let newer = "update deliveries set event_type = 'newer' where delivery_id = $1";
    write(&world, newer, &first).await;
    world.enable(&endpoint.merchant_id, true).await;
    for delivery in [&first, &second] {
        world.in_state(delivery, DeliveryStatus::Delivered).await;
    }
    let listed = world.deliveries(&endpoint.merchant_id).await;
    let types: Vec<_> = listed
        .iter()
        .map(proto::webhooks::Delivery::event_type)
        .collect();
    assert_eq!(types, [EventType::PaymentSuccess, EventType::Unspecified]);
}

#[tokio::test]
async fn an_event_type_of_a_newer_version_is_not_every_type() {
    let mut world = World::start().await;
    let endpoint = world.endpoint("http://127.0.0.1:9/one").await;
    let newer = "update endpoints set events = 'newer' where url = $1";
    write(&world, newer, "http://127.0.0.1:9/one").await;
    world.publish(payment(&endpoint.merchant_id)).await;
    assert!(world.deliveries(&endpoint.merchant_id).await.is_empty());
    let shown = world.get_endpoint(&endpoint.merchant_id).await;
    assert_eq!(shown.events, [i32::from(EventType::Unspecified)]);
}

#[tokio::test]
async fn the_first_of_parallel_settings_makes_the_secret() {
    let world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let mut setting = tokio::task::JoinSet::new();
    for number in 0..10 {
        let mut operations = world.operations.clone();
        let request = SetEndpointRequest {
            merchant_id: merchant_id.clone(),
            url: format!("http://127.0.0.1:9/{number}"),
            events: Vec::new(),
        };
        setting.spawn(async move { operations.set_endpoint(request).await.unwrap().into_inner() });
    }
    let mut secrets: Vec<_> = setting
        .join_all()
        .await
        .into_iter()
        .map(|endpoint| endpoint.signing_secret)
        .collect();
    secrets.dedup();
    assert_eq!(secrets.len(), 1);
}

#[tokio::test]
async fn the_next_attempt_goes_to_the_url_of_that_moment() {
    let (first, second) = (Receiver::always(500).await, Receiver::always(200).await);
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&first.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.after_attempts(&id, 1).await;
    world
        .try_endpoint(&merchant_id, &second.url())
        .await
        .unwrap();
    world.advance(MINUTE).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    assert_eq!((first.received().len(), second.received().len()), (1, 1));
}

#[tokio::test]
async fn a_disabled_endpoint_keeps_its_deliveries_and_resumes() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    assert!(!world.enable(&merchant_id, false).await.enabled);
    let id = world.deliver(&merchant_id).await;
    world.redeliver(&id).await;
    world.advance(100 * HOUR).await;
    let mut world = world.restart().await;
    world.advance(HOUR).await;
    let waiting = world.delivery(&id).await;
    assert_eq!(waiting.status(), DeliveryStatus::Pending);
    assert_eq!((waiting.attempts.len(), receiver.connections()), (0, 0));
    world.enable(&merchant_id, true).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
}

#[tokio::test]
async fn merchants_without_an_endpoint_are_told_so() {
    let mut world = World::start().await;
    for merchant_id in [MerchantId::new().to_string(), "nobody".to_owned()] {
        let get = GetEndpointRequest {
            merchant_id: merchant_id.clone(),
        };
        let rotate = RotateSecretRequest {
            merchant_id: merchant_id.clone(),
        };
        let enable = SetEndpointEnabledRequest {
            merchant_id,
            enabled: true,
        };
        let (code, reason) = (Code::NotFound, "ENDPOINT_NOT_FOUND");
        check_refusal(world.operations.get_endpoint(get).await, code, reason);
        check_refusal(world.operations.rotate_secret(rotate).await, code, reason);
        check_refusal(
            world.operations.set_endpoint_enabled(enable).await,
            code,
            reason,
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_makes_no_sense_is_refused_by_its_field() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let long = format!("https://example.com/{}", "a".repeat(2_048));
    let urls = [
        "",
        "example.com",
        "/hook",
        "ftp://example.com/",
        "https://",
        "https://user@example.com/",
        "https://user:password@example.com/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://exa\u{0}mple.com/",
        "https://example.com/\n",
        "https://exa mple.com/",
        &long,
    ];
    for url in urls.into_iter().filter(|url| !url.ends_with('\n')) {
        check_invalid(world.try_endpoint(&merchant_id, url).await, "url");
    }
    check_invalid(
        world.try_endpoint("me", "https://192.0.2.1/").await,
        "merchant_id",
    );
    for event in [i32::from(EventType::Unspecified), 99] {
        let request = SetEndpointRequest {
            merchant_id: merchant_id.clone(),
            url: "http://127.0.0.1:9/".to_owned(),
            events: vec![event],
        };
        check_invalid(world.operations.set_endpoint(request).await, "events");
    }
    let get = GetEndpointRequest { merchant_id };
    assert!(
        world.operations.get_endpoint(get).await.is_err(),
        "nothing was made"
    );
}

#[tokio::test]
async fn without_the_permission_http_is_refused() {
    let mut world = World::start_with(&["--webhook-allow-http=false"]).await;
    let merchant_id = MerchantId::new().to_string();
    check_invalid(
        world
            .try_endpoint(&merchant_id, "http://127.0.0.1:9/")
            .await,
        "url",
    );
    world
        .try_endpoint(&merchant_id, "https://127.0.0.1:9/")
        .await
        .unwrap();
}

async fn sealed(db: &Db) -> Vec<(String, Option<String>)> {
    let mut conn = db.read().await.unwrap();
    let rows = conn
        .sql("select secret, previous_secret from endpoints order by endpoint_id")
        .all();
    rows.await.unwrap()
}

#[tokio::test]
async fn secrets_are_encrypted_at_rest_and_bound_to_their_endpoint() {
    let mut world = World::start().await;
    let (mine, theirs) = (
        world.endpoint("http://127.0.0.1:9/").await,
        world.endpoint("http://127.0.0.1:9/").await,
    );
    let db = world.database.connect().await;
    let kept = sealed(&db).await;
    for (secret, _) in &kept {
        assert!(!secret.contains("whsec_") && !secret.contains(&mine.signing_secret[6..]));
    }
    // Somebody with write access to the database copies another merchant's ciphertext to their own
    // row.
    let mut tx = db.begin().await.unwrap();
    tx.sql("update endpoints set secret = $1")
        .bind(kept[0].0.clone())
        .run()
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let get = |merchant_id: &str| GetEndpointRequest {
        merchant_id: merchant_id.to_owned(),
    };
    assert_eq!(world.get_endpoint(&mine.merchant_id).await, mine);
    let stolen = world
        .operations
        .get_endpoint(get(&theirs.merchant_id))
        .await;
    check_refusal(stolen, Code::Internal, "SECRET_UNREADABLE");
    db.close().await;
}

#[tokio::test]
async fn the_encryption_key_can_be_replaced() {
    let mut world = World::start().await;
    let made = world.endpoint("http://127.0.0.1:9/").await;
    let rotate = RotateSecretRequest {
        merchant_id: made.merchant_id.clone(),
    };
    let made = world
        .operations
        .rotate_secret(rotate)
        .await
        .unwrap()
        .into_inner();
    let only_new = format!("--webhook-secret-key={OTHER_SECRET_KEY}");
    let both = format!("--webhook-secret-key={OTHER_SECRET_KEY},{SECRET_KEY}");
    world.flags = vec![both.clone()];
    let mut world = world.restart().await;
    assert_eq!(world.get_endpoint(&made.merchant_id).await, made);
    let url = world.database.url.clone();
    let new_alone = config(&url, std::slice::from_ref(&only_new));
    let refused = serve(new_alone).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("WEBHOOK_SECRET_KEY lacks the key"),
        "{refused}"
    );
    webhooks_svc::reseal(&config(&url, &[both])).await.unwrap();
    world.flags = vec![only_new];
    let mut world = world.restart().await;
    assert_eq!(world.get_endpoint(&made.merchant_id).await, made);
}

async fn serve(config: webhooks_svc::config::Config) -> anyhow::Result<()> {
    let grpc = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let sockets = chassis::grpc::Sockets {
        grpc,
        operators: None,
        admin: None,
    };
    let shutdown = chassis::shutdown::Shutdown::new();
    webhooks_svc::serve(config, sockets, chassis::clock::Clock::system(), shutdown).await
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_the_start_without_telling_the_key() {
    let cases = [
        (
            "--webhook-secret-key=bm90IDMyIGJ5dGVz",
            "WEBHOOK_SECRET_KEY wants 32 bytes in base64",
        ),
        (
            "--webhook-secret-key=%%%",
            "WEBHOOK_SECRET_KEY wants 32 bytes in base64",
        ),
        ("--lease=10s", "LEASE"),
        ("--webhook-concurrency=0", "WEBHOOK_CONCURRENCY"),
    ];
    for (flag, reason) in cases {
        let refused = serve(config("sqlite::memory:", &[flag.to_owned()]))
            .await
            .unwrap_err();
        let text = format!("{refused:#}");
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains("%%%") && !text.contains("bm90"), "{text}");
    }
}

#[tokio::test]
async fn attempts_are_counted() {
    // Counting starts with the first rendering.
    chassis::metrics::render();
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    world.publish(payment(&merchant_id)).await;
    let expected = [
        r#"webhook_events_total{type="payment.success"}"#,
        r#"webhook_attempts_total{outcome="succeeded",kind="scheduled"}"#,
        "webhook_attempt_seconds_bucket",
        "webhook_delivery_lag_seconds_bucket",
    ];
    until("they are counted", async || {
        let metrics = chassis::metrics::render();
        expected.iter().all(|name| metrics.contains(name))
    })
    .await;
}
