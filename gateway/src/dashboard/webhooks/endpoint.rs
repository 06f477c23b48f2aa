//! The endpoint: where events go, which ones, whether at all, and the secret that signs them.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::{get, post},
};
use chassis::{clock::Timestamp, grpc::Reason};
use http::StatusCode;
use proto::{
    merchants::Action,
    webhooks::{
        EndpointHealth, EventType, MerchantEndpoint, RevealSecretsRequest,
        RotateMerchantSecretRequest, SetMerchantEndpointEnabledRequest, SetMerchantEndpointRequest,
    },
};

use super::{DEFAULT_EVENTS, EVENTS, GIVEN_UP, PATH, event_name};
use url::Url;

use crate::{
    backend,
    dashboard::{
        Dashboard,
        enter::parameter,
        login::{Confirmed, Login, Sent, SentConfirmed},
        page::{
            Button, Cell, Control, DetailPage, Field, FormPage, MessagePage, Refusal, Section,
            Shell, blame,
        },
        text::{Phrase, left_until, moment, phrase},
    },
    error::Error,
    pages::see,
};

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(&format!("{PATH}/endpoint"), get(show_form).post(set))
        .route(&format!("{PATH}/enabled"), post(set_enabled))
        .route(&format!("{PATH}/secret"), get(show_secret).post(reveal))
        .route(&format!("{PATH}/rotate"), get(show_rotate).post(rotate))
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let done = match parameter(query.as_deref(), "done").as_str() {
        "set" => Some("Saved. The next event goes there."),
        "on" => Some("Deliveries go on, and what waited is sent."),
        "off" => Some("Nothing is sent until you switch it on again. Events wait."),
        _ => None,
    };
    let shell = login.shell(Section::Integrations, "Webhook").done(done);
    let (health, given_up) =
        tokio::try_join!(dashboard.health(&login), dashboard.given_up(&login))?;
    if let Some(health) = health {
        return Ok(page(shell, &health, given_up, dashboard.clock.now()).respond(StatusCode::OK));
    }
    let line = "No address is set yet. With one, your program hears of every payment as soon as it ends, instead of asking.";
    let page = MessagePage::saying(shell, line);
    let page = page.next("Set the address", &format!("{PATH}/endpoint"));
    Ok(page.respond(StatusCode::OK))
}

fn page(
    shell: Shell,
    health: &EndpointHealth,
    given_up: Option<String>,
    now: Timestamp,
) -> DetailPage {
    let endpoint = health.endpoint.clone().unwrap_or_default();
    let mut page = DetailPage::new(shell);
    let state = match endpoint.enabled {
        true => Cell::state("On", "good"),
        false => Cell::state("Off", "idle"),
    };
    page.facts = vec![
        (
            "Address",
            Cell::text(&endpoint.url).action("Change", &format!("{PATH}/endpoint")),
        ),
        ("Events", Cell::text(&names(&endpoint).replace(' ', ", "))),
        ("State", state),
        (
            "Secret",
            Cell::text("whsec_••••").action("Show or rotate", &format!("{PATH}/secret")),
        ),
    ];
    if let Some(until) = &health.previous_signs_until {
        let cell = Cell::phrase(both_sign(now, until));
        page.facts.push(("Rotation", cell));
    }
    page.facts.extend(figures(health, given_up));
    if let Some(since) = &endpoint.exhausted_since {
        let cell = Cell::state("Not delivered", "bad").detail(moment(since));
        let replay = format!("{PATH}/replay");
        page.facts.push(("Since", cell.action("Replay", &replay)));
    }
    let (label, enabled) = match endpoint.enabled {
        true => ("Switch it off", "false"),
        false => ("Switch it on", "true"),
    };
    page.buttons = vec![Button {
        label,
        action: format!("{PATH}/enabled"),
        hidden: vec![("enabled", enabled.to_owned())],
    }];
    let link = |label, path: &str| (label, format!("{PATH}/{path}"));
    page.links = vec![
        link("Deliveries", "deliveries"),
        link("Send a test event", "test"),
        link("Replay what was missed", "replay"),
        link("Signature doctor", "doctor"),
        link("Conformance run", "conformance"),
    ];
    page
}

