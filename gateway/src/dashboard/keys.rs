//! `/settings/integrations/keys`: API keys. Two live ones make a rotation.
//!
//! A key is shown once, on the page that answers the form. Its form carries a nonce, so that sending
//! it again makes no second key.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    response::Response,
    routing::get,
};
use chassis::{grpc::Reason, ids::KeyId};
use http::StatusCode;
use proto::merchants::{
    CreateMerchantKeyRequest, GetMerchantKeyRequest, ListMerchantKeysRequest,
    ListMerchantKeysResponse, MerchantKey, RevokeMerchantKeyRequest,
};
use uuid::Uuid;

use super::{
    Dashboard,
    enter::parameter,
    filters::{Filters, Listed, PAGE_SIZE},
    login::{Confirmed, Login, Sent, SentConfirmed},
    page::{Cell, Field, FormPage, MessagePage, Refusal, Section, TablePage, blame},
    text::{Phrase, moment, phrase},
};
use crate::{backend, error::Error, pages::see};

const PATH: &str = "/settings/integrations/keys";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(&format!("{PATH}/new"), get(show_new).post(create))
        .route(
            &format!("{PATH}/{{key_id}}/revoke"),
            get(show_revoke).post(revoke),
        )
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let after = filters.after::<KeyId>();
    let done = match parameter(query.as_deref(), "done").as_str() {
        "revoked" => Some("The key is revoked. Requests with it are refused from now on."),
        _ => None,
    };
    let shell = login.shell(Section::Integrations, "API keys").done(done);
    let columns = ["Name", "Key", "Made", "Last used", "State"];
    let mut page = TablePage::new(shell, &columns);
    page.lead = vec![
        "A program shows its key with every request. Whoever has the key can ask for payments in your name: keep it on your server, never in an app or a page.",
    ];
    page.button = Some(("Create a key", format!("{PATH}/new")));
    page.empty = "No key yet. Create one to take the first payment from your program.";
    let listing = async {
        let listed = list(&dashboard, &login, PAGE_SIZE, after).await?;
        Ok(Listed {
            rows: listed.keys.iter().map(row).collect(),
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, "", listing).await
}

fn row(key: &MerchantKey) -> Vec<Cell> {
    let state = match &key.revoked_at {
        Some(at) => Cell::state("Revoked", "idle").detail(moment(at)),
        None => {
            let revoke = format!("{PATH}/{}/revoke", key.key_id);
            Cell::state("Live", "good")
                .action("Revoke", &revoke)
                .about(name(key))
        }
    };
    let made = match &key.created_by {
        Some(email) => Cell::time(&key.created_at).detail(email),
        None => Cell::time(&key.created_at),
    };
    let used = match &key.last_used_at {
        Some(at) => Cell::time(at),
        None => Cell::phrase("Not yet"),
    };
    vec![
        Cell::text(&key.label),
        Cell::text(&masked(key)),
        made,
        used,
        state,
    ]
}

/// A page of the merchant's keys, live ones first.
async fn list(
    dashboard: &Dashboard,
    login: &Login,
    page_size: u32,
    page_token: String,
) -> Result<ListMerchantKeysResponse, Error> {
    let request = ListMerchantKeysRequest {
        merchant_id: login.merchant_id(),
        page_size,
        page_token,
    };
    let listed = dashboard.account.read(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.list_merchant_keys(request).await },
    );
    listed.await
}

/// The newest of the merchant's keys that work.
pub async fn newest(dashboard: &Dashboard, login: &Login) -> Result<Option<MerchantKey>, Error> {
    let first = list(dashboard, login, 1, String::new()).await?;
    let mut keys = first.keys.into_iter();
    Ok(keys.find(|key| key.revoked_at.is_none()))
}

fn form(login: &Login, label: &str, nonce: String) -> FormPage {
    let shell = login.shell(Section::Integrations, "Create an API key");
    let mut page = FormPage::new(shell, "/settings/integrations/keys/new", "Create the key");
    page.hidden = vec![("nonce", nonce)];
    page.fields = vec![name_field().value(label)];
    page.links = vec![("Back to the keys", PATH)];
    page
}

pub fn name_field() -> Field {
    Field::text("label", "Name").hint("For example the server or the program that uses it.")
}

