//! What a page costs the databases, however much a merchant has: every statement of every list is
//! explained by the database that runs it, with tables that are full. PostgreSQL only.

use std::sync::{LazyLock, Mutex};

use chassis::{limits::LOOKED_AT_MAX, testing};
use proto::webhooks::SetEndpointRequest;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::Targets,
    layer::{Context, Layer, SubscriberExt as _},
};

use super::{Page, Person, fill};
use crate::shop::{NO_LIMITS, Shop};

/// Rows that a statement of a page reads: those that it shows, and what belongs to each.
const READ_MAX: u64 = 500;

/// What a page looks through if no index finds what is wanted: first for where to stop, then at
/// each entry, and at the newest attempt of each delivery.
const SEARCHED_MAX: u64 = 3 * LOOKED_AT_MAX.cast_unsigned() + READ_MAX;

/// What an endpoint's health is counted from: its newest deliveries, and their attempts.
const HEALTH_MAX: u64 = 3 * 5_000;

/// Charges of a day that the overview adds up itself until they are counted by the hour, which a work
/// does after the fact: here all of those that the tables were filled with.
const UNCOUNTED_MAX: u64 = 24 * 60;

/// Tables with at least as many rows are those that grow.
const GROWN: i64 = 1_000;

const SERVICES: [&str; 4] = [
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
];

/// What the databases told about statements.
static TOLD: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Message);
    }
}

struct Message;

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            TOLD.lock().unwrap().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// Has the databases explain whatever is done there from now on.
async fn listen(shop: &Shop) {
    let told = Targets::new().with_target("sqlx::postgres::notice", Level::INFO);
    let subscriber = tracing_subscriber::registry().with(Listener.with_filter(told));
    tracing::subscriber::set_global_default(subscriber).expect("the only one of this process");
    for service in SERVICES {
        let mut conn = connect(shop, service).await;
        let name: String = sqlx::query("select current_database()")
            .fetch_one(&mut conn)
            .await
            .unwrap()
            .get(0);
        for (setting, value) in [
            ("session_preload_libraries", "auto_explain"),
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_timing", "off"),
            ("auto_explain.log_format", "json"),
            ("auto_explain.log_level", "notice"),
        ] {
            run(
                &mut conn,
                format!("alter database {name} set {setting} = '{value}'"),
            )
            .await;
        }
        // The service connects again.
        let others = "select pg_terminate_backend(pid) from pg_stat_activity
                      where datname = current_database() and pid <> pg_backend_pid()";
        run(&mut conn, others.to_owned()).await;
    }
}

pub async fn connect(shop: &Shop, service: &str) -> PgConnection {
    PgConnection::connect(shop.database_url(service))
        .await
        .unwrap()
}

pub async fn run(conn: &mut PgConnection, statement: String) {
    let done = conn.execute(AssertSqlSafe(statement)).await;
    done.unwrap();
}

/// The tables that grow.
async fn grown(shop: &Shop) -> Vec<String> {
    let mut tables = Vec::new();
    for service in SERVICES {
        let mut conn = connect(shop, service).await;
        let text = "select relname::text from pg_class where relkind = 'r' and reltuples >= $1";
        let found = sqlx::query(text).bind(GROWN).fetch_all(&mut conn).await;
        tables.extend(found.unwrap().iter().map(|row| row.get::<String, _>(0)));
    }
    tables
}

/// A statement as it ran.
struct Ran {
    text: String,
    plan: Value,
}

