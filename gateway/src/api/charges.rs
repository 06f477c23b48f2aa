//! `GET /api/v1/charges`: a merchant's charges, newest first. Additive.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{RawQuery, State},
};
use chassis::ids::ChargeId;
use proto::charges::{ChargeStatus, ListChargesRequest, ListedCharge};
use serde::Serialize;

use super::{
    list::{Page, Parameters},
    read_charge::ChargeShown,
};
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// `ChargeListed` of the contract.
#[derive(Debug, Serialize)]
pub struct ChargeListed {
    #[serde(flatten)]
    charge: ChargeShown,
    tx_id_display: String,
    provider: &'static str,
    /// Masked.
    payer: String,
}

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<ChargeListed>>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let (from, to) = parameters.span();
    let phone = parameters.phone();
    let status = parameters.status(ChargeStatus::from_code);
    let request = ListChargesRequest {
        merchant_id: merchant.id.to_string(),
        page_size: parameters.limit(),
        page_token: parameters.cursor::<ChargeId>(),
        from,
        to,
        reference: parameters
            .reference()
            .map(|reference| reference.to_string()),
        session_id: parameters.session_id().map(|session| session.to_string()),
        phone: phone.map(|phone| phone.as_e164().to_owned()),
        status: status.unwrap_or_default().into(),
        provider: parameters.provider().unwrap_or_default().into(),
        ..ListChargesRequest::default()
    };
    parameters.finish()?;
    let listed = edge
        .charges
        .read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.list_charges(request).await },
        )
        .await?;
    let page = Page::new("charges", listed.charges, listed.next_page_token);
    Ok(Json(page))
}

impl TryFrom<ListedCharge> for ChargeListed {
    type Error = Error;

    fn try_from(listed: ListedCharge) -> Result<Self, Error> {
        let charge = listed.charge.unwrap_or_default();
        let provider = charge.provider().code();
        Ok(Self {
            provider: provider.ok_or_else(|| Error::internal("a charge without provider"))?,
            tx_id_display: charge.tx_id_display.clone(),
            payer: listed.payer_masked,
            charge: charge.try_into()?,
        })
    }
}
