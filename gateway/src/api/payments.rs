//! `GET /api/v1/payments`: a merchant's payment sessions, newest first. Additive.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{RawQuery, State},
};
use chassis::ids::{Reference, SessionId};
use proto::sessions::{ListSessionsRequest, SessionStatus};

use super::{
    list::{Page, Parameters},
    read_charge,
    session_status::SessionShown,
};
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<SessionShown>>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let (from, to) = parameters.span();
    let (reference, session_id) = (parameters.reference(), parameters.session_id());
    let session_id = session_id.map(|session| session.to_string());
    let status = parameters.status(SessionStatus::from_code);
    let provider = parameters.provider().and_then(|provider| provider.code());
    let mut request = ListSessionsRequest {
        merchant_id: merchant.id.to_string(),
        page_size: parameters.limit(),
        page_token: parameters.cursor::<SessionId>(),
        from,
        to,
        session_id,
        status: status.unwrap_or_default().into(),
        provider: provider.map(ToOwned::to_owned),
    };
    parameters.finish()?;
    if let Some(reference) = reference {
        let session_id = session_of(&edge, &merchant, &reference).await?;
        let wanted = request.session_id.as_ref();
        let is_wanted = |found: &String| wanted.is_none_or(|wanted| wanted == found);
        match session_id.filter(is_wanted) {
            Some(found) => request.session_id = Some(found),
            None => return Ok(Json(Page::none())),
        }
    }
    let listed = edge
        .sessions
        .read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.list_sessions(request).await },
        )
        .await?;
    let page = Page::new("payments", listed.sessions, listed.next_page_token);
    Ok(Json(page))
}

/// The session of a merchant's charge, if it has this one.
async fn session_of(
    edge: &Edge,
    merchant: &Merchant,
    reference: &Reference,
) -> Result<Option<String>, Error> {
    match read_charge::read(edge, merchant, reference).await {
        Ok(charge) => Ok(Some(charge.session_id)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
