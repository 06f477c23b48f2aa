//! `/settings/activity`: who did what, when and from where.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use chassis::ids::ActivityId;
use proto::merchants::{
    Action, Activity, ListActivityRequest, ListActivityResponse, NoteActivityRequest,
};

use super::{
    Dashboard, export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::Login,
    page::{Cell, Refusal, Section, TablePage},
};
use crate::{backend, error::Error};

const PATH: &str = "/settings/activity";

const EXPORT: &str = "/settings/activity.csv";

const EXPORT_COLUMNS: [&str; 6] = [
    "created_at",
    "action",
    "object",
    "person",
    "address",
    "user_agent",
];

/// Most characters of what was done to.
const OBJECT_CHARACTERS_MAX: usize = 200;

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
}

impl Dashboard {
    /// Notes what a person is about to do in another service, and mails it to them. Call it first, so
    /// that nothing is done unnoticed.
    pub async fn note(&self, login: &Login, action: Action, object: &str) -> Result<(), Error> {
        self.note_form(login, action, object, "").await
    }

    /// The same of a form with this nonce, which is noted once however often it is sent.
    pub async fn note_form(
        &self,
        login: &Login,
        action: Action,
        object: &str,
        nonce: &str,
    ) -> Result<(), Error> {
        let request = NoteActivityRequest {
            merchant_id: login.merchant_id(),
            person_id: login.person_id.clone(),
            action: action.into(),
            object: object.chars().take(OBJECT_CHARACTERS_MAX).collect(),
            origin: login.visitor.origin(),
            form: nonce.to_owned(),
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

fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListActivityRequest {
    ListActivityRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<ActivityId>(),
    }
}

impl Dashboard {
    async fn list_activity(
        &self,
        request: ListActivityRequest,
    ) -> Result<ListActivityResponse, Error> {
        let listed = self.people.read(
            backend::DEADLINE,
            request,
            |mut people, request| async move { people.list_activity(request).await },
        );
        listed.await
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = wanted(&mut filters, &login);
    let shell = login.shell(Section::Settings, "Activity");
    let mut page = TablePage::new(shell, &["When", "What", "Who", "From"]);
    page.empty = "Nothing yet.";
    let listing = async {
        let listed = dashboard.list_activity(request).await?;
        Ok(Listed {
            rows: listed.activities.iter().map(row).collect(),
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

fn row(activity: &Activity) -> Vec<Cell> {
    let what = Cell::phrase(words(activity.action()));
    let what = match activity.object.as_str() {
        "" => what,
        object => what.detail(object),
    };
    let origin = activity.origin.as_ref();
    vec![
        Cell::time(&activity.created_at),
        what,
        Cell::text(&activity.email),
        Cell::text(
            origin
                .map(|origin| origin.address.as_str())
                .unwrap_or_default(),
        ),
    ]
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListActivityRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListActivityRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_activity(request).await?;
            Ok(Listed {
                rows: listed.activities.into_iter().map(exported).collect(),
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("activity", filters);
    export::csv(&dashboard, login.merchant.id, list, &EXPORT_COLUMNS, read).await
}

fn exported(activity: Activity) -> Vec<String> {
    let action = words(activity.action()).to_owned();
    let origin = activity.origin.unwrap_or_default();
    vec![
        activity.created_at,
        action,
        activity.object,
        activity.email,
        origin.address,
        origin.user_agent,
    ]
}

fn words(action: Action) -> &'static str {
    match action {
        Action::Unspecified => "Something newer than this page knows",
        Action::SignedUp => "Signed up",
        Action::EmailVerified => "Verified their address",
        Action::EmailChangeRequested => "Asked for another address",
        Action::EmailChanged => "Changed their address",
        Action::LoggedIn => "Logged in",
        Action::LoggedOut => "Logged out",
        Action::LoginsEnded => "Ended logins",
        Action::PasswordChanged => "Changed their password",
        Action::PasswordReset => "Chose a password by a mailed link",
        Action::TotpChanged => "Set up an authenticator",
        Action::RecoveryCodesRenewed => "Made recovery codes",
        Action::RecoveryCodeUsed => "Used a recovery code",
        Action::WrongCodes => "Entered several wrong codes",
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
        Action::DailySettlementSwitched => "Asked to switch the daily settlement",
    }
}
