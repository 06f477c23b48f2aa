//! Callbacks to a merchant's rail adapter, in each network's form.
//!
//! Promise: one call, one answer, within the timeout. What an address does never changes a
//! payment's outcome.

use anyhow::Context as _;
use chassis::error_chain::chain;
use http::{Method, StatusCode, header};

use crate::{
    config::Config,
    momo::body::{StatusBody, Variant},
    payment::Payment,
    paystack::body::{signature, webhook_body},
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
        match self.status(payment).await {
            Ok(status) => status == StatusCode::OK,
            Err(error) => {
                tracing::warn!(error = %chain(error.as_ref()), "a callback failed");
                false
            }
        }
    }

    async fn status(&self, payment: &Payment) -> anyhow::Result<StatusCode> {
        let url = payment.request.callback_url.as_deref().unwrap_or_default();
        let request = match payment.request.rail {
            Rail::Momo => {
                let by_put = Variant::of(payment).calls_by_put();
                let method = if by_put { Method::PUT } else { Method::POST };
                let body = serde_json::to_vec(&StatusBody::of(payment))?;
                self.client.request(method, url).body(body)
            }
            Rail::Paystack => {
                let body = webhook_body(payment);
                self.client
                    .post(url)
                    .header(
                        "x-paystack-signature",
                        signature(&self.accounts.paystack.paystack_secret_key, &body),
                    )
                    .body(body)
            }
        };
        let answer = request
            .header(header::CONTENT_TYPE, "application/json")
            .send()
            .await
            // The URL contains the callback's token.
            .map_err(reqwest::Error::without_url)
            .context("the callback address gave no answer")?;
        Ok(answer.status())
    }
}
