//! Pages of a merchant's charges, payouts and refunds.
//!
//! A page that filters by what no index finds looks at [`LOOKED_AT_MAX`] rows and leads on from
//! there, however few it has found.

use chassis::{limits::LOOKED_AT_MAX, page::PageRequest};
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
        mut asked: PageRequest<Uuid>,
    ) -> Result<Page<ShownCharge, Uuid>> {
        let _search = match wanted.is_searched() {
            true => Some(self.searches.begin(wanted.merchant_id).await?),
            false => None,
        };
        let mut conn = self.db.read().await?;
        let mut stopped_at = None;
        if wanted.is_searched() {
            stopped_at =
                store::charges::list::stop(&mut conn, wanted, asked.span, LOOKED_AT_MAX).await?;
            asked.span.from = stopped_at.unwrap_or(asked.span.from);
        }
        let page = store::charges::list::list(&mut conn, wanted, &asked).await?;
        let page = page.or_after(stopped_at);
        let shown = page.rows.into_iter().map(ShownCharge::try_from);
        Ok(Page {
            rows: shown.filter_map(std::result::Result::ok).collect(),
            next: page.next,
        })
    }

    pub async fn list_disbursements(
        &self,
        wanted: &WantedDisbursements,
        mut asked: PageRequest<Uuid>,
    ) -> Result<Page<Disbursement, Uuid>> {
        let _search = match wanted.is_searched() {
            true => Some(self.searches.begin(wanted.merchant_id).await?),
            false => None,
        };
        let mut conn = self.db.read().await?;
        let mut stopped_at = None;
        if wanted.is_searched() {
            stopped_at =
                store::disbursements::stop(&mut conn, wanted, asked.span, LOOKED_AT_MAX).await?;
            asked.span.from = stopped_at.unwrap_or(asked.span.from);
        }
        let page = store::disbursements::list(&mut conn, wanted, &asked).await?;
        Ok(page.or_after(stopped_at))
    }
}
