//! A merchant's deliveries as its people see them, and how its endpoint does.
//!
//! A page that filters by what no index finds looks at
//! [`LOOKED_AT_MAX`](chassis::limits::LOOKED_AT_MAX) deliveries and leads on from there, however few
//! it has found.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId},
    page::PageRequest,
};
use db::{Db, Page};

use crate::{
    delivery::{Attempt, Delivery, Status},
    doctor::{self, Diagnosis, KnownEvent, Secrets, Suspect},
    endpoint::Endpoint,
    error::Error,
    service::Service,
    store::{
        self,
        listing::{self, AttemptCount, ListedDelivery, SentEvent, WantedDeliveries, WholeDelivery},
    },
};

/// What the figures of an endpoint are about.
const HEALTH_OF: Duration = Duration::from_secs(24 * 3_600);

/// When the deliveries were created that may have an attempt in that time: the schedule takes 35
/// hours.
const HEALTH_LOOKS_BACK: Duration = Duration::from_secs(72 * 3_600);

/// How far from the time of a signature its delivery is looked for, and how many of them.
const SIGNED_WITHIN: Duration = Duration::from_secs(60);
const SIGNED_EVENTS_MAX: i64 = 100;

/// How an endpoint does.
#[derive(Clone, Debug)]
pub struct Health {
    pub endpoint: Endpoint,
    /// Until when the previous secret signs, if it does.
    pub previous_signs_until: Option<Timestamp>,
    pub since: Timestamp,
    pub delivered: i64,
    pub exhausted: i64,
    pub failing: i64,
    pub median_ms: Option<i64>,
    pub p95_ms: Option<i64>,
}

impl Service {
    pub async fn endpoint_health(&self, merchant_id: MerchantId) -> Result<Health, Error> {
        let mut conn = self.db.read().await?;
        let found = store::find_endpoint(&mut conn, merchant_id).await?;
        let endpoint = found.ok_or(Error::EndpointNotFound)?;
        let now = self.clock.now();
        let created_since = now - HEALTH_LOOKS_BACK;
        let oldest = listing::oldest_looked_at(&mut conn, merchant_id, created_since).await?;
        let since = oldest.map_or(now - HEALTH_OF, |oldest| oldest.max(now - HEALTH_OF));
        let counts = listing::count_attempts(&mut conn, merchant_id, created_since, since).await?;
        let of = |status| {
            let counts = counts.iter().filter(|count| count.status == status);
            counts.map(|count| count.deliveries).sum()
        };
        Ok(Health {
            previous_signs_until: endpoint.previous_signs_until.filter(|until| now < *until),
            endpoint,
            since,
            delivered: of(Status::Delivered),
            exhausted: of(Status::Exhausted),
            failing: of(Status::Pending),
            median_ms: percentile(&counts, 50),
            p95_ms: percentile(&counts, 95),
        })
    }

    pub async fn list_merchant_deliveries(
        &self,
        wanted: WantedDeliveries,
        asked: PageRequest<String>,
    ) -> Result<Page<ListedDelivery, String>, Error> {
        let (merchant_id, is_searched) = (wanted.merchant_id, wanted.is_searched());
        let listed = list(self.db.clone(), wanted, asked);
        Ok(match is_searched {
            true => self.searches.run(merchant_id, listed).await??,
            false => listed.await?,
        })
    }

    /// The deliveries of these events that are wanted, all of them.
    pub async fn list_deliveries_of_events(
        &self,
        wanted: &WantedDeliveries,
        asked: &PageRequest<String>,
        event_ids: &[EventId],
    ) -> Result<Page<ListedDelivery, String>, Error> {
        let mut conn = self.db.read().await?;
        let found = listing::list_of_events(&mut conn, wanted, &asked.span, event_ids).await?;
        Ok(Page {
            rows: found,
            next: None,
        })
    }

    pub async fn get_merchant_delivery(
        &self,
        merchant_id: MerchantId,
        id: &DeliveryId,
    ) -> Result<(WholeDelivery, Vec<Attempt>), Error> {
        let mut conn = self.db.read().await?;
        let found = listing::find(&mut conn, merchant_id, id).await?;
        let delivery = found.ok_or(Error::DeliveryNotFound)?;
        let attempts = store::list_attempts(&mut conn, id).await?;
        Ok((delivery, attempts))
    }

