//! Hubtel's receive API: a client that does everything right, who may call, strictness, callbacks.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::world::{HUBTEL_ID, HUBTEL_KEY, POS, PREPAID, Wires, World, plain_reference, reference};

pub const RECEIVE: &str = "/merchantaccount/merchants/2017/receive/mobilemoney";

const PAYER: &str = "233241234001";

impl Wires {
    pub fn hubtel(&self, method: Method, path: &str) -> RequestBuilder {
        let basic = BASE64_STANDARD.encode(format!("{HUBTEL_ID}:{HUBTEL_KEY}"));
        self.client
            .request(method, format!("{}{path}", self.base))
            .header("Authorization", format!("Basic {basic}"))
    }

    /// Asks Hubtel to debit the payer by 25.50.
    pub async fn receive(
        &self,
        reference: &str,
        phone: &str,
        callback: &str,
    ) -> reqwest::Result<Response> {
        let body = hubtel_body(reference, phone, callback);
        self.hubtel(Method::POST, RECEIVE).json(&body).send().await
    }

    pub async fn hubtel_status(&self, reference: &str) -> Response {
        let path = format!("/transactions/{POS}/status?clientReference={reference}");
        self.hubtel(Method::GET, &path).send().await.unwrap()
    }

    /// `data` of the answer to a query.
    pub async fn hubtel_data(&self, reference: &str) -> Value {
        let answer = self.hubtel_status(reference).await;
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["responseCode"], "0000");
        answer["data"].clone()
    }
}

pub fn hubtel_body(reference: &str, phone: &str, callback: &str) -> Value {
    json!({
        "CustomerName": "Ama Mensah",
        "CustomerMsisdn": phone,
        "CustomerEmail": "ama@example.com",
        "Channel": "mtn-gh",
        "Amount": 25.50,
        "PrimaryCallbackUrl": callback,
        "Description": "Order 17",
        "ClientReference": reference,
    })
}

#[tokio::test]
async fn a_payment_is_accepted_then_unpaid_then_paid_with_one_callback() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, PAYER, &world.callback).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    let transaction = answer["Data"]["TransactionId"].as_str().unwrap().to_owned();
    let expected = json!({
        "Message": "Transaction pending. Expect callback request for final state",
        "ResponseCode": "0001",
        "Data": {
            "TransactionId": transaction,
            "Description": "Order 17",
            "ClientReference": reference,
            "Amount": 25.5,
            "Charges": 0.0,
            "AmountAfterCharges": 25.5,
            "AmountCharged": 25.5,
            "DeliveryFee": 0.0,
        },
    });
    assert_eq!(answer, expected);
    let unpaid = wires.hubtel_data(&reference).await;
    assert_eq!(unpaid["status"], "Unpaid");
    assert!(unpaid["currencyCode"].is_null());

    world.advance(2).await;
    let paid = wires.hubtel_data(&reference).await;
    let expected = json!({
        "date": paid["date"],
        "status": "Paid",
        "transactionId": transaction,
        "externalTransactionId": "4000000000",
        "paymentMethod": "mobilemoney",
        "clientReference": reference,
        "currencyCode": null,
        "amount": 25.5,
        "charges": 0.0,
        "amountAfterCharges": 25.5,
        "isFulfilled": null,
    });
    assert_eq!(paid, expected);
    let calls = world.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].method, Method::POST);
    assert_eq!(calls[0].signature, None);
    let told = calls[0].json();
    assert_eq!(told["ResponseCode"], "0000");
    assert_eq!(told["Message"], "success");
    assert_eq!(told["Data"]["ClientReference"], reference.as_str());
    assert_eq!(told["Data"]["ExternalTransactionId"], "4000000000");
    assert_eq!(told["Data"]["OrderId"], transaction);
    assert!(told["Data"]["PaymentDate"].is_string());
    let expected = json!({
        "rail": "hubtel", "reference": reference, "phone": "+233241234001",
        "amount_minor": 2550, "currency": "GHS", "status": "succeeded", "debits": 1,
        "debited_minor": 2550, "requests": 1,
    });
    assert_eq!(world.entry(&reference).await, expected);
}

#[tokio::test]
async fn what_it_charges_the_payer_comes_on_top() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(1));
    let answer = wires.receive(&reference, PAYER, &world.callback).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    let data = &answer["Data"];
    assert_eq!(
        (&data["Amount"], &data["Charges"], &data["AmountCharged"]),
        (&json!(25.5), &json!(0.51), &json!(26.01))
    );
    world.advance(2).await;
    let paid = wires.hubtel_data(&reference).await;
    assert_eq!(
        (
            &paid["amount"],
            &paid["charges"],
            &paid["amountAfterCharges"]
        ),
        (&json!(25.5), &json!(0.51), &json!(25.5))
    );
}

