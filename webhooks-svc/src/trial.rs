//! Tests of an endpoint, sent at once over the way of every delivery.

use std::time::Duration;

use chassis::ids::{DeliveryId, EventId, MerchantId};
use db::{Insert, Tx};
use tokio::time::Instant;

use crate::{
    conformance::Tried,
    error::Error,
    event::{Data, Event, EventType, Test},
    send::{self, Message},
    service::Service,
    signature, store,
    store::trials,
};

/// Most trials that a merchant may start, and within which time.
const MOST: (i64, Duration) = (10, Duration::from_secs(60));

/// A test, and what became of it.
#[derive(Clone, Debug)]
pub struct Trial {
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub tried: Tried,
}

impl Service {
    /// Sends a test event, which is kept nowhere, once.
    pub async fn send_test(&self, merchant_id: MerchantId) -> Result<Trial, Error> {
        let mut tx = self.db.begin().await?;
        let found = store::find_endpoint(&mut tx, merchant_id).await?;
        let endpoint = found.ok_or(Error::EndpointNotFound)?;
        self.start_trial(&mut tx, merchant_id).await?;
        tx.commit().await?;
        let now = self.clock.now();
        let event = Event {
            event_id: EventId::new(),
            merchant_id,
            event_type: EventType::EndpointTest,
            created_at: now,
            data: Data::Test(Test {
                message: Test::MESSAGE,
            }),
        };
        let body = event.body();
        let secrets = endpoint.signing_secrets(&self.keyring, now)?;
        let unix_seconds = self.clock.host_now().unix_seconds();
        let message = Message {
            event_id: &event.event_id,
            delivery_id: &DeliveryId::new(),
            attempt: 1,
            signature: &signature::header(&secrets, unix_seconds, &body),
            body: &body,
        };
        let started_at = Instant::now();
        let mut outcome = self.attempts.sender.send(&endpoint.url, &message).await;
        outcome.duration = started_at.elapsed();
        tracing::info!(
            merchant.id = %merchant_id,
            endpoint.id = %endpoint.endpoint_id,
            outcome = outcome.verdict.code(),
            http_status = outcome.http_status,
            "webhook test ended"
        );
        Ok(Trial {
            headers: send::shown_headers(Some(&endpoint.url), &message),
            url: endpoint.url,
            tried: outcome.into(),
            body,
        })
    }

    /// Counts a trial that is about to start.
    pub async fn start_trial(&self, tx: &mut Tx, merchant_id: MerchantId) -> Result<(), Error> {
        match trials::start(tx, merchant_id, self.clock.now(), MOST).await? {
            Insert::Inserted => Ok(()),
            Insert::AlreadyThere => Err(Error::TooManyTrials),
        }
    }
}