/// What was run since the last look, also by works, which must not read more either.
fn ran() -> Vec<Ran> {
    let told = std::mem::take(&mut *TOLD.lock().unwrap());
    let plans = told.iter().filter_map(|told| told.split_once("plan:\n"));
    let plans = plans.map(|(_, plan)| {
        let told: Value = serde_json::from_str(plan).unwrap();
        Ran {
            text: told["Query Text"].as_str().unwrap().to_owned(),
            plan: told["Plan"].clone(),
        }
    });
    plans.collect()
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

fn number(node: &Value, name: &str) -> u64 {
    node[name].as_f64().map_or(0, |number| number as u64)
}

/// Rows that this part of the plan took in, each time that it ran.
fn rows(node: &Value) -> u64 {
    let dropped = [
        "Rows Removed by Filter",
        "Rows Removed by Index Recheck",
        "Rows Removed by Join Filter",
    ];
    let dropped: u64 = dropped.iter().map(|name| number(node, name)).sum();
    (number(node, "Actual Rows") + dropped) * number(node, "Actual Loops")
}

/// What is wrong with a part of a plan and those below it. Adds up what they read.
fn faults(
    node: &Value,
    grown: &[String],
    sorted_max: u64,
    read: &mut u64,
    found: &mut Vec<String>,
) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    if let Some(table) = node["Relation Name"].as_str() {
        *read += rows(node);
        if kind == "Seq Scan" && grown.iter().any(|grown| grown == table) {
            found.push(format!("reads all of {table}"));
        }
    }
    if kind == "Sort" {
        let sorted: u64 = children(node).map(rows).sum();
        if sorted > sorted_max {
            found.push(format!("sorts {sorted} rows"));
        }
    }
    for child in children(node) {
        faults(child, grown, sorted_max, read, found);
    }
}

/// A page, and how many rows one of its statements may read.
struct Cost {
    path: &'static str,
    read_max: u64,
}

const fn listed(path: &'static str) -> Cost {
    Cost {
        path,
        read_max: READ_MAX,
    }
}

const fn searched(path: &'static str) -> Cost {
    Cost {
        path,
        read_max: SEARCHED_MAX,
    }
}

const fn health(path: &'static str) -> Cost {
    Cost {
        path,
        read_max: HEALTH_MAX,
    }
}

/// Every page with a list, with each of its filters and some of their mixes. A list's second page
/// is asked for as well.
const COSTS: &[Cost] = &[
    health("/"),
    listed("/payments"),
    listed("/payments?from=2020-01-01&to=2040-01-01"),
    listed("/payments?q=0240000002"),
    listed("/payments?q=TX-0000000002-000000"),
    // Of row 2.
    listed("/payments?q=98432f23-b96c-8138-c260-6ef8bebc0a82"),
    searched("/payments?status=SETTLED"),
    searched("/payments?status=FAILED"),
    searched("/payments?status=OTP_REQUIRED"),
    listed("/payments?status=WAITING"),
    searched("/payments?status=WAITING&q=0240000002"),
    searched("/payments?network=TELECEL"),
    searched("/payments?network=AT&status=FAILED"),
    searched("/payments?q=0240000002&status=FAILED"),
    listed("/payments?q=payer2@example.com"),
    searched("/payments?q=payer2@example.com&status=FAILED"),
    searched("/payments?reason=PAYER_DECLINED"),
    searched("/payments?reason=RAIL_ERROR"),
    listed("/payments?q=TX-0000000002"),
    searched("/payments?amount_from=25.50&amount_to=25.50"),
    searched("/payments?amount_from=1000"),
    listed("/payments/TX-0000000002-000000"),
    listed("/customers"),
    listed("/customers?from=2020-01-01&to=2040-01-01"),
    listed("/customers?q=0240000002"),
    listed("/customers?q=payer2@example.com"),
    listed("/customers/CUS-0000000002"),
    listed("/payouts"),
    listed("/payouts?from=2020-01-01&to=2040-01-01"),
    searched("/payouts?status=COMPLETED"),
    searched("/payouts?status=FAILED"),
    searched("/payouts?status=PENDING"),
    listed("/payouts/PO-0000000002"),
    listed("/payouts/account"),
    listed("/refunds"),
    listed("/refunds?from=2020-01-01&to=2040-01-01"),
    listed("/refunds?q=TX-0000000002-000000"),
    searched("/refunds?status=COMPLETED"),
    searched("/refunds?status=FAILED"),
    listed("/refunds/RF-0000000002"),
    listed("/balance"),
    listed("/balance?part=RESERVED&from=2020-01-01"),
    listed("/balance?part=SUSPENSE"),
    listed("/settings"),
    listed("/settings/activity"),
    listed("/settings/business"),
    listed("/settings/security"),
    listed("/settings/integrations/keys"),
    health("/settings/integrations/webhooks"),
    listed("/settings/integrations/webhooks/deliveries"),
    listed("/settings/integrations/webhooks/deliveries?from=2020-01-01&to=2040-01-01"),
    listed("/settings/integrations/webhooks/deliveries?q=evt_00000000000000000000000002"),
    listed("/settings/integrations/webhooks/deliveries?status=EXHAUSTED"),
    searched("/settings/integrations/webhooks/deliveries?status=DELIVERED"),
    searched("/settings/integrations/webhooks/deliveries?status=PENDING"),
    searched("/settings/integrations/webhooks/deliveries?event=payment.success"),
    searched("/settings/integrations/webhooks/deliveries?event=refund.failed"),
    searched("/settings/integrations/webhooks/deliveries?answer=2xx"),
    searched("/settings/integrations/webhooks/deliveries?answer=3xx"),
    searched("/settings/integrations/webhooks/deliveries?answer=5xx"),
    searched("/settings/integrations/webhooks/deliveries?answer=none"),
    searched("/settings/integrations/webhooks/deliveries?status=EXHAUSTED&answer=5xx"),
    listed("/settings/integrations/webhooks/deliveries/dlv_00000000000000000000000002"),
    searched("/settings/integrations/webhooks/replay"),
    listed("/settings/integrations/webhooks/conformance"),
];

