//! What takes hours, with the stack's movable clock.

use std::time::Duration;

use serde_json::{Value, json};

use crate::shop::Shop;

const HOUR: Duration = Duration::from_secs(3_600);

async fn create_session(shop: &Shop) -> String {
    let body = json!({ "amount": 12.5, "currency": "GHS", "description": "Order 20" });
    let created = shop
        .api
        .post("/api/v1/payments/initiate", &body)
        .await
        .unwrap();
    created.expect(201).unwrap();
    created.text("session_id").unwrap().to_owned()
}

#[tokio::test]
async fn an_unpaid_session_expires_after_24_hours_with_one_event() {
    let shop = Shop::open().await;
    let session_id = create_session(&shop).await;
    shop.advance(23 * HOUR).await;
    assert_eq!(shop.read_session(&session_id).await["status"], "PENDING");
    assert!(shop.receiver.deliveries().is_empty());
    shop.advance(2 * HOUR).await;
    let session = shop.read_session(&session_id).await;
    assert_eq!(session["status"], "EXPIRED");
    assert_eq!(session.get("transaction"), None);
    shop.advance(48 * HOUR).await;
    let deliveries = shop.receiver.deliveries();
    assert_eq!(deliveries.len(), 1);
    deliveries[0].verify(&shop.signing_secret).unwrap();
    let event = deliveries[0].json().unwrap();
    assert_eq!(event["type"], "payment.failed");
    let data = &event["data"];
    assert_eq!(data["session_id"], json!(session_id));
    assert_eq!(data["failure_reason"], "SESSION_EXPIRED");
    assert_eq!(data["status"], "FAILED");
    assert_eq!(data["amount"], json!(12.5));
    assert_eq!(
        (&data["tx_id_display"], &data["method"]),
        (&Value::Null, &Value::Null)
    );
    shop.close().await;
}

#[tokio::test]
async fn a_receiver_that_is_down_gets_seven_attempts_and_then_a_redelivery() {
    let shop = Shop::open().await;
    // A port on which nothing listens.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    shop.set_endpoint(&nowhere).await;
    let answer = shop.charge("0240000001", "MTN").await;
    let reference = answer.text("reference").unwrap();
    shop.wait_for_end(reference).await;
    // 1 + 5 + 30 minutes and 2 + 8 + 24 hours.
    shop.advance(34 * HOUR).await;
    assert_eq!(shop.deliveries().await[0].attempts_count, 6);
    shop.advance(HOUR).await;
    let delivery = shop.deliveries().await.remove(0);
    assert_eq!(delivery.attempts_count, 7);
    assert_eq!(
        delivery.status(),
        proto::webhooks::DeliveryStatus::Exhausted
    );
    shop.advance(48 * HOUR).await;
    assert_eq!(shop.deliveries().await[0].attempts_count, 7);
    shop.set_endpoint(&shop.receiver.url).await;
    let request = proto::webhooks::RedeliverRequest {
        delivery_id: delivery.delivery_id,
    };
    shop.webhooks().redeliver(request).await.unwrap();
    let event = shop.wait_for_event(reference).await;
    assert_eq!(event["id"], json!(delivery.event_id));
    shop.close().await;
}

#[tokio::test]
async fn what_a_receiver_reads_while_it_is_called_is_already_new() {
    let shop = Shop::open().await;
    for (number, status, session_status) in [
        ("0240000001", "SETTLED", "COMPLETED"),
        ("0240000004", "FAILED", "FAILED"),
    ] {
        let answer = shop.charge(number, "MTN").await;
        let reference = answer.text("reference").unwrap();
        // Reads as soon as the first copy of the event arrives.
        shop.wait_for_event(reference).await;
        assert_eq!(shop.read_charge(reference).await["status"], status);
        let session_id = answer.text("session_id").unwrap();
        assert_eq!(
            shop.read_session(session_id).await["status"],
            session_status
        );
    }
    shop.close().await;
}
