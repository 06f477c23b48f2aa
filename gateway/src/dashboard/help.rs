//! Whom to ask for help, and about which request. Every page may say so, also one that no handler
//! makes, so it goes along with the request.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};

use super::text::{Phrase, Text};
use crate::front::RequestId;

tokio::task_local! {
    static HELP: Help;
}

/// What a page says to those who need help.
#[derive(Clone, Debug, Default)]
pub struct Help {
    /// Where they write to, if anybody has said so.
    pub email: Option<Arc<str>>,
    pub request_id: String,
}

/// Gives its help to everything that is made for the request.
pub async fn offer(
    State(email): State<Option<Arc<str>>>,
    request: Request,
    next: Next,
) -> Response {
    let request_id = request.extensions().get::<RequestId>();
    let help = Help {
        email,
        request_id: request_id.map(|id| id.0.clone()).unwrap_or_default(),
    };
    HELP.scope(help, next.run(request)).await
}

impl Help {
    /// For the request that is being answered.
    pub fn now() -> Self {
        HELP.try_with(Self::clone).unwrap_or_default()
    }

    /// Makes something with this help.
    pub fn within<T>(self, make: impl FnOnce() -> T) -> T {
        HELP.sync_scope(self, make)
    }
}

/// To whom people write, in a sentence that tells them to.
pub fn support_contact() -> Text {
    match Help::now().email {
        Some(email) => (&*email).into(),
        None => Phrase::from("us").into(),
    }
}
