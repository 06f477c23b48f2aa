//! `POST /pay/{session_id}/code`: passes the code that a payer was given to charges-svc and nowhere
//! else.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use chassis::limits::{OTP_CHARACTERS_MAX, is_visible_ascii};
use http::{HeaderMap, StatusCode};
use proto::charges::SubmitOtpRequest;

use super::{Checkout, or_refusal, see, situation::PageState, view::SessionView, visitor::Visitor};
use crate::{
    backend,
    error::Error,
    pages::{form::FormFields, same_site},
};

pub async fn submit(
    State(checkout): State<Arc<Checkout>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answered = answer(&checkout, &visitor, &headers, body).await;
    or_refusal(&visitor, answered)
}

async fn answer(
    checkout: &Checkout,
    visitor: &Visitor,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    if !same_site::is_ours(headers) {
        return Err(Error::CrossSite);
    }
    let session = visitor.session()?;
    let fields = FormFields::read(headers, body).await?;
    let situation = checkout.look_up(visitor, session).await?;
    let charge = situation
        .hosted
        .as_ref()
        .and_then(|hosted| hosted.charge.as_ref());
    let Some(charge) = charge.filter(|charge| charge.reference == fields.get("reference")) else {
        // The code was for an earlier charge, which has ended.
        return Ok(see(visitor));
    };
    if situation.state != PageState::Otp {
        return Ok(see(visitor));
    }
    let merchant = situation.merchant(checkout).await?;
    let view = SessionView {
        visitor,
        situation: &situation,
        merchant: &merchant,
    };
    let otp = fields.get("otp");
    if !is_visible_ascii(otp.as_bytes(), OTP_CHARACTERS_MAX) {
        let fault = Some(visitor.text.code_missing);
        return view.otp(StatusCode::UNPROCESSABLE_ENTITY, otp, fault);
    }
    let request = SubmitOtpRequest {
        merchant_id: situation.session.merchant_id.clone(),
        reference: charge.reference.clone(),
        otp: otp.to_owned(),
    };
    let submitted = checkout.charges.once(
        backend::RAIL_DEADLINE,
        request,
        |mut charges, request| async move { charges.submit_otp(request).await },
    );
    match submitted.await {
        // Right or wrong, in time or not: the page shows it.
        Ok(_) | Err(Error::ChargeNotAwaitingOtp | Error::OutcomeUnknown) => Ok(see(visitor)),
        Err(Error::NothingStarted) => {
            let fault = Some(visitor.text.code_not_sent);
            view.otp(StatusCode::SERVICE_UNAVAILABLE, otp, fault)
        }
        Err(error) => Err(error),
    }
}
