//! Pages of a merchant's charges, payouts and refunds.
//!
//! A page that filters by what no index finds looks at
//! [`LOOKED_AT_MAX`](chassis::limits::LOOKED_AT_MAX) rows and leads on from there, however few it has
//! found.

use chassis::page::PageRequest;
use db::Page;
use uuid::Uuid;

use crate::{
    charge::ShownCharge,
    disbursement::Disbursement,
    error::Result,
    service::Service,
    store::{self, charges::list::WantedCharges, disbursements::WantedDisbursements},
};

impl Service {
    pub async fn list_charges(
        &self,
        wanted: &WantedCharges,
        asked: PageRequest<Uuid>,
    ) -> Result<Page<ShownCharge, Uuid>> {
        let _search = match wanted.is_searched() {
            true => Some(self.searches.begin(wanted.merchant_id).await?),
            false => None,
        };
        let mut conn = self.db.read().await?;
        let stops_at = store::charges::list::stop(&mut conn, wanted, asked.span).await?;
        let asked = asked.down_to(stops_at);
        let page = store::charges::list::list(&mut conn, wanted, &asked).await?;
        let shown = page.rows.into_iter().map(ShownCharge::try_from);
        Ok(Page {
            rows: shown.filter_map(std::result::Result::ok).collect(),
            next: page.next,
        }
        .or_after(stops_at))
    }

    pub async fn list_disbursements(
        &self,
        wanted: &WantedDisbursements,
        asked: PageRequest<Uuid>,
    ) -> Result<Page<Disbursement, Uuid>> {
        let _search = match wanted.is_searched() {
            true => Some(self.searches.begin(wanted.merchant_id).await?),
            false => None,
        };
        let mut conn = self.db.read().await?;
        let stops_at = store::disbursements::stop(&mut conn, wanted, asked.span).await?;
        let asked = asked.down_to(stops_at);
        let page = store::disbursements::list(&mut conn, wanted, &asked).await?;
        Ok(page.or_after(stops_at))
    }
}
