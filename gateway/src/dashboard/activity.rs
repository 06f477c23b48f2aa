//! `/settings/activity`: who did what, when and from where.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use http::StatusCode;
use proto::merchants::{Action, ListActivityRequest, NoteActivityRequest};

use super::{
    Dashboard,
    enter::parameter,
    login::Login,
    page::{Cell, Refusal, Section, TablePage},
};
use crate::{backend, error::Error};

const PATH: &str = "/settings/activity";

/// Most characters of what was done to.
const OBJECT_CHARACTERS_MAX: usize = 200;

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(PATH, get(show))
}

impl Dashboard {
    /// Notes what a person is about to do in another service, and mails it to them. Call it first, so
    /// that nothing is done unnoticed.
    pub async fn note(&self, login: &Login, action: Action, object: &str) -> Result<(), Error> {
        let request = NoteActivityRequest {
            merchant_id: login.merchant_id(),
            person_id: login.person_id.clone(),
            action: action.into(),
            object: object.chars().take(OBJECT_CHARACTERS_MAX).collect(),
            origin: login.visitor.origin(),
        };
        let noted = self.people.once(
            backend::DEADLINE,
            request,
            |mut people, request| async move { people.note_activity(request).await },
        );
        // Whatever became of the note, what it is about has not begun.
        noted.await.map(|_| ()).map_err(|error| match error {
            Error::OutcomeUnknown => Error::NothingStarted,
            error => error,
        })
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let request = ListActivityRequest {
        merchant_id: login.merchant_id(),
        page_size: 0,
        page_token: parameter(query.as_deref(), "after"),
    };
    let listed = dashboard.people.read(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.list_activity(request).await },
    );
    let listed = listed.await?;
    let mut page = TablePage::new(
        login.shell(Section::Settings, "Activity"),
        &["When", "What", "Who", "From"],
    );
    page.rows = listed
        .activities
        .iter()
        .map(|activity| {
            let origin = activity.origin.clone().unwrap_or_default();
            let what = words(activity.action());
            let what = match activity.object.is_empty() {
                true => Cell::phrase(what),
                false => Cell::phrase(what).detail(&activity.object),
            };
            vec![
                Cell::time(&activity.created_at),
                what,
                Cell::text(&activity.email),
                Cell::text(&origin.address),
            ]
        })
        .collect();
    page.empty = "Nothing yet.";
    page.lead_on(PATH, &[], &listed.next_page_token);
    Ok(page.respond(StatusCode::OK))
}

fn words(action: Action) -> &'static str {
    match action {
        Action::Unspecified => "Something newer than this page knows",
        Action::SignedUp => "Signed up",
        Action::EmailVerified => "Verified their address",
        Action::LoggedIn => "Logged in",
        Action::LoggedOut => "Logged out",
        Action::LoginsEnded => "Ended logins",
        Action::PasswordChanged => "Changed their password",
        Action::PasswordReset => "Chose a password by a mailed link",
        Action::TotpChanged => "Set up an authenticator",
        Action::RecoveryCodesRenewed => "Made recovery codes",
        Action::RecoveryCodeUsed => "Used a recovery code",
        Action::KeyCreated => "Created an API key",
        Action::KeyRevoked => "Revoked an API key",
        Action::BusinessSubmitted => "Sent the business details",
        Action::WebhookChanged => "Asked to change the webhook endpoint",
        Action::WebhookSecretShown => "Asked to see the webhook secret",
        Action::WebhookSecretRotated => "Asked for a new webhook secret",
        Action::EventsReplayed => "Asked to replay events",
        Action::PayoutAccountChanged => "Asked to change the payout account",
        Action::PayoutRequested => "Asked for a payout",
        Action::RefundRequested => "Asked for a refund",
    }
}