async fn show_new(Confirmed(login): Confirmed) -> Response {
    form(&login, "", Uuid::new_v4().to_string()).respond(StatusCode::OK)
}

async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    let request = CreateMerchantKeyRequest {
        merchant_id: login.merchant_id(),
        person_id: login.person_id.clone(),
        label: fields.get("label").to_owned(),
        nonce: fields.get("nonce").to_owned(),
        origin: login.visitor.origin(),
    };
    let created = dashboard.account.once(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.create_merchant_key(request).await },
    );
    let again = || form(&login, fields.get("label"), Uuid::new_v4().to_string());
    match created.await {
        Ok(created) => {
            let shell = login.shell(Section::Integrations, "Your new API key");
            let line = "Copy it now: it is shown this once, and we keep only its fingerprint.";
            let mut page = MessagePage::saying(shell, line).next("I have stored it", PATH);
            page.secrets = vec![("API key", created.api_key)];
            Ok(page.respond(StatusCode::OK))
        }
        Err(Error::Validation(faults)) => {
            let mut page = again();
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::AtDashboard {
            reason: Reason::FormUsed,
            ..
        }) => {
            let shell = login.shell(Section::Integrations, "This form was sent before");
            let line = "Its key was made, and shown that once. If nobody has stored it, revoke it and create another.";
            let page = MessagePage::saying(shell, line).next("Look at the keys", PATH);
            Ok(page.respond(StatusCode::CONFLICT))
        }
        Err(Error::AtDashboard {
            reason: Reason::TooManyKeys,
            ..
        }) => {
            let notice = "There are ten live keys. Revoke one that nothing uses first.";
            Ok(again().refuse(StatusCode::CONFLICT, Some(notice.into())))
        }
        Err(error) => Err(error.into()),
    }
}

async fn find(dashboard: &Dashboard, login: &Login, key_id: &str) -> Result<MerchantKey, Error> {
    let request = GetMerchantKeyRequest {
        merchant_id: login.merchant_id(),
        key_id: key_id.to_owned(),
    };
    let found = dashboard.account.read(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.get_merchant_key(request).await },
    );
    found.await
}

/// What is shown of a key itself.
fn masked(key: &MerchantKey) -> String {
    format!("•••• {}", key.hint)
}

/// A key as its merchant knows it.
pub fn name(key: &MerchantKey) -> Phrase {
    phrase!("{0} (•••• {1})", &key.label, &key.hint)
}

fn revoke_form(login: &Login, key: &MerchantKey, typed: &str) -> FormPage {
    let shell = login.shell(Section::Integrations, "Revoke an API key");
    let mut page = FormPage::new(shell, "", "Revoke the key");
    page.is_grave = true;
    page.lead = vec![
        name(key),
        "Requests with it are refused at once, and it cannot be brought back.".into(),
    ];
    // For a login that interrupts it: what was seen here is shown once more then.
    page.hidden = vec![("key", masked(key))];
    page.fields = vec![name_again_field().value(typed)];
    page.links = vec![("Keep it", PATH)];
    page
}

/// What the form asks, and what it tells.
pub fn revoked_fields() -> Vec<Field> {
    vec![Field::text("key", "Key"), name_again_field()]
}

fn name_again_field() -> Field {
    Field::text("label", "Type the key's name to revoke it").hint("Exactly as it stands above.")
}

async fn show_revoke(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Path(key_id): Path<String>,
) -> Result<Response, Refusal> {
    let key = find(&dashboard, &login, &key_id).await?;
    Ok(revoke_form(&login, &key, "").respond(StatusCode::OK))
}

async fn revoke(
    State(dashboard): State<Arc<Dashboard>>,
    Path(key_id): Path<String>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let key = find(&dashboard, &login, &key_id).await?;
    let typed = fields.get("label");
    if typed != key.label {
        let page = revoke_form(&login, &key, typed);
        return Ok(page.refuse_field("label", "This is not the key's name."));
    }
    let request = RevokeMerchantKeyRequest {
        merchant_id: login.merchant_id(),
        person_id: login.person_id.clone(),
        key_id,
        origin: login.visitor.origin(),
    };
    let revoked = dashboard.account.keyed(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.revoke_merchant_key(request).await },
    );
    revoked.await?;
    Ok(see(&format!("{PATH}?done=revoked")))
}