    /// Requests one more attempt of a merchant's delivery, unless one that was requested has not
    /// begun.
    pub async fn redeliver_of_merchant(
        &self,
        merchant_id: MerchantId,
        id: &DeliveryId,
    ) -> Result<Delivery, Error> {
        let mut tx = self.db.begin().await?;
        let found = listing::ask_for_attempt(&mut tx, merchant_id, id).await?;
        let delivery = found.ok_or(Error::DeliveryNotFound)?;
        tx.commit().await?;
        self.attempts.queues.tell(merchant_id);
        Ok(delivery)
    }

    /// Says what is wrong with a signature that a receiver refuses. Returns also the event that the
    /// body says it is, if it is the merchant's.
    pub async fn diagnose(
        &self,
        merchant_id: MerchantId,
        header: &str,
        body: &[u8],
        event_id: Option<EventId>,
    ) -> Result<(Diagnosis, Option<EventId>), Error> {
        let mut conn = self.db.read().await?;
        let found = store::find_endpoint(&mut conn, merchant_id).await?;
        let endpoint = found.ok_or(Error::EndpointNotFound)?;
        let (current, previous) = endpoint.kept_secrets(&self.keyring)?;
        let said = doctor::event_of(body);
        let mut events = Vec::new();
        for id in [&event_id, &said].into_iter().flatten() {
            events.extend(listing::find_event(&mut conn, merchant_id, id).await?);
        }
        let said = said.filter(|said| events.iter().any(|event| event.event_id == *said));
        if let Some(at) = doctor::signed_at(header).and_then(at_second) {
            // The clock of what we record may have been moved; that of signatures never is.
            let at = at + self.clock.now().since(self.clock.host_now());
            let around = (at - SIGNED_WITHIN, at + SIGNED_WITHIN);
            events.extend(
                listing::list_events_around(&mut conn, merchant_id, around, SIGNED_EVENTS_MAX)
                    .await?,
            );
        }
        drop(conn);
        let events: Vec<KnownEvent> = events.into_iter().map(KnownEvent::from).collect();
        let suspect = Suspect {
            header,
            body,
            now: self.clock.host_now().unix_seconds(),
        };
        let diagnosis = doctor::diagnose(suspect, &Secrets { current, previous }, &events);
        Ok((diagnosis, said))
    }
}

impl From<SentEvent> for KnownEvent {
    fn from(event: SentEvent) -> Self {
        let SentEvent { event_id, body } = event;
        Self { event_id, body }
    }
}

fn at_second(unix_seconds: i64) -> Option<Timestamp> {
    Timestamp::from_unix_millis(unix_seconds.checked_mul(1_000)?).ok()
}

async fn list(
    db: Db,
    wanted: WantedDeliveries,
    asked: PageRequest<String>,
) -> db::Result<Page<ListedDelivery, String>> {
    let mut conn = db.read().await?;
    let stops_at = listing::stop(&mut conn, &wanted, &asked.span).await?;
    let asked = asked.down_to(stops_at.clone());
    let page = listing::list(&mut conn, &wanted, &asked).await?;
    Ok(page.or_after(stops_at))
}

/// What this share of the attempts, in percent, took at most.
fn percentile(counts: &[AttemptCount], percent: i64) -> Option<i64> {
    let all: i64 = counts.iter().map(|count| count.attempts).sum();
    // The number of the attempt, from 1.
    let number = (all * percent + 99) / 100;
    let mut passed = 0;
    counts.iter().find_map(|count| {
        passed += count.attempts;
        (passed >= number).then_some(count.duration_ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_what_so_many_took_at_most() {
        let counts = |counts: &[(i64, i64)]| -> Vec<AttemptCount> {
            let counts = counts.iter().map(|(duration_ms, attempts)| AttemptCount {
                status: Status::Delivered,
                duration_ms: *duration_ms,
                attempts: *attempts,
                deliveries: *attempts,
            });
            counts.collect()
        };
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&counts(&[(7, 1)]), 50), Some(7));
        let durations = counts(&[(10, 50), (20, 44), (900, 6)]);
        assert_eq!(percentile(&durations, 50), Some(10));
        assert_eq!(percentile(&durations, 95), Some(900));
        let durations = counts(&[(10, 50), (20, 45), (900, 5)]);
        assert_eq!(percentile(&durations, 95), Some(20));
    }
}
