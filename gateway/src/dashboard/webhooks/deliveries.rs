//! Deliveries: what was sent, when, and how it was answered.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    response::Response,
    routing::{get, post},
};
use chassis::ids::{DeliveryId, EventId, Reference};
use http::StatusCode;
use proto::webhooks::{
    AnswerClass, Attempt, Delivery, DeliveryStatus, EventType, GetMerchantDeliveryRequest,
    ListMerchantDeliveriesRequest, ListMerchantDeliveriesResponse, MerchantDelivery,
    RedeliverMerchantDeliveryRequest,
};

use super::{cause, event_name, replay::REPLAY_PATH, test::request_texts};
use crate::{
    api::timeline,
    backend,
    dashboard::{
        Dashboard,
        enter::parameter,
        export,
        filters::{Filters, Listed, PAGE_SIZE},
        login::{Login, Sent},
        page::{Button, Cell, Control, DetailPage, Field, Refusal, Section, Table, TablePage},
        text::{Phrase, moment, phrase},
    },
    error::Error,
    pages::see,
};

const LIST_PATH: &str = "/settings/integrations/webhooks/deliveries";

const EXPORT: &str = "/settings/integrations/webhooks/deliveries.csv";

const EXPORT_COLUMNS: [&str; 8] = [
    "delivery_id",
    "event_id",
    "event_type",
    "status",
    "last_http_status",
    "attempts",
    "created_at",
    "next_attempt_at",
];

const STATES: [(&str, &str); 4] = [
    ("", "Any"),
    ("PENDING", "Waiting"),
    ("DELIVERED", "Delivered"),
    ("EXHAUSTED", "Given up"),
];

const EVENT_CHOICES: [(&str, &str); 8] = [
    ("", "Any"),
    ("payment.success", "payment.success"),
    ("payment.failed", "payment.failed"),
    ("payout.success", "payout.success"),
    ("payout.failed", "payout.failed"),
    ("refund.success", "refund.success"),
    ("refund.failed", "refund.failed"),
    ("endpoint.test", "endpoint.test"),
];

const ANSWERS: [(&str, &str); 6] = [
    ("", "Any"),
    ("2xx", "2xx"),
    ("3xx", "3xx"),
    ("4xx", "4xx"),
    ("5xx", "5xx"),
    ("none", "None"),
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(LIST_PATH, get(list))
        .route(EXPORT, get(export_all))
        .route(&format!("{LIST_PATH}/{{delivery_id}}"), get(show))
        .route(
            &format!("{LIST_PATH}/{{delivery_id}}/redeliver"),
            post(redeliver),
        )
}

