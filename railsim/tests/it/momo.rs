//! The MTN API: credentials, strictness, and the variants of its answers.

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::{SUBSCRIPTION, World, momo_body, reference};

const PAYER: &str = "233241234001";

#[tokio::test]
async fn a_payment_is_accepted_empty_then_pending_then_successful() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    let answer = wires
        .request_to_pay(&reference, PAYER, &world.callback)
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await.unwrap(), "");

    let pending = wires.momo_json(&reference).await;
    let expected = json!({
        "amount": "25.50",
        "currency": "GHS",
        "externalId": "order-17",
        "payer": {"partyIdType": "MSISDN", "partyId": PAYER},
        "payerMessage": "Order 17",
        "payeeNote": "TX-ABC",
        "status": "PENDING",
    });
    assert_eq!(pending, expected);
    assert_eq!(world.entry(&reference).await["debits"], 0);

    world.advance(2).await;
    let successful = wires.momo_json(&reference).await;
    assert_eq!(successful["status"], "SUCCESSFUL");
    assert!(successful["financialTransactionId"].is_string());
    let entry = world.entry(&reference).await;
    let expected = json!({
        "rail": "momo", "reference": reference, "phone": "+233241234001", "amount_minor": 2550,
        "currency": "GHS", "status": "succeeded", "debits": 1, "debited_minor": 2550,
        "requests": 1,
    });
    assert_eq!(entry, expected);

    let calls = world.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].json(), successful);
    assert_eq!(calls[0].signature, None);
}

#[tokio::test]
async fn the_reference_chooses_put_or_post_and_the_shapes_of_reasons_and_numbers() {
    let world = World::start().await;
    let wires = world.wires();
    for (last, method) in [
        (0, Method::POST),
        (1, Method::PUT),
        (2, Method::POST),
        (5, Method::PUT),
    ] {
        let reference = reference(last);
        wires
            .request_to_pay(&reference, "233241234003", &world.callback)
            .await
            .unwrap();
        world.advance(2).await;
        let call = world.calls().pop().unwrap();
        assert_eq!(call.method, method);
        let failed = wires.momo_json(&reference).await;
        assert_eq!(failed["status"], "FAILED");
        assert_eq!(call.json(), failed);
        match last & 2 {
            0 => assert_eq!(failed["reason"], "NOT_ENOUGH_FUNDS"),
            _ => assert_eq!(failed["reason"]["code"], "NOT_ENOUGH_FUNDS"),
        }
        let text = serde_json::to_string(&failed).unwrap();
        let as_number = last & 4 != 0;
        assert_eq!(text.contains("\"amount\":\"25.50\""), !as_number, "{text}");
    }
    assert_eq!(world.calls().len(), 4);
}

