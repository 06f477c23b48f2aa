//! A payment on one of the APIs, with the same operations for all.

use http::StatusCode;
use serde_json::Value;

use crate::world::{Wires, World, plain_reference, reference};

pub struct Payment {
    wires: Wires,
    rail: Wire,
    pub reference: String,
    callback: String,
    phone_head: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    Momo,
    Telecel,
    Hubtel,
}

/// What a query returns: the status in one word, and the reason or amount.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Pending,
    Succeeded(String),
    Failed(String),
}

impl Payment {
    pub fn new(world: &World, rail: Wire) -> Self {
        Self {
            wires: world.wires(),
            rail,
            reference: match rail {
                Wire::Momo | Wire::Telecel => reference(0),
                Wire::Hubtel => plain_reference(0),
            },
            callback: world.callback.clone(),
            phone_head: match rail {
                Wire::Momo | Wire::Hubtel => "233241234",
                Wire::Telecel => "0201234",
            },
        }
    }

    /// Requests the payment. Returns the HTTP status and body, or `None` if the connection was
    /// cut.
    pub async fn request(&self, digits: &str) -> Option<(StatusCode, Value)> {
        let phone = format!("{}{digits}", self.phone_head);
        let answer = match self.rail {
            Wire::Momo => {
                self.wires
                    .request_to_pay(&self.reference, &phone, &self.callback)
                    .await
            }
            Wire::Telecel => self.wires.charge(&self.reference, &phone, "vod").await,
            Wire::Hubtel => {
                let (reference, callback) = (&self.reference, &self.callback);
                self.wires.receive(reference, &phone, callback).await
            }
        };
        let answer = answer.ok()?;
        let status = answer.status();
        Some((status, answer.json().await.unwrap_or_default()))
    }

    pub async fn request_accepted(&self, digits: &str) {
        let (status, body) = self.request(digits).await.unwrap();
        match self.rail {
            Wire::Momo => assert_eq!(status, 202),
            Wire::Telecel => {
                assert_eq!(status, 200);
                assert_eq!(body["data"]["status"], "pay_offline");
            }
            Wire::Hubtel => {
                assert_eq!(status, 200);
                assert_eq!(body["ResponseCode"], "0001");
            }
        }
    }

    pub async fn query(&self) -> Told {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match self.rail {
            Wire::Momo => {
                let answer = self.wires.momo_status(&self.reference).await;
                if answer.status() == 404 {
                    return Told::Nothing;
                }
                let body: Value = answer.json().await.unwrap();
                match body["status"].as_str().unwrap() {
                    "PENDING" => Told::Pending,
                    "SUCCESSFUL" => Told::Succeeded(text(&body["amount"]).replace('.', "")),
                    "FAILED" => Told::Failed(text(&body["reason"])),
                    other => panic!("{other}"),
                }
            }
            Wire::Telecel => {
                let path = format!("/transaction/verify/{}", self.reference);
                let answer = self
                    .wires
                    .paystack(http::Method::GET, &path)
                    .send()
                    .await
                    .unwrap();
                if answer.status() == 400 {
                    return Told::Nothing;
                }
                let body: Value = answer.json().await.unwrap();
                let data = &body["data"];
                match data["status"].as_str().unwrap() {
                    "ongoing" | "pending" => Told::Pending,
                    "success" => Told::Succeeded(data["amount"].to_string()),
                    "failed" => Told::Failed(text(&data["message"])),
                    other => panic!("{other}"),
                }
            }
            Wire::Hubtel => {
                let answer = self.wires.hubtel_status(&self.reference).await;
                if answer.status() == 404 {
                    return Told::Nothing;
                }
                let body: Value = answer.json().await.unwrap();
                let data = &body["data"];
                match data["status"].as_str().unwrap() {
                    "Unpaid" => Told::Pending,
                    "Paid" => {
                        let cedis = data["amount"].to_string();
                        Told::Succeeded(cedis.replace('.', "") + "0")
                    }
                    other => panic!("{other}"),
                }
            }
        }
    }

    pub async fn debits(&self) -> i64 {
        self.wires.entry(&self.reference).await["debits"]
            .as_i64()
            .unwrap()
    }
}
