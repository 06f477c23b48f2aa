//! `POST /api/v1/payments/charge/submit-otp`: passes on the code that a payer was texted (spec
//! §4.4). The code goes to charges-svc and nowhere else.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use chassis::ids::Reference;
use proto::charges::{ChargeAnswer, ChargeStatus, SubmitOtpRequest};

use super::{
    body::Object,
    charge::answered,
    fields::{self, Fields},
    read_charge,
};
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

pub async fn submit_otp(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    body: Object,
) -> Result<Response, Error> {
    let mut fields = Fields::new(body);
    let reference = fields.required("reference", fields::name_of_record);
    let otp = fields.required("otp", fields::otp);
    let (reference, otp) = fields.finish(reference.zip(otp))?;
    let reference: Reference = reference.parse().map_err(|_| Error::NotFound)?;
    let request = SubmitOtpRequest {
        merchant_id: merchant.id.to_string(),
        reference: reference.to_string(),
        otp,
    };
    let submitted = edge
        .charges
        .once(
            backend::RAIL_DEADLINE,
            request,
            |mut charges, request| async move { charges.submit_otp(request).await },
        )
        .await;
    match submitted {
        // The rail may have the code, so answer with the charge's state, not with an error.
        Err(Error::OutcomeUnknown) => answered(from_record(&edge, &merchant, &reference).await?),
        submitted => answered(submitted?),
    }
}

/// The answer from the charge's record, if charges-svc's own answer was lost.
async fn from_record(
    edge: &Edge,
    merchant: &Merchant,
    reference: &Reference,
) -> Result<ChargeAnswer, Error> {
    let charge = read_charge::read(edge, merchant, reference).await;
    let charge = charge.map_err(|_| Error::OutcomeUnknown)?;
    let message = match charge.status() {
        ChargeStatus::Failed => charge.failure_message.clone().unwrap_or_default(),
        ChargeStatus::OtpRequired => {
            "The code may not have been tried. Submit it again.".to_owned()
        }
        ChargeStatus::Initiated | ChargeStatus::Settled | ChargeStatus::Unspecified => {
            "The code was submitted. The outcome follows.".to_owned()
        }
    };
    Ok(ChargeAnswer {
        charge: Some(charge),
        message,
        replayed: false,
    })
}