#[tokio::test]
async fn a_second_request_with_a_reference_is_409_and_debits_nothing() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    wires
        .request_to_pay(&reference, PAYER, &world.callback)
        .await
        .unwrap();
    let again = wires
        .request_to_pay(&reference, PAYER, &world.callback)
        .await
        .unwrap();
    assert_eq!(again.status(), 409);
    let body: Value = again.json().await.unwrap();
    assert_eq!(body["code"], "RESOURCE_ALREADY_EXIST");
    world.advance(60).await;
    let again = wires
        .request_to_pay(&reference, PAYER, &world.callback)
        .await
        .unwrap();
    assert_eq!(again.status(), 409);
    world.advance(60).await;
    let entry = world.entry(&reference).await;
    assert_eq!(
        (&entry["debits"], &entry["requests"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn fifty_requests_at_once_with_one_reference_are_one_payment() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    let requests = (0..50).map(|_| wires.request_to_pay(&reference, PAYER, &world.callback));
    let answers = futures::future::join_all(requests).await;
    let accepted = answers
        .iter()
        .filter(|answer| answer.as_ref().unwrap().status() == 202);
    assert_eq!(accepted.count(), 1);
    world.advance(5).await;
    let entry = world.entry(&reference).await;
    assert_eq!(
        (&entry["debits"], &entry["requests"]),
        (&json!(1), &json!(50))
    );
}

#[tokio::test]
async fn a_token_ends_after_an_hour_and_another_is_given() {
    let world = World::start().await;
    let wires = world.wires();
    let token = wires.token().await;
    let path = format!("/collection/v1_0/requesttopay/{}", reference(0));
    let status = async || {
        wires
            .momo(world.get(&path), &token)
            .send()
            .await
            .unwrap()
            .status()
    };
    world.advance(3_590).await;
    assert_eq!(status().await, 404);
    world.advance(11).await;
    assert_eq!(status().await, 401);
    assert_eq!(wires.momo_status(&reference(0)).await.status(), 404);
}

#[tokio::test]
async fn a_token_is_given_for_the_right_credentials_only() {
    let world = World::start().await;
    let ask = async |name: &'static str, value: Option<&str>| {
        let mut request = world.wires().token_request().build().unwrap();
        request.headers_mut().remove(name);
        if let Some(value) = value {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let answer = world.client.execute(request).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    let (status, answer) = ask("X-Nothing", None).await;
    assert_eq!((status, &answer["expires_in"]), (200, &json!(3_600)));
    for (name, value) in [
        ("Authorization", None),
        ("Authorization", Some("Basic bm9ib2R5Om5vdGhpbmc=")),
        ("Authorization", Some("Basic ???")),
        ("Authorization", Some("Bearer bm9ib2R5Om5vdGhpbmc=")),
        ("Ocp-Apim-Subscription-Key", None),
        ("Ocp-Apim-Subscription-Key", Some("other")),
    ] {
        let (status, answer) = ask(name, value).await;
        assert_eq!(status, 401, "{name}: {value:?}");
        assert!(answer["code"].is_string() && answer["message"].is_string());
    }
    let mut request = world.wires().token_request().build().unwrap();
    *request.body_mut() = Some(r#"{"grant_type":"password"}"#.into());
    assert_eq!(world.client.execute(request).await.unwrap().status(), 400);
    assert_eq!(
        world
            .post("/collection/token")
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
}

#[tokio::test]
async fn a_form_is_answered_by_the_firewall_with_200_and_a_page() {
    let world = World::start().await;
    let answer = world
        .post("/collection/token/")
        .header("Ocp-Apim-Subscription-Key", SUBSCRIPTION)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body("grant_type=client_credentials")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert!(
        answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    assert!(answer.text().await.unwrap().contains("Request Rejected"));
}

#[tokio::test]
async fn a_post_without_a_body_is_411() {
    let world = World::start().await;
    let mut request = world.wires().token_request().build().unwrap();
    *request.body_mut() = None;
    request.headers_mut().remove("Content-Type");
    let answer = world.client.execute(request).await.unwrap();
    assert_eq!(answer.status(), 411);

    let address = world.base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let basic = "NWYxYjdkNmUtMDAwMC00MDAwLTgwMDAtMDAwMDAwMDAwMDAxOmFwaS1rZXk=";
    let head = format!(
        "POST /collection/token/ HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {basic}\r\n\
         Ocp-Apim-Subscription-Key: {SUBSCRIPTION}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 411 "), "{answer}");
}

/// Sends a correct request to pay, except for what `spoil` changes in its headers and body.
async fn spoiled(
    world: &World,
    spoil: impl FnOnce(&mut http::HeaderMap, &mut Value),
) -> (u16, Value) {
    let wires = world.wires();
    let token = wires.token().await;
    let request = world.post("/collection/v1_0/requesttopay");
    let request = wires
        .momo(request, &token)
        .header("X-Reference-Id", reference(0));
    let mut request = request
        .header("Content-Type", "application/json")
        .build()
        .unwrap();
    let mut body = momo_body(PAYER);
    spoil(request.headers_mut(), &mut body);
    *request.body_mut() = Some(body.to_string().into());
    let answer = world.client.execute(request).await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

/// A header, its wrong value (`None`: missing), and the status and code of the answer.
const WRONG_HEADERS: [(&str, Option<&str>, u16, &str); 15] = [
    ("Authorization", None, 401, "ACCESS_DENIED"),
    (
        "Authorization",
        Some("Bearer nonsense"),
        401,
        "ACCESS_DENIED",
    ),
    (
        "Authorization",
        Some("Bearer 99999999999999.00"),
        401,
        "ACCESS_DENIED",
    ),
    (
        "Authorization",
        Some("Basic 99999999999999.00"),
        401,
        "ACCESS_DENIED",
    ),
    ("Ocp-Apim-Subscription-Key", None, 401, "ACCESS_DENIED"),
    (
        "Ocp-Apim-Subscription-Key",
        Some("other"),
        401,
        "ACCESS_DENIED",
    ),
    ("X-Target-Environment", None, 400, "VALIDATION_ERROR"),
    (
        "X-Target-Environment",
        Some("sandbox"),
        500,
        "NOT_ALLOWED_TARGET_ENVIRONMENT",
    ),
    ("X-Reference-Id", None, 400, "VALIDATION_ERROR"),
    ("X-Reference-Id", Some("17"), 400, "VALIDATION_ERROR"),
    (
        "X-Reference-Id",
        Some("01890a5d-ac96-774b-bcce-b302099a8057"),
        400,
        "VALIDATION_ERROR",
    ),
    ("Content-Type", Some("text/plain"), 400, "VALIDATION_ERROR"),
    ("Content-Type", None, 400, "VALIDATION_ERROR"),
    ("X-Callback-Url", Some("/relative"), 400, "VALIDATION_ERROR"),
    (
        "X-Callback-Url",
        Some("http://evil.example/x"),
        500,
        "INVALID_CALLBACK_URL_HOST",
    ),
];

#[tokio::test]
async fn a_wrong_header_is_refused_in_the_documented_way() {
    let world = World::start_with(&["--momo-callback-host=merchant.example"]).await;
    for (name, value, status, code) in WRONG_HEADERS {
        let (given, body) = spoiled(&world, |headers, _| {
            headers.remove(name);
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        })
        .await;
        assert_eq!(
            (given, body["code"].as_str()),
            (status, Some(code)),
            "{name}: {value:?}"
        );
    }
    let (status, _) = spoiled(&world, |headers, _| {
        headers.insert(
            "X-Callback-Url",
            "https://merchant.example/x".parse().unwrap(),
        );
    })
    .await;
    assert_eq!(status, 202);
    assert_eq!(
        world.wires().book().await.len(),
        1,
        "nothing that was refused is in the book"
    );
}

#[tokio::test]
async fn a_wrong_body_is_refused_in_the_documented_way() {
    let world = World::start().await;
    let long = "x".repeat(129);
    let table = [
        ("/amount", json!(25.5), 400),
        ("/amount", json!(25), 400),
        ("/amount", json!("-1"), 400),
        ("/amount", json!("+1"), 400),
        ("/amount", json!("0"), 400),
        ("/amount", json!("0.00"), 400),
        ("/amount", json!("25.505"), 400),
        ("/amount", json!("1e2"), 400),
        ("/amount", json!(""), 400),
        ("/amount", json!("."), 400),
        ("/amount", json!("99999999999999999999999999"), 400),
        ("/amount", Value::Null, 400),
        ("/currency", json!("EUR"), 500),
        ("/currency", json!("ghs"), 500),
        ("/currency", Value::Null, 400),
        ("/externalId", json!(17), 400),
        ("/externalId", json!(""), 400),
        ("/payer", Value::Null, 400),
        ("/payer/partyIdType", json!("EMAIL"), 400),
        ("/payer/partyId", json!("+233241234001"), 400),
        ("/payer/partyId", json!("0241234001"), 400),
        ("/payer/partyId", json!(233_241_234_001_u64), 400),
        ("/payer/partyId", json!("23324x234001"), 400),
        ("/payer/partyId", json!(""), 400),
        ("/payerMessage", Value::Null, 400),
        ("/payerMessage", json!("Ama's order"), 400),
        ("/payerMessage", json!("Order #17"), 400),
        ("/payerMessage", json!("Caf\u{e9}"), 400),
        ("/payeeNote", json!(long), 400),
        ("/payeeNote", Value::Null, 400),
    ];
    for (pointer, value, status) in table {
        let shown = format!("{pointer}: {value}");
        let (given, body) = spoiled(&world, |_, body| {
            *body.pointer_mut(pointer).unwrap() = value
        })
        .await;
        assert_eq!(given, status, "{shown}");
        let code = if status == 500 {
            "INVALID_CURRENCY"
        } else {
            "VALIDATION_ERROR"
        };
        assert_eq!(body["code"], code, "{shown}");
        assert!(body["message"].is_string());
    }
    for name in [
        "amount",
        "currency",
        "externalId",
        "payer",
        "payerMessage",
        "payeeNote",
    ] {
        let (given, _) = spoiled(&world, |_, body| {
            body.as_object_mut().unwrap().remove(name);
        })
        .await;
        assert_eq!(given, 400, "without {name}");
    }
    assert_eq!(world.wires().book().await.len(), 0);
}

#[tokio::test]
async fn an_unknown_reference_is_404_and_a_malformed_one_400() {
    let world = World::start().await;
    let unknown = world.wires().momo_status(&reference(0)).await;
    assert_eq!(unknown.status(), 404);
    let body: Value = unknown.json().await.unwrap();
    assert_eq!(body["code"], "RESOURCE_NOT_FOUND");
    assert_eq!(world.wires().momo_status("seventeen").await.status(), 400);
}