/// How the last day went, and what was given up at any time.
fn figures(health: &EndpointHealth, given_up: Option<String>) -> Vec<(&'static str, Cell)> {
    let deliveries = |query: &str| format!("{PATH}/deliveries?{query}");
    let mut figures = Vec::new();
    let share = u64::from(health.delivered) * 100;
    if let Some(percent) = share.checked_div(u64::from(health.ended)) {
        let cell = Cell::text(&format!("{percent} %"));
        let share = format!("{} / {}", health.delivered, health.ended);
        let detail = phrase!("{0}, since {1}", share, moment(&health.since));
        figures.push(("Delivered", cell.detail(detail)));
    }
    if let Some(count) = given_up {
        let cell = Cell::text(&count).link(GIVEN_UP.to_owned());
        figures.push(("Given up", cell));
    }
    if health.failing > 0 {
        let cell = Cell::text(&health.failing.to_string());
        let cell = cell.link(deliveries("status=PENDING"));
        figures.push(("Failed and tried again", cell));
    }
    if let (Some(median), Some(p95)) = (health.median_ms, health.p95_ms) {
        let cell = Cell::text(&format!("{median} ms")).detail(format!("p95 {p95} ms"));
        figures.push(("Your server's answer takes", cell));
    }
    figures
}

/// The events that an endpoint gets, with blanks between.
fn names(endpoint: &MerchantEndpoint) -> String {
    let names: Vec<String> = endpoint.events().map(event_name).collect();
    match names.is_empty() {
        true => DEFAULT_EVENTS.to_owned(),
        false => names.join(" "),
    }
}

fn form(login: &Login, url: &str, events: &str) -> FormPage {
    let shell = login.shell(Section::Integrations, "Webhook address");
    let mut page = FormPage::new(shell, "/settings/integrations/webhooks/endpoint", "Save");
    page.fields = fields();
    page.links = vec![("Back", PATH)];
    page.filled(|name| match name {
        "url" => url.to_owned(),
        _ => events.to_owned(),
    })
}

pub fn fields() -> Vec<Field> {
    vec![
        Field::new("url", "Address", Control::Input("url"))
            .hint("It begins with https:// and must be reachable from the internet."),
        Field::new("events", "Events", Control::Checks(&EVENTS)),
    ]
}

async fn show_form(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
) -> Result<Response, Refusal> {
    let page = match dashboard.endpoint(&login).await? {
        Some(endpoint) => form(&login, &endpoint.url, &names(&endpoint)),
        None => form(&login, "", DEFAULT_EVENTS),
    };
    Ok(page.respond(StatusCode::OK))
}

async fn set(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    let names: Vec<&str> = fields.all("events").collect();
    let url = fields.get("url");
    let again = || form(&login, url, &names.join(" "));
    if names.is_empty() {
        return Ok(again().refuse_field("events", "Choose at least one event."));
    }
    let is_url = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_url {
        return Ok(
            again().refuse_field("url", "Give an address such as https://shop.example/hook.")
        );
    }
    let events = names.iter().filter_map(|name| EventType::from_name(name));
    let request = SetMerchantEndpointRequest {
        merchant_id: login.merchant_id(),
        url: url.to_owned(),
        events: events.map(Into::into).collect(),
    };
    dashboard.note(&login, Action::WebhookChanged, url).await?;
    let set = dashboard.webhooks.keyed(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.set_merchant_endpoint(request).await },
    );
    match set.await {
        Ok(_) => Ok(see(&format!("{PATH}?done=set"))),
        Err(Error::Validation(faults)) => {
            let mut page = again();
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(error) => Err(error.into()),
    }
}

async fn set_enabled(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let enabled = fields.get("enabled") == "true";
    let done = if enabled { "on" } else { "off" };
    dashboard.note(&login, Action::WebhookChanged, done).await?;
    let request = SetMerchantEndpointEnabledRequest {
        merchant_id: login.merchant_id(),
        enabled,
    };
    let set = dashboard.webhooks.keyed(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move {
            webhooks.set_merchant_endpoint_enabled(request).await
        },
    );
    set.await?;
    Ok(see(&format!("{PATH}?done={done}")))
}

