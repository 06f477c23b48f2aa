//! Tells merchants whose endpoint begins to let deliveries exhaust all of their attempts, once a day at
//! most.

use std::time::Duration;

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Timestamp},
    grpc::{self, Channel, Reason},
};
use db::{
    Db,
    work::{Claimed, TaskSet, Work},
};
use proto::merchants::{NoticeKind, TellMerchantRequest, notices_client::NoticesClient};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{endpoint::Endpoint, store::exhaustions};

/// The name of this work in logs.
pub const WORK: &str = "exhaustion notices";

/// How long a merchant that was told is not told again.
const QUIET: Duration = Duration::from_hours(24);

/// Pause after a merchant could not be told.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The work that tells merchants. Each replica does all of it: the id of what is told follows from
/// what is true, and merchants-svc mails it once.
#[derive(Debug)]
pub struct Telling {
    db: Db,
    clock: Clock,
    notices: NoticesClient<Channel>,
    not_before: Timestamp,
}

impl Telling {
    pub fn new(db: Db, clock: Clock, merchants: Channel) -> Self {
        Self {
            db,
            clock,
            notices: NoticesClient::new(merchants),
            not_before: Timestamp::EPOCH,
        }
    }

    /// Tells one merchant. Returns whether there was one to tell.
    async fn tell_next(&mut self) -> anyhow::Result<bool> {
        let now = self.clock.now();
        let mut conn = self.db.read().await?;
        let found = exhaustions::find_untold(&mut conn).await?;
        drop(conn);
        let due = found.filter(|untold| untold.due().is_some_and(|due| due <= now));
        let Some((endpoint, since)) = due.and_then(|untold| {
            let since = untold.since()?;
            Some((untold.endpoint, since))
        }) else {
            return Ok(false);
        };
        let request = TellMerchantRequest {
            person_id: None,
            notice_id: notice_id(&endpoint, since).to_string(),
            merchant_id: endpoint.merchant_id.to_string(),
            kind: NoticeKind::WebhookExhausted.into(),
            about: host(&endpoint.url),
            at: since.to_string(),
        };
        match self.notices.tell_merchant(request).await {
            Ok(_) => {}
            Err(status)
                if grpc::reason(&status).as_deref() == Some(Reason::MerchantNotFound.code()) =>
            {
                tracing::warn!(merchant.id = %endpoint.merchant_id, "nobody is there to be told");
            }
            Err(status) => return Err(status).context("merchants-svc was not told"),
        }
        let mut conn = self.db.write().await?;
        exhaustions::told(&mut conn, endpoint.endpoint_id, since, now + QUIET).await?;
        Ok(true)
    }
}

/// What merchants know their endpoint by. Paths and queries often hold secrets, and mails are read by
/// many.
fn host(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.and_then(|url| Some(url.host_str()?.to_owned()));
    host.unwrap_or_default()
}

/// The same for the same beginning.
fn notice_id(endpoint: &Endpoint, since: Timestamp) -> Uuid {
    let about = format!("{} {since}", endpoint.endpoint_id);
    let digest: [u8; 32] = Sha256::digest(about).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(digest.split_at(16).0);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

impl Work for Telling {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let mut conn = self.db.read().await?;
        let found = exhaustions::find_untold(&mut conn).await;
        let found = found.context("exhausted endpoints cannot be read")?;
        let due = found.and_then(|untold| untold.due());
        let waited = due.map_or(Duration::ZERO, |due| self.clock.now().since(due));
        metrics::gauge!("exhaustions_untold_oldest_seconds").set(waited);
        Ok(due.map(|due| due.max(self.not_before)))
    }

    async fn claim(&mut self, _tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        match self.tell_next().await {
            // There may be others.
            Ok(true) => Ok(Claimed::Part(self.clock.now())),
            Ok(false) => Ok(Claimed::Nothing),
            Err(error) => {
                self.not_before = self.clock.now() + AGAIN_AFTER;
                Err(error)
            }
        }
    }
}
