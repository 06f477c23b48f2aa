//! Pages of a merchant's charges, payouts and refunds.
//!
//! A page that filters by what no index finds looks at
//! [`LOOKED_AT_MAX`](chassis::limits::LOOKED_AT_MAX) rows and leads on from there, however few it has
//! found.

use std::cmp::Reverse;

use chassis::page::{PageRequest, Place};
use db::{Db, Page};
use uuid::Uuid;

use crate::{
    charge::{Charge, ShownCharge},
    disbursement::Disbursement,
    error::Result,
    service::Service,
    store::{self, charges::list::WantedCharges, disbursements::WantedDisbursements},
};

impl Service {
    pub async fn list_charges(
        &self,
        wanted: WantedCharges,
        asked: PageRequest<Uuid>,
    ) -> Result<Page<ShownCharge, Uuid>> {
        let (merchant, is_searched) = (wanted.merchant_id, wanted.is_searched());
        let listing = list_charges(self.db.clone(), wanted, asked);
        let page = match is_searched {
            true => self.searches.run(merchant, listing).await??,
            false => listing.await?,
        };
        let shown = page.rows.into_iter().map(ShownCharge::try_from);
        Ok(Page {
            rows: shown.filter_map(std::result::Result::ok).collect(),
            next: page.next,
        })
    }

    pub async fn list_disbursements(
        &self,
        wanted: WantedDisbursements,
        asked: PageRequest<Uuid>,
    ) -> Result<Page<Disbursement, Uuid>> {
        let (merchant, is_searched) = (wanted.merchant_id, wanted.is_searched());
        let listing = list_disbursements(self.db.clone(), wanted, asked);
        Ok(match is_searched {
            true => self.searches.run(merchant, listing).await??,
            false => listing.await?,
        })
    }
}

async fn list_charges(
    db: Db,
    wanted: WantedCharges,
    asked: PageRequest<Uuid>,
) -> db::Result<Page<Charge, Uuid>> {
    let mut conn = db.read().await?;
    let mut pages = Vec::new();
    for wanted in wanted.parts() {
        let stops_at = store::charges::list::stop(&mut conn, &wanted, asked.span).await?;
        let asked = asked.down_to(stops_at);
        let page = store::charges::list::list(&mut conn, &wanted, &asked).await?;
        pages.push(page.or_after(stops_at));
    }
    Ok(joined(pages, asked.size))
}

/// One page of those that begin at the same place of several lists.
fn joined(pages: Vec<Page<Charge, Uuid>>, size: u32) -> Page<Charge, Uuid> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let order = |place: Place<Uuid>| (place.at, place.id);
    let place = |charge: &Charge| Place {
        at: charge.facts.created_at,
        id: charge.facts.transaction_id.uuid(),
    };
    // One of them has not looked further than this.
    let ends = pages.iter().filter_map(|page| page.next);
    let end = ends.max_by_key(|end| order(*end));
    let mut rows: Vec<Charge> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.retain(|charge| end.is_none_or(|end| order(place(charge)) >= order(end)));
    rows.sort_by_key(|charge| Reverse(order(place(charge))));
    rows.dedup_by_key(|charge| charge.facts.transaction_id);
    let is_more = rows.len() > size;
    rows.truncate(size);
    Page {
        next: match rows.last() {
            Some(last) if is_more => Some(place(last)),
            _ => end,
        },
        rows,
    }
}

async fn list_disbursements(
    db: Db,
    wanted: WantedDisbursements,
    asked: PageRequest<Uuid>,
) -> db::Result<Page<Disbursement, Uuid>> {
    let mut conn = db.read().await?;
    let stops_at = store::disbursements::stop(&mut conn, &wanted, asked.span).await?;
    let asked = asked.down_to(stops_at);
    let page = store::disbursements::list(&mut conn, &wanted, &asked).await?;
    Ok(page.or_after(stops_at))
}
