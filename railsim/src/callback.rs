//! Callbacks to a merchant's rail adapter, in each network's form.
//!
//! Promise: one call, one answer, within the timeout. What an address does never changes a
//! payment's outcome.

use anyhow::Context as _;
use chassis::error_chain::chain;
use http::{Method, StatusCode, header};
use reqwest::RequestBuilder;

use crate::{
    config::Config,
    credit::Credit,
    hubtel::body::{callback_body, callback_body_of_credit},
    momo::body::{StatusBody, Variant},
    payment::Payment,
    paystack::{
        body::{signature, webhook_body},
        transfer_body,
    },
    rail::{Accounts, Rail},
};

/// The client that sends callbacks.
pub struct CallbackSender {
    client: reqwest::Client,
    accounts: Accounts,
}

impl CallbackSender {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            client: chassis::http::client_builder(config.callback_timeout)
                .local_address(config.callbacks_from)
                .build()
                .context("the client of callbacks cannot be made")?,
            accounts: config.accounts.clone(),
        })
    }

    /// Sends one callback. Returns whether it was answered with 200.
    pub async fn send(&self, payment: &Payment) -> bool {
        let request = &payment.request;
        let made = match request.rail {
            Rail::Momo => {
                let variant = Variant::of(payment);
                self.momo(&request.callback_url, &variant, &StatusBody::of(payment))
            }
            Rail::Paystack => self.paystack(&request.callback_url, webhook_body(payment)),
            Rail::Hubtel => self.hubtel(&request.callback_url, callback_body(payment)),
        };
        answered(made).await
    }

    /// Sends one callback about a credit, as it is now. Returns whether it was answered with 200.
    pub async fn send_about_credit(&self, credit: &Credit) -> bool {
        let request = &credit.request;
        let made = match request.rail {
            Rail::Momo => {
                let variant = Variant::of_reference(&request.reference);
                let body = StatusBody::of_credit(credit);
                self.momo(&request.callback_url, &variant, &body)
            }
            Rail::Paystack => {
                let body = transfer_body::webhook_body(credit);
                self.paystack(&request.callback_url, body)
            }
            Rail::Hubtel => self.hubtel(&request.callback_url, callback_body_of_credit(credit)),
        };
        answered(made).await
    }

    fn momo(
        &self,
        url: &Option<String>,
        variant: &Variant,
        body: &StatusBody<'_>,
    ) -> RequestBuilder {
        let method = match variant.calls_by_put() {
            true => Method::PUT,
            false => Method::POST,
        };
        let body = serde_json::to_vec(body).expect("a status has string keys only");
        self.client.request(method, address(url)).body(body)
    }

    fn paystack(&self, url: &Option<String>, body: Vec<u8>) -> RequestBuilder {
        let key = &self.accounts.paystack.paystack_secret_key;
        self.client
            .post(address(url))
            .header("x-paystack-signature", signature(key, &body))
            .body(body)
    }

    fn hubtel(&self, url: &Option<String>, body: Vec<u8>) -> RequestBuilder {
        self.client.post(address(url)).body(body)
    }
}

fn address(url: &Option<String>) -> &str {
    url.as_deref().unwrap_or_default()
}

async fn answered(request: RequestBuilder) -> bool {
    let request = request.header(header::CONTENT_TYPE, "application/json");
    // The URL contains the callback's token.
    match request.send().await.map_err(reqwest::Error::without_url) {
        Ok(answer) => answer.status() == StatusCode::OK,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "a callback failed");
            false
        }
    }
}
