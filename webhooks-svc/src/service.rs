//! What webhooks-svc does when it is called.

use std::{sync::Arc, time::Duration};

use chassis::{
    clock::{Alarm, Clock, Timestamp},
    ids::{DeliveryId, EndpointId, EventId, MerchantId},
    sealed::Keyring,
    shutdown::Tasks,
    telemetry,
};
use db::{Db, GroupCommit, Insert, Searches};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    attempts::AttemptRunner,
    delivery::{Attempt, Delivery, EventDelivery},
    endpoint::{Endpoint, SigningSecrets, Subscription},
    error::Error,
    event::{Data, Event, EventType, FeedPage, Test},
    feed::Waits,
    guard::Guard,
    publication::Publication,
    secret, store,
};

/// Longest lookup of a new URL's name.
const LOOKUP_MAX: Duration = Duration::from_secs(2);

/// Most names of new URLs that are looked up at the same time. Each takes one of the process's few
/// hundred threads for blocking work, for as long as a name server likes, and deliveries need them.
pub const LOOKUPS_MAX: usize = 32;

#[derive(Clone, Debug)]
pub struct Service {
    pub db: Db,
    pub clock: Clock,
    pub keyring: Keyring,
    pub guard: Guard,
    /// Places for looking up the names in merchants' URLs. See [`LOOKUPS_MAX`].
    pub lookups: Arc<Semaphore>,
    /// How long a replaced secret goes on signing.
    pub rotation_overlap: Duration,
    pub attempts: Arc<AttemptRunner>,
    pub publications: GroupCommit<Publication>,
    pub waits: Waits,
    pub searches: Searches,
    pub tasks: Tasks,
    /// Of the work that goes on with replays.
    pub replays: Alarm,
}

/// An endpoint as its merchant sees it.
pub struct OpenEndpoint {
    pub endpoint: Endpoint,
    pub secrets: SigningSecrets,
}

impl Service {
    /// Accepts an event and, if the merchant's endpoint subscribes to its type, creates its
    /// delivery; both or neither. A known event is left as it is.
    pub async fn publish(&self, event: Event) -> Result<(), Error> {
        let label = event.event_type.code();
        let event = event.accept(telemetry::current_traceparent());
        let publication = Publication::new(event, &self.attempts);
        if self.publications.run(publication).await? == Insert::Inserted {
            self.waits.expect_event();
            metrics::counter!("webhook_events_total", "type" => label).increment(1);
        }
        Ok(())
    }

    /// Sets the merchant's endpoint, or creates it, with a secret, if there is none.
    pub async fn set_endpoint(
        &self,
        merchant_id: MerchantId,
        url: &str,
        events: Subscription,
    ) -> Result<OpenEndpoint, Error> {
        let url = url.trim();
        self.check_url(url).await?;
        let endpoint_id = EndpointId::new();
        let now = self.clock.now();
        let endpoint = Endpoint {
            endpoint_id,
            merchant_id,
            url: url.to_owned(),
            events,
            enabled: true,
            secret: self.keyring.seal(
                &secret::generate(),
                &secret::owner(merchant_id, endpoint_id),
            ),
            previous_secret: None,
            previous_signs_until: None,
            exhausted_since: None,
            created_at: now,
            updated_at: now,
        };
        let mut tx = self.db.begin().await?;
        let endpoint = store::upsert_endpoint(&mut tx, &endpoint).await?;
        tx.commit().await?;
        tracing::info!(merchant.id = %merchant_id, endpoint.id = %endpoint.endpoint_id, "endpoint set");
        self.open(endpoint)
    }