async fn list(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(LIST_PATH, query.as_deref());
    let wanted = wanted(&mut filters, &login);
    let shell = login.shell(Section::Integrations, "Deliveries");
    let columns = ["When", "Event", "State", "Last answer", "Attempts"];
    let mut page = TablePage::new(shell, &columns);
    page.button = Some(("Replay what was missed", REPLAY_PATH.to_owned()));
    page.empty = "Nothing was sent yet. Set the webhook's address, and then take a payment or send a test event.";
    let listing = async {
        let Some(request) = dashboard.found(&login, wanted).await? else {
            return Ok(Listed::none());
        };
        let listed = dashboard.list_deliveries(request).await?;
        Ok(Listed {
            rows: listed.deliveries.iter().map(row).collect(),
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

/// What somebody looks for, as its form tells.
enum Sought {
    Event(EventId),
    Payment(Reference),
}

impl Sought {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let event = text.parse().map(Self::Event).ok();
        let payment = || text.to_ascii_uppercase().parse().map(Self::Payment).ok();
        event
            .or_else(payment)
            .ok_or("Give a whole event id, evt_…, or a payment’s whole reference, TX-…-….")
    }
}

/// Which deliveries are wanted, and of which payment, whose events only charges-svc knows.
type Wanted = (ListMerchantDeliveriesRequest, Option<Reference>);

impl Dashboard {
    /// The request with the events of the payment. `None` if there is no such payment, or it has no
    /// event.
    async fn found(
        &self,
        login: &Login,
        (mut request, payment): Wanted,
    ) -> Result<Option<ListMerchantDeliveriesRequest>, Error> {
        let Some(payment) = payment else {
            return Ok(Some(request));
        };
        let timeline = match timeline::of_charge(&self.charges, &login.merchant, &payment).await {
            Err(Error::NotFound) => return Ok(None),
            timeline => timeline?,
        };
        let entries = timeline.entries.into_iter();
        request.event_ids = entries.filter_map(|entry| entry.event_id).collect();
        Ok((!request.event_ids.is_empty()).then_some(request))
    }

    async fn list_deliveries(
        &self,
        request: ListMerchantDeliveriesRequest,
    ) -> Result<ListMerchantDeliveriesResponse, Error> {
        let listed = self.webhooks.read(
            backend::DEADLINE,
            request,
            |mut webhooks, request| async move { webhooks.list_merchant_deliveries(request).await },
        );
        listed.await
    }
}

fn wanted(filters: &mut Filters<'_>, login: &Login) -> Wanted {
    let field =
        Field::new("q", "Look for", Control::Input("search")).hint("Event id or payment reference");
    let sought = filters.read(field, Sought::parse);
    let status = filters.choice("status", "State", &STATES, DeliveryStatus::from_code);
    let event_type = filters.choice("event", "Event", &EVENT_CHOICES, EventType::from_name);
    let answer = filters.choice("answer", "Last answer", &ANSWERS, answer_class);
    let (from, to) = filters.days();
    let (event_id, payment) = match sought {
        Some(Sought::Event(event_id)) => (Some(event_id), None),
        Some(Sought::Payment(reference)) => (None, Some(reference)),
        None => (None, None),
    };
    let request = ListMerchantDeliveriesRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<DeliveryId>(),
        event_type: event_type.unwrap_or_default().into(),
        status: status.unwrap_or_default().into(),
        answer: answer.unwrap_or_default().into(),
        from,
        to,
        event_ids: event_id.iter().map(ToString::to_string).collect(),
    };
    (request, payment)
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(LIST_PATH, query.as_deref());
    let wanted = wanted(&mut filters, &login);
    let request = match filters.is_wrong() {
        true => None,
        false => dashboard.found(&login, wanted).await?,
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let Some(request) = request else {
                return Ok(Listed::none());
            };
            let request = ListMerchantDeliveriesRequest {
                page_size: export::PAGE_SIZE,
                page_token,
                ..request
            };
            let listed = dashboard.list_deliveries(request).await?;
            Ok(Listed {
                rows: listed.deliveries.into_iter().map(exported).collect(),
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("deliveries", filters);
    export::csv(&dashboard, login.merchant.id, list, &EXPORT_COLUMNS, read).await
}

fn exported(delivery: Delivery) -> Vec<String> {
    let status = delivery.status().code().unwrap_or_default().to_owned();
    let event_type = event_name(delivery.event_type()).to_string();
    let http_status = delivery.last_http_status.map(|status| status.to_string());
    vec![
        delivery.delivery_id,
        delivery.event_id,
        event_type,
        status,
        http_status.unwrap_or_default(),
        delivery.attempts_count.to_string(),
        delivery.created_at,
        delivery.next_attempt_at.unwrap_or_default(),
    ]
}

fn answer_class(code: &str) -> Option<AnswerClass> {
    match code {
        "none" => Some(AnswerClass::None),
        "2xx" => Some(AnswerClass::Http2xx),
        "3xx" => Some(AnswerClass::Http3xx),
        "4xx" => Some(AnswerClass::Http4xx),
        "5xx" => Some(AnswerClass::Http5xx),
        _ => None,
    }
}

fn row(delivery: &Delivery) -> Vec<Cell> {
    let (word, class) = state(delivery.status());
    let answered = match delivery.last_http_status {
        Some(status) => Cell::text(&status.to_string()),
        None if delivery.attempts_count == 0 => Cell::default(),
        None => Cell::phrase(cause(delivery.last_cause())),
    };
    let address = format!("{LIST_PATH}/{}", delivery.delivery_id);
    vec![
        Cell::time(&delivery.created_at)
            .link(address)
            .about(&delivery.event_id),
        Cell::text(&event_name(delivery.event_type())).detail(&delivery.event_id),
        Cell::state(word, class),
        answered,
        Cell::text(&delivery.attempts_count.to_string()),
    ]
}

fn state(status: DeliveryStatus) -> (&'static str, &'static str) {
    match status {
        DeliveryStatus::Unspecified => ("Newer than this page knows", "idle"),
        DeliveryStatus::Pending => ("Waiting", "wait"),
        DeliveryStatus::Delivered => ("Delivered", "good"),
        DeliveryStatus::Exhausted => ("Given up", "bad"),
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Path(delivery_id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let request = GetMerchantDeliveryRequest {
        merchant_id: login.merchant_id(),
        delivery_id,
    };
    let found = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.get_merchant_delivery(request).await },
    );
    let MerchantDelivery {
        delivery,
        request,
        is_running,
        is_asked_for,
    } = found.await?;
    let delivery = delivery.ok_or(Error::NotFound)?;
    let is_queued = parameter(query.as_deref(), "done") == "queued";
    let done = is_queued.then_some("It is sent once more, as soon as no other attempt runs.");
    let shell = login.shell(Section::Integrations, "Delivery").done(done);
    let (word, class) = state(delivery.status());
    let mut page = DetailPage::new(shell);
    let state = Cell::state(word, class);
    page.follow(&state);
    page.goes_on = is_running || is_asked_for;
    page.facts = vec![
        ("State", state),
        (
            "Event",
            Cell::text(&event_name(delivery.event_type())).detail(&delivery.event_id),
        ),
        ("Made", Cell::time(&delivery.created_at)),
    ];
    if let Some(next) = &delivery.next_attempt_at {
        page.facts.push(("Next attempt", Cell::time(next)));
    }
    if let Some(url) = request.as_ref().and_then(|request| request.url.as_deref()) {
        page.facts.push(("Sent to", Cell::text(url)));
    }
    match (is_running, is_asked_for) {
        (true, _) => page.lead.push("An attempt runs right now.".into()),
        (false, true) => page
            .lead
            .push("An attempt that was asked for is about to begin.".into()),
        (false, false) => page.buttons.push(Button {
            label: "Send it again",
            action: format!("{LIST_PATH}/{}/redeliver", delivery.delivery_id),
            hidden: Vec::new(),
        }),
    }
    if !delivery.attempts.is_empty() {
        page.table = Some(Table {
            caption: "Attempts",
            columns: vec!["When", "Result", "Took", "Answer"],
            rows: delivery.attempts.iter().map(attempt).collect(),
        });
    }
    page.texts = request.map(request_texts).unwrap_or_default();
    page.links = vec![("All deliveries", LIST_PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

fn attempt(attempt: &Attempt) -> Vec<Cell> {
    let result = match (&attempt.finished_at, attempt.succeeded) {
        (None, _) => Cell::state("Running", "wait"),
        (Some(_), true) => Cell::state("Accepted", "good"),
        (Some(_), false) => Cell::state("Failed", "bad"),
    };
    let result = match attempt.http_status {
        Some(status) => result.detail(status.to_string()),
        None if attempt.finished_at.is_some() => {
            result.detail(Phrase::from(cause(attempt.cause())))
        }
        None => result,
    };
    let when = match attempt.manual {
        true => Cell::phrase(phrase!("{0} (by hand)", moment(&attempt.started_at))),
        false => Cell::time(&attempt.started_at),
    };
    vec![
        when,
        result,
        Cell::text(&format!("{} ms", attempt.duration_ms)),
        Cell::text(attempt.response_excerpt.as_deref().unwrap_or_default())
            .detail(attempt.error.as_deref().unwrap_or_default()),
    ]
}

async fn redeliver(
    State(dashboard): State<Arc<Dashboard>>,
    Path(delivery_id): Path<String>,
    Sent { login, .. }: Sent,
) -> Result<Response, Refusal> {
    let request = RedeliverMerchantDeliveryRequest {
        merchant_id: login.merchant_id(),
        delivery_id,
    };
    let queued = dashboard.webhooks.once(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.redeliver_merchant_delivery(request).await },
    );
    let queued = queued.await?;
    Ok(see(&format!(
        "{LIST_PATH}/{}?done=queued",
        queued.delivery_id
    )))
}