#[tokio::test]
async fn a_callback_is_sent_once_whatever_is_answered() {
    let world = World::start().await;
    world.refuse_calls(10);
    let reference = plain_reference(0);
    let wires = world.wires();
    wires
        .receive(&reference, PAYER, &world.callback)
        .await
        .unwrap();
    world.advance(24 * 3_600).await;
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn a_reference_is_unique_for_ever() {
    let world = World::start().await;
    let wires = world.wires();
    for digits in ["001", "004", "007"] {
        let (reference, phone) = (plain_reference(0), format!("233241234{digits}"));
        wires
            .receive(&reference, &phone, &world.callback)
            .await
            .unwrap();
        world.advance(600).await;
        let again = wires.receive(&reference, PAYER, &world.callback).await;
        let again = again.unwrap();
        assert_eq!(again.status(), 400);
        let body: Value = again.json().await.unwrap();
        assert_eq!(body["ResponseCode"], "4000");
        world.advance(600).await;
        let entry = world.entry(&reference).await;
        assert_eq!(entry["debits"], u64::from(digits == "001"));
        assert_eq!(entry["requests"], 2);
    }
}

#[tokio::test]
async fn a_wrong_key_and_another_account_are_4101() {
    let world = World::start().await;
    let wires = world.wires();
    let body = hubtel_body(&plain_reference(0), PAYER, &world.callback);
    let paths = [
        (Method::POST, RECEIVE.to_owned()),
        (
            Method::GET,
            format!("/transactions/{POS}/status?clientReference=x"),
        ),
        (
            Method::GET,
            format!("/api/merchants/{PREPAID}/transactions/status?clientReference=x"),
        ),
        (
            Method::POST,
            format!("/api/merchants/{PREPAID}/send/mobilemoney"),
        ),
        (
            Method::GET,
            format!("/api/inter-transfers/prepaid/{PREPAID}"),
        ),
    ];
    for (method, path) in paths {
        let call = |path: &str| {
            wires
                .client
                .request(method.clone(), format!("{}{path}", world.base))
        };
        let other = path.replace(POS, "2018").replace(PREPAID, "3018");
        let right = wires.hubtel(method.clone(), &other).json(&body);
        for (request, status) in [
            (call(&path).json(&body), 401),
            (
                call(&path)
                    .json(&body)
                    .header("Authorization", "Basic eDp5"),
                401,
            ),
            (right, 400),
        ] {
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
            let body: Value = answer.json().await.unwrap();
            assert_eq!(body["ResponseCode"], "4101");
        }
    }
    assert_eq!(wires.book().await.len(), 0);
}

#[tokio::test]
async fn only_listed_addresses_may_call() {
    for (listed, status) in [("127.0.0.9,10.0.0.1", 403), ("10.0.0.1,127.0.0.1", 200)] {
        let flag = format!("--hubtel-allowed-addresses={listed}");
        let world = World::start_with(&[&flag]).await;
        let wires = world.wires();
        let reference = plain_reference(0);
        let answer = wires.receive(&reference, PAYER, &world.callback).await;
        assert_eq!(answer.unwrap().status(), status);
        let books = usize::from(status == 200);
        assert_eq!(
            wires.book().await.len(),
            books,
            "the handset is not Hubtel's"
        );
    }
    let five = "--hubtel-allowed-addresses=10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5";
    let mut flags = crate::world::credentials();
    flags.insert(0, "railsim".to_owned());
    flags.push(five.to_owned());
    let config: railsim::Config = clap::Parser::try_parse_from(&flags).unwrap();
    assert!(chassis::config::check(&config).is_err());
}

#[tokio::test]
async fn a_wrong_body_is_4000() {
    let world = World::start().await;
    let wires = world.wires();
    let table = [
        ("CustomerMsisdn", json!("0241234001")),
        ("CustomerMsisdn", json!("+233241234001")),
        ("CustomerMsisdn", json!(233_241_234_001_u64)),
        ("CustomerMsisdn", Value::Null),
        ("Channel", json!("mtn")),
        ("Channel", json!("MTN-GH")),
        ("Channel", Value::Null),
        ("Amount", json!("25.50")),
        ("Amount", json!(25.505)),
        ("Amount", json!(0)),
        ("Amount", json!(-1)),
        ("Amount", Value::Null),
        ("PrimaryCallbackUrl", json!("nowhere")),
        ("PrimaryCallbackUrl", Value::Null),
        ("Description", json!("")),
        ("Description", json!("Order & more")),
        ("Description", json!("100%")),
        ("Description", json!("a^b")),
        ("Description", Value::Null),
        ("ClientReference", json!(reference(0))),
        ("ClientReference", json!("a".repeat(37))),
        ("ClientReference", json!("")),
        ("ClientReference", Value::Null),
    ];
    let right = || hubtel_body(&plain_reference(0), PAYER, &world.callback);
    let refused = async |request: reqwest::RequestBuilder, shown: &str| {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{shown}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["ResponseCode"], "4000", "{shown}");
        assert!(body["Message"].is_string());
    };
    for (member, value) in table {
        let mut body = right();
        body[member] = value;
        let request = wires.hubtel(Method::POST, RECEIVE).json(&body);
        refused(request, &body.to_string()).await;
    }
    let untyped = wires
        .hubtel(Method::POST, RECEIVE)
        .body(right().to_string());
    refused(untyped, "no content type").await;
    let path = format!("/transactions/{POS}/status");
    refused(wires.hubtel(Method::GET, &path), "no reference").await;
    assert_eq!(wires.book().await.len(), 0);
}

#[tokio::test]
async fn the_callbacks_address_has_two_spellings() {
    let world = World::start().await;
    let wires = world.wires();
    let mut body = hubtel_body(&plain_reference(0), PAYER, &world.callback);
    let members = body.as_object_mut().unwrap();
    let url = members.remove("PrimaryCallbackUrl").unwrap();
    members.insert("PrimaryCallbackURL".to_owned(), url);
    let answer = wires.hubtel(Method::POST, RECEIVE).json(&body).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    world.advance(2).await;
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn an_unknown_reference_is_404_with_a_body() {
    let world = World::start().await;
    let answer = world.wires().hubtel_status(&plain_reference(0)).await;
    assert_eq!(answer.status(), 404);
    let body: Value = answer.json().await.unwrap();
    assert!(body["responseCode"].is_string() && body["message"].is_string());
}
