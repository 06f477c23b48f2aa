//! A client of the transfer wires that does everything right, and what the book says of each.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::world::{DISBURSEMENT, Wires, World, credentials, plain_reference, reference};

impl Wires {
    pub async fn payout_token(&self) -> String {
        let [(_, subscription), (_, user), (_, key)] = DISBURSEMENT;
        let basic = BASE64_STANDARD.encode(format!("{user}:{key}"));
        let answer = self
            .client
            .post(format!("{}/disbursement/token/", self.base))
            .header("Authorization", format!("Basic {basic}"))
            .header("Ocp-Apim-Subscription-Key", subscription)
            .json(&json!({"grant_type": "client_credentials"}))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        answer["access_token"].as_str().unwrap().to_owned()
    }

    pub async fn payout_call(&self, method: Method, path: &str) -> RequestBuilder {
        let token = self.payout_token().await;
        let [(_, subscription), ..] = DISBURSEMENT;
        self.client
            .request(method, format!("{}/disbursement/v1_0{path}", self.base))
            .header("Authorization", format!("Bearer {token}"))
            .header("X-Target-Environment", "mtnghana")
            .header("Ocp-Apim-Subscription-Key", subscription)
    }

    /// Asks MTN to pay 25.50.
    pub async fn momo_transfer(
        &self,
        reference: &str,
        phone: &str,
        callback: &str,
    ) -> reqwest::Result<Response> {
        self.payout_call(Method::POST, "/transfer")
            .await
            .header("X-Reference-Id", reference)
            .header("X-Callback-Url", callback)
            .json(&json!({
                "amount": "25.50",
                "currency": "GHS",
                "externalId": reference,
                "payee": {"partyIdType": "MSISDN", "partyId": phone},
                "payerMessage": "Payout PO-1",
                "payeeNote": "Payout PO-1",
            }))
            .send()
            .await
    }

    pub async fn momo_transfer_status(&self, reference: &str) -> Response {
        let path = format!("/transfer/{reference}");
        let call = self.payout_call(Method::GET, &path).await;
        call.send().await.unwrap()
    }