    /// Checks that a merchant's URL may be called.
    pub async fn check_url(&self, url: &str) -> Result<(), Error> {
        let refused = |refusal: crate::guard::UrlError| Error::Invalid {
            field: "url",
            message: refusal.message().into(),
        };
        let url = self.guard.check_url(url).map_err(refused)?;
        // A name that is slow to resolve, or that comes while many are, is left to the attempts.
        let Ok(place) = Arc::clone(&self.lookups).try_acquire_owned() else {
            return Ok(());
        };
        let (guard, (told, checked)) = (self.guard.clone(), oneshot::channel());
        // The system's resolver cannot be cut off: its thread is in use until it gives up.
        self.tasks.spawn_apart(async move {
            told.send(guard.check_name(&url).await).ok();
            drop(place);
        });
        match tokio::time::timeout(LOOKUP_MAX, checked).await {
            Ok(Ok(checked)) => checked.map_err(refused),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    pub async fn get_endpoint(&self, merchant_id: MerchantId) -> Result<OpenEndpoint, Error> {
        let found = store::find_endpoint(&mut self.db.read().await?, merchant_id).await?;
        self.open(found.ok_or(Error::EndpointNotFound)?)
    }

    /// Generates a new secret. The previous one signs too during the overlap; an older one no
    /// longer does.
    ///
    /// `seen` is the endpoint's `updated_at` on the page that the person acted on; `None` rotates
    /// whatever has changed since.
    pub async fn rotate_secret(
        &self,
        merchant_id: MerchantId,
        seen: Option<Timestamp>,
    ) -> Result<OpenEndpoint, Error> {
        let mut tx = self.db.begin().await?;
        let found = store::lock_endpoint(&mut tx, merchant_id).await?;
        let mut endpoint = found.ok_or(Error::EndpointNotFound)?;
        if seen.is_some_and(|seen| seen != endpoint.updated_at) {
            return Err(Error::FormUsed);
        }
        let now = self.clock.now();
        let secret = secret::generate();
        let owner = secret::owner(merchant_id, endpoint.endpoint_id);
        let sealed = self.keyring.seal(&secret, &owner);
        endpoint.previous_secret = Some(std::mem::replace(&mut endpoint.secret, sealed));
        endpoint.previous_signs_until = Some(now + self.rotation_overlap);
        endpoint.updated_at = now;
        store::update_secrets(&mut tx, &endpoint).await?;
        tx.commit().await?;
        tracing::info!(merchant.id = %merchant_id, endpoint.id = %endpoint.endpoint_id, "signing secret rotated");
        self.open(endpoint)
    }

    /// Switches the endpoint off or on. Its deliveries wait while it is off.
    pub async fn set_endpoint_enabled(
        &self,
        merchant_id: MerchantId,
        enabled: bool,
    ) -> Result<OpenEndpoint, Error> {
        let mut tx = self.db.begin().await?;
        let now = self.clock.now();
        let found = store::set_enabled(&mut tx, merchant_id, enabled, now).await?;
        let endpoint = found.ok_or(Error::EndpointNotFound)?;
        store::replays::wake(&mut tx, merchant_id, now).await?;
        tx.commit().await?;
        self.attempts.queues.tell(merchant_id);
        self.replays.ring();
        self.open(endpoint)
    }

    /// Up to `limit` of the merchant's events whose numbers follow `after`, in their order, and its
    /// last number.
    pub async fn list_events(
        &self,
        merchant_id: MerchantId,
        after: i64,
        limit: u32,
    ) -> Result<FeedPage, Error> {
        let mut conn = self.db.read().await?;
        let events = store::feed::list(&mut conn, merchant_id, after, limit).await?;
        // Only now: it is never behind the events.
        let last = store::feed::last_numbers(&mut conn, &[merchant_id]).await?;
        Ok(FeedPage {
            events,
            last_sequence: last.get(&merchant_id).copied().unwrap_or_default(),
        })
    }

    /// Sends a merchant's event once more, or for the first time if there was no endpoint for it.
    pub async fn redeliver_event(
        &self,
        merchant_id: MerchantId,
        event_id: &EventId,
    ) -> Result<Delivery, Error> {
        let mut tx = self.db.begin().await?;
        if !store::feed::has_event(&mut tx, merchant_id, event_id).await? {
            return Err(Error::EventNotFound);
        }
        // Of two at once, the second finds the delivery of the first.
        let locked = store::lock_endpoint(&mut tx, merchant_id).await?;
        locked.ok_or(Error::EndpointNotFound)?;
        let delivery = match store::feed::ask_for_attempt(&mut tx, event_id).await? {
            Some(delivery) => delivery,
            None => {
                let now = self.clock.now();
                let inserted = store::feed::insert_delivery(&mut tx, event_id, now).await?;
                inserted.ok_or(Error::EndpointNotFound)?
            }
        };
        tx.commit().await?;
        self.attempts.queues.tell(merchant_id);
        Ok(delivery)
    }

    /// What became of these events, as far as they are this merchant's and have been accepted.
    pub async fn event_deliveries(
        &self,
        merchant_id: MerchantId,
        event_ids: &[EventId],
    ) -> Result<Vec<EventDelivery>, Error> {
        let mut conn = self.db.read().await?;
        Ok(store::event_deliveries::list(&mut conn, merchant_id, event_ids).await?)
    }

    /// Publishes a test event, which goes to the merchant's endpoint like any other.
    pub async fn test_endpoint(&self, merchant_id: MerchantId) -> Result<EventId, Error> {
        let found = store::find_endpoint(&mut self.db.read().await?, merchant_id).await?;
        found.ok_or(Error::EndpointNotFound)?;
        let event_id = EventId::new();
        let event = Event {
            event_id: event_id.clone(),
            merchant_id,
            event_type: EventType::EndpointTest,
            created_at: self.clock.now(),
            data: Data::Test(Test {
                message: Test::MESSAGE,
            }),
        };
        self.publish(event).await?;
        Ok(event_id)
    }

    fn open(&self, endpoint: Endpoint) -> Result<OpenEndpoint, Error> {
        let secrets = endpoint.signing_secrets(&self.keyring, self.clock.now())?;
        Ok(OpenEndpoint { endpoint, secrets })
    }

    /// Up to `limit` deliveries, newest first, that are older than `before`.
    pub async fn list_deliveries(
        &self,
        merchant_id: MerchantId,
        before: Option<DeliveryId>,
        limit: u32,
    ) -> Result<Vec<Delivery>, Error> {
        let mut conn = self.db.read().await?;
        Ok(store::list_deliveries(&mut conn, merchant_id, before, limit).await?)
    }

    pub async fn get_delivery(&self, id: &DeliveryId) -> Result<(Delivery, Vec<Attempt>), Error> {
        let mut conn = self.db.read().await?;
        let found = store::find_delivery(&mut conn, id).await?;
        let delivery = found.ok_or(Error::DeliveryNotFound)?;
        let attempts = store::list_attempts(&mut conn, id).await?;
        Ok((delivery, attempts))
    }

    /// Requests one more attempt, due at once, whatever the delivery's status. The work sends it.
    pub async fn redeliver(&self, id: &DeliveryId) -> Result<Delivery, Error> {
        let mut tx = self.db.begin().await?;
        let found = store::ask_for_attempt(&mut tx, id).await?;
        let delivery = found.ok_or(Error::DeliveryNotFound)?;
        tx.commit().await?;
        self.attempts.queues.tell(delivery.merchant_id);
        Ok(delivery)
    }
}
