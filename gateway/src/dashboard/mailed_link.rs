//! The forms behind mailed links: the link proves who owns the address, and the form takes a password.
//!
//! Following the link alone does nothing, so that no mail scanner uses it up.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts as _, Path, Request},
    response::{IntoResponse as _, Response},
};
use chassis::grpc::Reason;
use http::StatusCode;
use proto::merchants::Origin;
use sha2::{Digest as _, Sha256};

use super::{
    Dashboard,
    enter::refusal,
    login::read_form,
    page::{FormPage, MessagePage, Refusal, Shell, blame},
    visitor::Visitor,
};
use crate::error::Error;

/// A form that was sent from the page of a mailed link. It counts as a try to get in.
#[derive(Debug)]
pub struct Followed {
    pub token_sha256: Vec<u8>,
    pub password: String,
    pub origin: Option<Origin>,
}

impl FromRequest<Arc<Dashboard>> for Followed {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(visitor) = Visitor::from_request_parts(&mut parts, dashboard).await;
        let token = Path::<String>::from_request_parts(&mut parts, dashboard).await;
        let read = async {
            let Path(token) = token.map_err(|_| Error::NotFound)?;
            let fields = read_form(&parts.headers, body).await?;
            dashboard.tries.take(visitor.address)?;
            Ok::<_, Error>(Self {
                token_sha256: Sha256::digest(token).to_vec(),
                password: fields.exact("password").to_owned(),
                origin: visitor.origin(),
            })
        };
        read.await.map_err(|error| Refusal(error).into_response())
    }
}

/// What is answered where nothing came of it: the form again, or that the link has ended, `why`, and
/// what to do `next`.
pub fn refuse(
    error: Error,
    mut form: FormPage,
    why: &'static str,
    next: (&'static str, &str),
) -> Result<Response, Refusal> {
    match error {
        Error::Validation(faults) => {
            let notice = blame(&mut form.fields, &faults);
            Ok(form.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Error::AtDashboard {
            reason: Reason::LinkNotFound,
            ..
        } => {
            let page = MessagePage::saying(Shell::outside("This link has ended"), why);
            let page = page.next(next.0, next.1);
            Ok(page.respond(StatusCode::NOT_FOUND))
        }
        error => {
            let (status, notice) = refusal(error, "The password is not right.")?;
            Ok(form.refuse(status, Some(notice)))
        }
    }
}
