//! Pages of a merchant's sessions and customers, and the wallets that older transactions lack.
//!
//! A page that filters by what no index finds looks at
//! [`LOOKED_AT_MAX`](chassis::limits::LOOKED_AT_MAX) rows and leads on from there, however few it has
//! found.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId, SessionId},
    page::{PageRequest, Span},
};
use db::{Db, Page};
use uuid::Uuid;

use crate::{
    customer::Customer,
    error::Error,
    service::Service,
    session::ShownSession,
    store::{
        customers::{self, WantedCustomers},
        list::{self, WantedSessions},
        wallets,
    },
    transaction::{TransactionPlace, Wallet},
};

impl Service {
    /// A page with this session, if it is the merchant's and wanted.
    pub async fn list_session(
        &self,
        id: SessionId,
        wanted: &WantedSessions,
        span: Span<Uuid>,
    ) -> Result<Page<ShownSession, Uuid>, Error> {
        let found = match self.get_session(id, Some(wanted.merchant_id)).await {
            Err(Error::SessionNotFound) => None,
            found => Some(found?),
        };
        let [from, before] = [span.from, span.before].map(|place| (place.at, place.id));
        let is_wanted = |shown: &ShownSession| {
            let place = (shown.session.created_at, id.uuid());
            (from..before).contains(&place) && wanted.has(shown)
        };
        Ok(Page {
            rows: found.filter(is_wanted).into_iter().collect(),
            next: None,
        })
    }

    pub async fn list_sessions(
        &self,
        wanted: WantedSessions,
        asked: PageRequest<Uuid>,
    ) -> Result<Page<ShownSession, Uuid>, Error> {
        let (merchant, is_searched) = (wanted.merchant_id, wanted.is_searched());
        let listing = list_sessions(self.db.clone(), wanted, asked, self.clock.now());
        Ok(match is_searched {
            true => self.searches.run(merchant, listing).await??,
            false => listing.await?,
        })
    }

    pub async fn list_customers(
        &self,
        wanted: &WantedCustomers,
        asked: &PageRequest<String>,
    ) -> Result<Page<Customer, String>, Error> {
        let mut conn = self.db.read().await?;
        Ok(customers::list(&mut conn, wanted, asked).await?)
    }

    pub async fn get_customer(
        &self,
        merchant: MerchantId,
        id: &CustomerId,
    ) -> Result<Customer, Error> {
        let mut conn = self.db.read().await?;
        let found = customers::find(&mut conn, merchant, id).await?;
        found.ok_or(Error::CustomerNotFound)
    }

    /// Up to `limit` transactions without a wallet, after a place.
    pub async fn list_without_wallet(
        &self,
        after: (Option<SessionId>, i64),
        limit: usize,
    ) -> Result<Vec<TransactionPlace>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut conn = self.db.read().await?;
        Ok(wallets::list_missing(&mut conn, after, limit).await?)
    }

    pub async fn add_wallets(&self, added: &[(TransactionPlace, Wallet)]) -> Result<(), Error> {
        let mut tx = self.db.begin().await?;
        wallets::add(&mut tx, added).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn list_sessions(
    db: Db,
    wanted: WantedSessions,
    asked: PageRequest<Uuid>,
    now: Timestamp,
) -> db::Result<Page<ShownSession, Uuid>> {
    let mut conn = db.read().await?;
    let stops_at = list::stop(&mut conn, &wanted, asked.span).await?;
    let asked = asked.down_to(stops_at);
    let page = list::list(&mut conn, &wanted, &asked, now).await?;
    Ok(page.or_after(stops_at))
}
