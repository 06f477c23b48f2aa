//! Eight cases for a receiver, which a good one passes.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::get,
};
use chassis::grpc::Reason;
use http::StatusCode;
use proto::webhooks::{
    ConformanceCase, ConformanceResult, ConformanceRun, ConformanceState,
    CreateConformanceRunRequest, GetConformanceRunRequest, StartConformanceRunRequest,
};

use super::{PATH, answer};
use crate::{
    backend,
    dashboard::{
        Dashboard,
        login::{Login, Sent},
        page::{Cell, Control, DetailPage, Field, FormPage, Refusal, Section, Table, blame},
    },
    error::Error,
    pages::see,
};

const RUN_PATH: &str = "/settings/integrations/webhooks/conformance";

/// How many cases a run judges.
const CASES: usize = 8;

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(RUN_PATH, get(show).post(create))
        .route(&format!("{RUN_PATH}/{{run_id}}"), get(show_one).post(start))
}

fn begin_form(login: &Login) -> FormPage {
    let shell = login.shell(Section::Integrations, "Conformance run");
    let mut page = FormPage::new(shell, RUN_PATH, "Go on");
    let lead = [
        "We send your receiver about ten requests, which are judged in eight cases: good ones, which it must accept within ten seconds, and forged ones, which it must refuse. None is kept, and none is about real money.",
        "First you get a secret for this run alone.",
    ];
    page.lead = lead.map(Into::into).into();
    page.links = vec![("Back", PATH)];
    page
}

async fn show(login: Login) -> Response {
    begin_form(&login).respond(StatusCode::OK)
}

async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, .. }: Sent,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.unverified() {
        return Ok(refusal);
    }
    let request = CreateConformanceRunRequest {
        merchant_id: login.merchant_id(),
    };
    let created = dashboard.webhooks.once(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.create_conformance_run(request).await },
    );
    match created.await {
        Ok(run) => Ok(see(&format!("{RUN_PATH}/{}", run.run_id))),
        Err(Error::AtDashboard {
            reason: Reason::ConformanceRunning,
            ..
        }) => {
            let notice = "Another run goes on. It takes a minute at most.".into();
            Ok(begin_form(&login).refuse(StatusCode::CONFLICT, Some(notice)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The form for the receiver's address. It is sent to the page's own.
fn start_form(login: &Login, run: &ConformanceRun, url: &str) -> FormPage {
    let shell = login.shell(Section::Integrations, "Where is your receiver?");
    let mut page = FormPage::new(shell, "", "Start");
    let lead = "Give your receiver this secret, and then its address to us. The secret signs this run and nothing else.";
    page.lead = vec![lead.into()];
    page.secrets = vec![("Secret", run.secret.clone())];
    page.fields = vec![address_field().value(url)];
    page.links = vec![("Back", PATH)];
    page
}

pub fn address_field() -> Field {
    Field::new("url", "Address", Control::Input("url"))
        .hint("A test server is best. It must be reachable from the internet.")
}

async fn find(dashboard: &Dashboard, login: &Login, run_id: &str) -> Result<ConformanceRun, Error> {
    let request = GetConformanceRunRequest {
        merchant_id: login.merchant_id(),
        run_id: run_id.to_owned(),
    };
    let found = dashboard.webhooks.read(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.get_conformance_run(request).await },
    );
    found.await
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Path(run_id): Path<String>,
) -> Result<Response, Refusal> {
    let run = find(&dashboard, &login, &run_id).await?;
    Ok(match run.state() {
        ConformanceState::Waiting => start_form(&login, &run, "").respond(StatusCode::OK),
        _ => page(&login, &run).respond(StatusCode::OK),
    })
}

async fn start(
    State(dashboard): State<Arc<Dashboard>>,
    Path(run_id): Path<String>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.unverified() {
        return Ok(refusal);
    }
    let run = find(&dashboard, &login, &run_id).await?;
    let request = StartConformanceRunRequest {
        merchant_id: login.merchant_id(),
        run_id,
        url: fields.get("url").to_owned(),
    };
    let started = dashboard.webhooks.keyed(
        backend::DEADLINE,
        request,
        |mut webhooks, request| async move { webhooks.start_conformance_run(request).await },
    );
    match started.await {
        Ok(run) => Ok(see(&format!("{RUN_PATH}/{}", run.run_id))),
        Err(Error::Validation(faults)) => {
            let mut page = start_form(&login, &run, fields.get("url"));
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::AtDashboard {
            reason: Reason::TooManyTries,
            ..
        }) => {
            let notice = "Ten in a minute are enough. Wait a moment.".into();
            let page = start_form(&login, &run, fields.get("url"));
            Ok(page.refuse(StatusCode::TOO_MANY_REQUESTS, Some(notice)))
        }
        Err(error) => Err(error.into()),
    }
}

fn page(login: &Login, run: &ConformanceRun) -> DetailPage {
    let mut page = DetailPage::new(login.shell(Section::Integrations, "Conformance run"));
    let passed = usize::try_from(run.passed).unwrap_or_default();
    let state = match run.state() {
        ConformanceState::Done if passed == CASES => Cell::state("Passed", "good"),
        ConformanceState::Done => Cell::state("Not passed", "bad"),
        ConformanceState::Running => Cell::state("Goes on", "wait"),
        ConformanceState::Interrupted => Cell::state("Interrupted", "bad"),
        ConformanceState::Waiting | ConformanceState::Unspecified => Cell::state("Waiting", "idle"),
    };
    page.follow(&state);
    page.facts = vec![
        ("State", state),
        ("Passed", Cell::text(&format!("{passed} / {CASES}"))),
        (
            "Address",
            Cell::text(run.url.as_deref().unwrap_or_default()),
        ),
    ];
    if run.state() == ConformanceState::Running {
        page.lead = vec!["It goes on by itself. Load this page again in a moment.".into()];
    }
    if !run.results.is_empty() {
        page.table = Some(Table {
            caption: "Requests",
            columns: vec!["Request", "Wanted", "Result", "Answer"],
            rows: run.results.iter().map(row).collect(),
        });
    }
    let failed = run.results.iter().filter(|result| !result.passed);
    page.texts = failed
        .map(|result| (case(result.case()), result.curl.clone()))
        .collect();
    page.links = vec![
        ("Another run", RUN_PATH.to_owned()),
        ("Back", PATH.to_owned()),
    ];
    page
}

fn row(result: &ConformanceResult) -> Vec<Cell> {
    let wanted = match result.wants_success {
        true => "Accepted with 2xx",
        false => "Refused",
    };
    let state = match result.passed {
        true => Cell::state("Right", "good"),
        false => Cell::state("Wrong", "bad"),
    };
    let answered = match &result.result {
        Some(result) => answer(result),
        None => Cell::phrase("No time was left for it"),
    };
    vec![
        Cell::phrase(case(result.case())),
        Cell::phrase(wanted),
        state,
        answered,
    ]
}

fn case(case: ConformanceCase) -> &'static str {
    match case {
        ConformanceCase::Unspecified => "Newer than this page knows",
        ConformanceCase::Valid => "A payment",
        ConformanceCase::Duplicate => "The same event twice",
        ConformanceCase::OlderAfterNewer => "An older event after a newer one",
        ConformanceCase::TwoSignatures => "Two signatures, of which one is right",
        ConformanceCase::UnknownType => "An event of a type that nobody knows",
        ConformanceCase::WrongSignature => "Signed with another secret",
        ConformanceCase::OldTimestamp => "Signed 301 seconds ago",
        ConformanceCase::ChangedBody => "Another amount than was signed",
    }
}