/// What is said while a rotation goes on.
fn both_sign(now: Timestamp, until: &str) -> Phrase {
    phrase!(
        "The secret before this one signs too. It ends in {0}.",
        left_until(now, until)
    )
}

async fn show_secret(Confirmed(login): Confirmed) -> Response {
    let shell = login.shell(Section::Integrations, "Webhook secret");
    let mut page = FormPage::new(
        shell,
        "/settings/integrations/webhooks/secret",
        "Show the secret",
    );
    let lead = "Your program checks with it that an event comes from us. Whoever has it can pretend to be us.";
    page.lead = vec![lead.into()];
    page.links = vec![
        (
            "Make a new secret",
            "/settings/integrations/webhooks/rotate",
        ),
        ("Back", PATH),
    ];
    page.respond(StatusCode::OK)
}

async fn reveal(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, .. }): SentConfirmed,
) -> Result<Response, Refusal> {
    dashboard
        .note(&login, Action::WebhookSecretShown, "")
        .await?;
    let request = RevealSecretsRequest {
        merchant_id: login.merchant_id(),
    };
    let secrets = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.reveal_secrets(request).await },
    );
    let secrets = secrets.await?;
    let shell = login.shell(Section::Integrations, "Webhook secret");
    let line = "The whole text, with its beginning, is the key of the signature.";
    let mut page = MessagePage::saying(shell, line).next("Done", PATH);
    page.secrets = vec![("Secret", secrets.current)];
    if let (Some(previous), Some(until)) = (secrets.previous, secrets.previous_signs_until) {
        page.lines.push(both_sign(dashboard.clock.now(), &until));
        page.secrets.push(("The one before", previous));
    }
    Ok(page.respond(StatusCode::OK))
}

async fn show_rotate(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
) -> Result<Response, Refusal> {
    let Some(endpoint) = dashboard.endpoint(&login).await? else {
        return Ok(see(PATH));
    };
    let shell = login.shell(Section::Integrations, "Make a new secret");
    let mut page = FormPage::new(
        shell,
        "/settings/integrations/webhooks/rotate",
        "Make a new secret",
    );
    let lead = [
        "For 24 hours, both the new and the old one sign: give the new one to your program meanwhile.",
        "Doing it twice ends the old one at once. Do that if it has leaked.",
    ];
    page.lead = lead.map(Into::into).into();
    // So that the form sent twice rotates once.
    page.hidden = vec![("updated_at", endpoint.updated_at)];
    page.links = vec![("Keep it", PATH)];
    Ok(page.respond(StatusCode::OK))
}

async fn rotate(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    dashboard
        .note(&login, Action::WebhookSecretRotated, "")
        .await?;
    let request = RotateMerchantSecretRequest {
        merchant_id: login.merchant_id(),
        updated_at: fields.get("updated_at").to_owned(),
    };
    let secrets = dashboard.webhooks.once(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.rotate_merchant_secret(request).await },
    );
    let secrets = match secrets.await {
        Ok(secrets) => secrets,
        Err(Error::AtDashboard {
            reason: Reason::FormUsed,
            ..
        }) => {
            let shell = login.shell(Section::Integrations, "Nothing was done");
            let line = "This form was sent before, or the endpoint has changed since. Look at the secret before you make another.";
            let page = MessagePage::saying(shell, line);
            let page = page.next("Show the secret", &format!("{PATH}/secret"));
            return Ok(page.respond(StatusCode::CONFLICT));
        }
        Err(error) => return Err(error.into()),
    };
    let shell = login.shell(Section::Integrations, "Your new webhook secret");
    let line = "Give it to your program now.";
    let mut page = MessagePage::saying(shell, line).next("Done", PATH);
    if let Some(until) = secrets.previous_signs_until {
        page.lines.push(both_sign(dashboard.clock.now(), &until));
    }
    page.secrets = vec![("Secret", secrets.current)];
    Ok(page.respond(StatusCode::OK))
}
