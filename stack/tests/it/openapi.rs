//! The API's document compared with the running stack: its examples work, and answers, headers and
//! deliveries are as documented.

use std::{collections::BTreeSet, time::Duration};

use chassis::testing::connect;
use proto::webhooks::{
    EventType, Payout, PublishRequest, publish_request::Data, webhooks_client::WebhooksClient,
};
use serde_json::{Value, json};
use stack::demo::{ApiResponse, Receiver, WebhookRequest};

use crate::shop::{NO_LIMITS, Shop, WAIT_MAX};

const INITIATE: &str = "/api/v1/payments/initiate";
const ALIAS: &str = "/api/payments/initiate";
const CHARGE: &str = "/api/v1/payments/charge";
const PREFLIGHT: &str = "/api/v1/payments/charge/preflight";
const SUBMIT_OTP: &str = "/api/v1/payments/charge/submit-otp";

/// The document, with every `$ref` replaced by its target.
struct Document(Value);

fn followed(document: &Value, part: &Value) -> Value {
    match part {
        Value::Object(members) => match part["$ref"].as_str() {
            Some(pointer) => followed(document, document.pointer(&pointer[1..]).unwrap()),
            None => {
                let members = members.iter();
                members
                    .map(|(name, one)| (name.clone(), followed(document, one)))
                    .collect()
            }
        },
        Value::Array(items) => items.iter().map(|item| followed(document, item)).collect(),
        _ => part.clone(),
    }
}

impl Document {
    async fn of(shop: &Shop) -> Self {
        let answer = shop.api.get_without_key("/api/openapi.json").await.unwrap();
        answer.expect(200).unwrap();
        Self(followed(&answer.body, &answer.body))
    }

    /// What is wrong with a value according to a schema of the document.
    fn faults(schema: &Value, value: &Value) -> Vec<String> {
        let options = jsonschema::draft202012::options().should_validate_formats(true);
        let validator = options.build(schema).unwrap();
        let faults = validator.iter_errors(value);
        faults
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect()
    }

    #[track_caller]
    fn check(schema: &Value, value: &Value) {
        assert!(schema.is_object(), "no schema for {value}");
        let faults = Self::faults(schema, value);
        assert!(faults.is_empty(), "{faults:#?}\n{value}");
    }

    /// Checks an answer's status, headers and body.
    #[track_caller]
    fn check_answer(operation: &Value, answer: &ApiResponse) {
        let response = &operation["responses"][answer.code.to_string()];
        assert!(response.is_object(), "{} is not documented", answer.code);
        let media = &response["content"]["application/json"];
        Self::check(&media["schema"], &answer.body);
        for (name, header) in response["headers"].as_object().unwrap() {
            match answer.header(name) {
                Some(value) => Self::check(&header["schema"], &json!(value)),
                None => assert_eq!(header["required"], false, "no {name}"),
            }
        }
    }

    fn examples(&self, path: &str) -> Vec<(String, Value)> {
        let body = &self.0["paths"][path]["post"]["requestBody"];
        let examples = &body["content"]["application/json"]["examples"];
        let examples = examples.as_object().unwrap().iter();
        examples
            .map(|(name, example)| (name.clone(), example["value"].clone()))
            .collect()
    }

    #[track_caller]
    fn check_delivery(&self, event: &str, delivery: &WebhookRequest) {
        let operation = &self.0["webhooks"][event]["post"];
        let body = &operation["requestBody"]["content"]["application/json"];
        Self::check(&body["schema"], &delivery.json().unwrap());
        for header in operation["parameters"].as_array().unwrap() {
            let name = header["name"].as_str().unwrap();
            let value = delivery.header(name).unwrap_or_else(|| panic!("no {name}"));
            Self::check(&header["schema"], &json!(value));
        }
    }
}

