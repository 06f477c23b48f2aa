//! Calling a merchant's rail adapter back, as each network does.
//!
//! Promise: one call, one answer, no longer than the timeout. What an address does never reaches
//! the payment.

use anyhow::Context as _;
use http::{Method, StatusCode, header};

use crate::{
    config::Config,
    momo,
    payment::{Payment, Rail},
    paystack,
};

/// Sends callbacks.
pub struct Caller {
    client: reqwest::Client,
    config: Config,
}

impl Caller {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            client: chassis::http::client(config.callback_timeout)?,
            config: config.clone(),
        })
    }

    /// Whether the callback was answered with 200.
    pub async fn call(&self, payment: &Payment) -> bool {
        match self.send(payment).await {
            Ok(status) => status == StatusCode::OK,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "a callback failed");
                false
            }
        }
    }

    async fn send(&self, payment: &Payment) -> anyhow::Result<StatusCode> {
        let url = payment.request.callback_url.as_deref().unwrap_or_default();
        let request = match payment.request.rail {
            Rail::Momo => {
                let by_put = momo::Variant::of(payment).calls_by_put();
                let method = if by_put { Method::PUT } else { Method::POST };
                let body = serde_json::to_vec(&momo::status_body(payment))?;
                self.client.request(method, url).body(body)
            }
            Rail::Paystack => {
                let body = paystack::webhook_body(payment);
                self.client
                    .post(url)
                    .header(
                        "x-paystack-signature",
                        paystack::signature(&self.config, &body),
                    )
                    .body(body)
            }
        };
        let answer = request
            .header(header::CONTENT_TYPE, "application/json")
            .send()
            .await
            // The address carries the token of the callback.
            .map_err(reqwest::Error::without_url)
            .context("the callback address gave no answer")?;
        Ok(answer.status())
    }
}