    /// What MTN answers to a question.
    pub async fn payout_json(&self, path: &str) -> Value {
        let call = self.payout_call(Method::GET, path).await;
        let answer = call.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    /// Makes a wallet known to Paystack. Returns the recipient's code.
    pub async fn recipient(&self, number: &str, code: &str) -> String {
        let body = json!({
            "type": "mobile_money", "name": "Ama Mensah", "account_number": number,
            "bank_code": code, "currency": "GHS",
        });
        let call = self.paystack(Method::POST, "/transferrecipient");
        let answer = call.json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        let answer: Value = answer.json().await.unwrap();
        answer["data"]["recipient_code"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Asks Paystack to pay 25.50.
    pub async fn paystack_transfer(
        &self,
        reference: &str,
        number: &str,
    ) -> reqwest::Result<Response> {
        let recipient = self.recipient(number, "ATL").await;
        self.paystack(Method::POST, "/transfer")
            .json(&json!({
                "source": "balance", "amount": 2550, "currency": "GHS", "recipient": recipient,
                "reference": reference, "reason": "PO-1",
            }))
            .send()
            .await
    }

    pub async fn paystack_transfer_status(&self, reference: &str) -> Response {
        let path = format!("/transfer/verify/{reference}");
        self.paystack(Method::GET, &path).send().await.unwrap()
    }

    /// The word with which a rail says how a credit stands, or the HTTP status.
    pub async fn stands(&self, rail: &str, reference: &str) -> String {
        let (answer, path) = match rail {
            "momo" => (self.momo_transfer_status(reference).await, "/status"),
            "hubtel" => (self.send_status(reference).await, "/Data/transactionStatus"),
            _ => (
                self.paystack_transfer_status(reference).await,
                "/data/status",
            ),
        };
        if answer.status() != 200 {
            return answer.status().as_u16().to_string();
        }
        let body: Value = answer.json().await.unwrap();
        body.pointer(path).unwrap().as_str().unwrap().to_lowercase()
    }

    pub async fn credit(&self, reference: &str) -> Value {
        let lines: Vec<Value> = self.own("/credits").await;
        let mut lines = lines
            .into_iter()
            .filter(|line| line["reference"] == reference);
        let line = lines.next().unwrap();
        assert!(lines.next().is_none(), "one line for each reference");
        line
    }

    /// What the float of a rail holds, in pesewas.
    pub async fn float(&self, rail: &str) -> i64 {
        let lines: Vec<Value> = self.own("/float").await;
        let line = lines.iter().find(|line| line["rail"] == rail).unwrap();
        line["held_minor"].as_i64().unwrap()
    }

    pub async fn add_float(&self, rail: &str, amount_minor: i64) {
        let body = json!({"rail": rail, "amount_minor": amount_minor});
        let call = self.client.post(format!("{}/float", self.base));
        let answer = call.json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    async fn own<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        let url = format!("{}{path}", self.base);
        let answer = self.client.get(url).send().await.unwrap();
        answer.json().await.unwrap()
    }
}

/// Asks a rail to pay 25.50 to the wallet of a story. Returns the answer's HTTP status, or none if
/// the connection was cut.
pub async fn pay(world: &World, rail: &str, reference: &str, story: &str) -> Option<u16> {
    let wires = world.wires();
    let answer = match rail {
        "momo" => {
            let phone = format!("233241234{story}");
            let callback = &world.callback;
            wires.momo_transfer(reference, &phone, callback).await
        }
        "hubtel" => {
            let phone = format!("233241234{story}");
            wires.send(reference, &phone, &world.callback).await
        }
        _ => {
            let number = format!("0271234{story}");
            wires.paystack_transfer(reference, &number).await
        }
    };
    answer.ok().map(|answer| answer.status().as_u16())
}

fn reference_at(rail: &str) -> String {
    match rail {
        "hubtel" => plain_reference(0),
        _ => reference(0),
    }
}

#[tokio::test]
async fn every_rail_tells_every_story() {
    for rail in ["momo", "paystack", "hubtel"] {
        let (taken, failed) = (if rail == "momo" { 202 } else { 200 }, "failed");
        let paid = if rail == "momo" {
            "successful"
        } else {
            "success"
        };
        let (busy, poor) = match rail {
            "momo" => (503, (Some(202), failed)),
            "hubtel" => (429, (Some(200), failed)),
            _ => (429, (Some(400), "404")),
        };
        // Hubtel refuses with a code.
        let unknown = if rail == "hubtel" { 200 } else { 400 };
        // The story, the first answer, the end, how often it was credited, and with what.
        let stories = [
            ("201", Some(taken), paid, 1, 2550),
            ("203", Some(taken), failed, 0, 0),
            ("204", Some(unknown), "404", 0, 0),
            ("205", Some(taken), failed, 0, 0),
            ("206", poor.0, poor.1, 0, 0),
            ("207", None, paid, 1, 2550),
            ("208", Some(taken), paid, 1, 2550),
            ("209", Some(taken), paid, 1, 2550),
            ("212", Some(taken), paid, 1, 2550),
            ("213", Some(busy), "404", 0, 0),
            ("214", Some(taken), paid, 1, 2650),
            ("215", None, "404", 0, 0),
            ("217", Some(taken), paid, 1, 2550),
        ];
        let world = World::start().await;
        let wires = world.wires();
        let mut credited = 0;
        for (story, first, end, credits, credited_minor) in stories {
            let reference = reference_at(rail);
            assert_eq!(
                pay(&world, rail, &reference, story).await,
                first,
                "{rail} {story}"
            );
            world.advance(2).await;
            assert_eq!(wires.stands(rail, &reference).await, end, "{rail} {story}");
            let line = wires.credit(&reference).await;
            assert_eq!(
                (&line["credits"], &line["credited_minor"]),
                (&json!(credits), &json!(credited_minor)),
                "{rail} {story}"
            );
            credited += credited_minor + if rail == "paystack" { credits * 100 } else { 0 };
        }
        assert_eq!(wires.float(rail).await, 100_000_000 - credited, "{rail}");
    }
}

#[tokio::test]
async fn a_reference_is_used_once_and_one_that_was_not_taken_is_free() {
    for (rail, taken, refused) in [
        ("momo", 202, 409),
        ("paystack", 200, 400),
        ("hubtel", 200, 400),
    ] {
        let world = World::start().await;
        let wires = world.wires();
        for story in ["201", "203", "213", "215"] {
            let reference = reference_at(rail);
            if matches!(story, "213" | "215") {
                assert_ne!(pay(&world, rail, &reference, story).await, Some(taken));
            }
            assert_eq!(pay(&world, rail, &reference, story).await, Some(taken));
            assert_eq!(pay(&world, rail, &reference, story).await, Some(refused));
            world.advance(60).await;
            assert_eq!(pay(&world, rail, &reference, story).await, Some(refused));
            world.advance(60).await;
            let credits = wires.credit(&reference).await["credits"].as_u64().unwrap();
            assert_eq!(credits, u64::from(story != "203"), "{rail} {story}");
        }
    }
}

#[tokio::test]
async fn what_a_query_was_told_has_failed_is_paid_five_seconds_later() {
    for (rail, paid) in [
        ("momo", "successful"),
        ("paystack", "success"),
        ("hubtel", "success"),
    ] {
        let world = World::start().await;
        let (wires, reference) = (world.wires(), reference_at(rail));
        pay(&world, rail, &reference, "210").await;
        world.advance(600).await;
        let failed = wires.credit(&reference).await;
        assert_eq!(
            (&failed["status"], &failed["may_change"]),
            (&json!("failed"), &json!(true))
        );
        assert_eq!(wires.stands(rail, &reference).await, "failed");
        world.advance(4).await;
        assert_eq!(wires.stands(rail, &reference).await, "failed");
        world.advance(2).await;
        assert_eq!(wires.stands(rail, &reference).await, paid);
        world.advance(60).await;
        let paid = wires.credit(&reference).await;
        assert_eq!(
            (&paid["credits"], &paid["may_change"]),
            (&json!(1), &json!(false))
        );
    }
}

#[tokio::test]
async fn a_float_pays_what_it_holds_and_no_more() {
    let world = World::start_with(&["--float=51.00"]).await;
    let wires = world.wires();
    let (first, second, third) = (reference(0), reference(0), reference(0));
    for reference in [&first, &second, &third] {
        assert_eq!(pay(&world, "momo", reference, "201").await, Some(202));
        world.advance(2).await;
    }
    assert_eq!(wires.stands("momo", &second).await, "successful");
    assert_eq!(wires.stands("momo", &third).await, "failed");
    assert_eq!(wires.float("momo").await, 0);
    // Paystack takes a cedi with each, and at once.
    assert_eq!(pay(&world, "paystack", &first, "201").await, Some(200));
    assert_eq!(wires.float("paystack").await, 5_100 - 2_650);
    assert_eq!(pay(&world, "paystack", &second, "201").await, Some(400));
    wires.add_float("paystack", 200).await;
    assert_eq!(pay(&world, "paystack", &second, "201").await, Some(200));
    assert_eq!(wires.float("paystack").await, 0);
}

#[tokio::test]
async fn in_story_206_the_float_is_empty_until_somebody_adds_to_it() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    assert_eq!(pay(&world, "paystack", &reference, "206").await, Some(400));
    wires.add_float("paystack", 1).await;
    assert_eq!(pay(&world, "paystack", &reference, "206").await, Some(200));
    world.advance(2).await;
    assert_eq!(wires.stands("paystack", &reference).await, "success");
}

#[tokio::test]
async fn a_client_without_disbursement_has_no_such_product() {
    let mut flags = credentials();
    flags.retain(|flag| !flag.starts_with("--momo-disbursement"));
    flags.insert(0, "railsim".to_owned());
    let all: railsim::Config = clap::Parser::try_parse_from(&flags).unwrap();
    chassis::config::check(&all).unwrap();
    flags.push("--momo-disbursement-api-key=alone".to_owned());
    let some: railsim::Config = clap::Parser::try_parse_from(&flags).unwrap();
    assert!(chassis::config::check(&some).is_err());
}