/// What is wrong with what a page had the databases do.
async fn cost(person: &Person, path: &str, read_max: u64, grown: &[String]) -> (Page, Vec<String>) {
    TOLD.lock().unwrap().clear();
    let page = person.get(path).await;
    assert_eq!(page.code, 200, "{path}\n{}", page.html);
    let sorted_max = match path {
        "/" => UNCOUNTED_MAX,
        _ => READ_MAX,
    };
    let ran = ran();
    // At least the login was looked up.
    assert!(!ran.is_empty(), "{path} was not explained");
    let mut wrong = Vec::new();
    for Ran { text, plan } in ran {
        let (mut read, mut found) = (0, Vec::new());
        faults(&plan, grown, sorted_max, &mut read, &mut found);
        if read > read_max {
            found.push(format!("reads {read} rows"));
        }
        if !found.is_empty() {
            let found = found.join(", ");
            wrong.push(format!("{path} {found}:\n{text}\n{plan:#}"));
        }
    }
    (page, wrong)
}

#[tokio::test]
async fn no_list_reads_more_because_there_is_more() {
    let shop = Shop::open_with(NO_LIMITS).await;
    if !shop.database_url("charges-svc").starts_with("postgres") {
        return shop.close().await;
    }
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let request = SetEndpointRequest {
        merchant_id: person.merchant_id.clone(),
        url: shop.receiver.url.clone(),
        events: Vec::new(),
    };
    shop.webhooks().set_endpoint(request).await.unwrap();
    fill::all(&shop, &person).await;
    listen(&shop).await;
    let grown = grown(&shop).await;
    for table in [
        "charges",
        "disbursements",
        "sessions",
        "transactions",
        "customers",
        "deliveries",
        "attempts",
        "events",
        "replays",
        "activities",
        "logins",
        "people",
        "api_keys",
        "businesses",
        "business_decisions",
        "rail_evidence",
    ] {
        assert!(
            grown.iter().any(|grown| grown == table),
            "{table} is not full"
        );
    }
    for Cost { path, .. } in COSTS {
        let again = async || person.get(path).await.code == 200;
        testing::until(&format!("{path} is served"), again).await;
    }
    let mut wrong = Vec::new();
    for Cost { path, read_max } in COSTS {
        let (page, found) = cost(&person, path, *read_max, &grown).await;
        wrong.extend(found);
        if let Some(older) = page.older() {
            wrong.extend(cost(&person, &older, *read_max, &grown).await.1);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    shop.close().await;
}