#[tokio::test]
async fn every_example_request_is_answered_as_its_example_answer() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let document = Document::of(&shop).await;
    let mut sent = 0;
    let mut awaiting_code = None;
    let mut references = Vec::new();
    for path in [INITIATE, ALIAS, CHARGE, SUBMIT_OTP, PREFLIGHT] {
        let operation = &document.0["paths"][path]["post"];
        for (name, mut body) in document.examples(path) {
            if path == SUBMIT_OTP {
                body["reference"] = json!(awaiting_code.take().expect("a charge wants a code"));
            }
            let answer = shop.api.post(path, &body).await.unwrap();
            Document::check_answer(operation, &answer);
            let response = &operation["responses"][answer.code.to_string()];
            let example = &response["content"]["application/json"]["examples"][&name]["value"];
            let names = |value: &Value| -> BTreeSet<String> {
                value.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(names(&answer.body), names(example), "{path} {name}");
            let same = [
                "status", "amount", "currency", "message", "warnings", "wallet",
            ];
            for same in same {
                assert_eq!(answer.body[same], example[same], "{path} {name} {same}");
            }
            if answer.body["status"] == "OTP_REQUIRED" {
                awaiting_code = Some(answer.text("reference").unwrap().to_owned());
            }
            if path == CHARGE {
                references.push(answer.body.clone());
            }
            sent += 1;
        }
    }
    assert_eq!(sent, 10);
    for charge in references {
        let reference = charge["reference"].as_str().unwrap();
        shop.wait_for_end(reference).await;
        for (path, name) in [
            ("/api/v1/payments/charge/{reference}", "reference"),
            ("/api/v1/payments/charge/{reference}/timeline", "reference"),
            ("/api/v1/payments/{session_id}/status", "session_id"),
        ] {
            let id = charge[name].as_str().unwrap();
            let address = path.replace(&format!("{{{name}}}"), id);
            let answer = shop.api.get(&address).await.unwrap();
            assert_eq!(answer.code, 200);
            Document::check_answer(&document.0["paths"][path]["get"], &answer);
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn examples_and_refusals_are_as_their_schemas_say() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let document = Document::of(&shop).await;
    let items = ["paths", "webhooks"].map(|part| document.0[part].as_object().unwrap());
    let operations = items.iter().flat_map(|items| items.values());
    let operations = operations.flat_map(|item| item.as_object().unwrap().values());
    let mut examples = 0;
    for operation in operations {
        let responses = operation["responses"].as_object().unwrap().values();
        let bodies = responses.chain([&operation["requestBody"]]);
        for media in bodies.map(|body| &body["content"]["application/json"]) {
            let several = media["examples"].as_object().into_iter().flatten();
            let several = several.map(|(_, example)| &example["value"]);
            for example in several.chain(media.get("example")) {
                Document::check(&media["schema"], example);
                examples += 1;
            }
        }
    }
    assert!(examples > 60, "{examples}");

    let charge = &document.0["paths"][CHARGE]["post"];
    let refused = shop.api.post(CHARGE, &json!({})).await.unwrap();
    assert_eq!(refused.code, 400);
    Document::check_answer(charge, &refused);
    let keyless = shop.api.get_without_key(&format!("{CHARGE}/x")).await;
    let read = &document.0["paths"]["/api/v1/payments/charge/{reference}"]["get"];
    Document::check_answer(read, &keyless.unwrap());
    let body = json!({ "amount": 1, "mobile_number": "0240000001", "provider": "MTN" });
    let other = json!({ "amount": 2, "mobile_number": "0240000001", "provider": "MTN" });
    for (body, code) in [(&body, 202), (&body, 202), (&other, 409)] {
        let answer = shop.api.post_with_key(CHARGE, body, "one").await.unwrap();
        assert_eq!(answer.code, code, "{}", answer.body);
        Document::check_answer(charge, &answer);
    }
    // A schema that accepts anything would accept this too.
    let schema = &charge["responses"]["409"]["content"]["application/json"]["schema"];
    let foreign = json!({ "error": "no", "code": "NOT_FOUND", "request_id": "1" });
    assert_eq!(Document::faults(schema, &foreign).len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn deliveries_are_as_documented() {
    let shop = Shop::open().await;
    let document = Document::of(&shop).await;
    for (number, event) in [
        ("0240000001", "payment.success"),
        ("0240000006", "payment.failed"),
    ] {
        let charge = shop.charge(number, "MTN").await;
        let reference = charge.text("reference").unwrap();
        shop.wait_for_event(reference).await;
        let delivery = shop.events(reference).remove(0);
        assert_eq!(delivery.json().unwrap()["type"], event);
        document.check_delivery(event, &delivery);
    }

    // A session that nobody paid, in another currency.
    let body = json!({ "amount": 12.5 });
    let session = shop.api.post(INITIATE, &body).await.unwrap();
    shop.advance(Duration::from_secs(25 * 60 * 60)).await;
    let expired = wait_for(
        &shop.receiver,
        "session_id",
        session.text("session_id").unwrap(),
    )
    .await;
    assert_eq!(
        expired.json().unwrap()["data"]["tx_id_display"],
        Value::Null
    );
    document.check_delivery("payment.failed", &expired);

    // A separate endpoint, because the shop's receiver only knows payments.
    let payouts = Receiver::start().await.unwrap();
    shop.set_endpoint(&payouts.url).await;
    for (number, event, event_type) in [
        (1, "payout.success", EventType::PayoutSuccess),
        (2, "payout.failed", EventType::PayoutFailed),
    ] {
        let payout = payout(&shop, number, event_type);
        let mut webhooks = WebhooksClient::new(connect(&shop.ready.grpc.webhooks));
        webhooks.publish(payout).await.unwrap();
        let delivery = wait_for(&payouts, "payout_id", &format!("PO-{number}")).await;
        document.check_delivery(event, &delivery);
    }
    shop.close().await;
}

fn payout(shop: &Shop, number: u8, event_type: EventType) -> PublishRequest {
    let is_failed = event_type == EventType::PayoutFailed;
    let now = "2026-11-22T06:00:12.000Z".to_owned();
    PublishRequest {
        event_id: format!("evt_0000000000000000000000000{number}"),
        merchant_id: shop.ready.demo.merchant_id.clone(),
        r#type: event_type.into(),
        created_at: now.clone(),
        data: Some(Data::Payout(Payout {
            payout_id: format!("PO-{number}"),
            amount: Some(proto::money::Money {
                minor_units: 125_000,
                currency: "GHS".to_owned(),
            }),
            method: "MOBILE_MONEY".to_owned(),
            status: if is_failed { "FAILED" } else { "COMPLETED" }.to_owned(),
            destination_type: "MOBILE_MONEY".to_owned(),
            destination_provider: "MTN".to_owned(),
            destination_account: "024 ••• 4567".to_owned(),
            failure_reason: is_failed.then(|| "RAIL_ERROR".to_owned()),
            created_at: now.clone(),
            completed_at: (!is_failed).then_some(now),
        })),
    }
}

/// The first delivery whose data have this value.
async fn wait_for(receiver: &Receiver, name: &str, value: &str) -> WebhookRequest {
    let waiting = async {
        loop {
            let mut deliveries = receiver.deliveries().into_iter();
            let is_it = |delivery: &WebhookRequest| delivery.json().unwrap()["data"][name] == value;
            if let Some(found) = deliveries.find(is_it) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(WAIT_MAX, waiting).await;
    found.expect("the delivery arrives")
}
