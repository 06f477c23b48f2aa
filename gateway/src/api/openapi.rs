//! The API's description of itself, in OpenAPI 3.1: `GET /api/openapi.json`.
//!
//! Bodies and addresses are described by the handlers' own types and attributes. What stands before
//! or around all of them (keys, rates, errors, headers) is added here, from the same errors that are
//! answered. `docs/openapi.json` is a copy, which a test compares.

pub mod json;
pub mod schemas;

mod webhooks;

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{
    HeaderMap, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use utoipa::OpenApi;

use self::json::Json;
use super::{charge, initiate, read_charge, session_status, submit_otp};
use crate::{
    error::{self, Error},
    field_error::{Fault, FieldCode, FieldError},
};

/// The deprecated address of `initiate` (spec §9).
const ALIAS: &str = "/api/payments/initiate";

const DESCRIPTION: &str = "\
Take payments in Ghana: hand a payment link to a customer, or charge a mobile money wallet (MTN, \
Telecel, AT) from your backend. Webhooks tell every outcome.

Amounts are JSON numbers in major units: 25.50 means 25 cedis and 50 pesewas. Times are UTC with \
milliseconds. Fields that you do not know, in answers and events, are to be ignored: there may be \
more of them one day. In requests, null means the same as leaving a field out, unknown fields are \
ignored, and texts are trimmed.

A request passes these checks in this order: its address and method (404, 405 with `Allow`), its \
key (401), its merchant's rate (429) and verification (403), its body (415, 413, 408, 400), and \
then what it asks for (404, 409, 422). What fails a check has done nothing.

Rates are counted for each merchant in whole minutes: 60 requests a minute to create sessions and \
check them (v1/payments), 60 to charge and submit codes (v1/payments/charge), 300 to read charges \
(v1/payments/charge:status). Every answer to a valid key says how you stand.";

#[derive(OpenApi)]
#[openapi(
    info(title = "Payments for Ghana", version = "1.0.0", description = DESCRIPTION),
    servers((url = "/", description = "This server")),
    tags(
        (name = "Payment sessions", description = "Payment links, paid on the hosted checkout."),
        (name = "Charges", description = "Mobile money wallets, charged directly from your backend."),
        (name = "Webhooks", description = "What you are sent when a payment or a payout changes."),
    ),
    paths(
        initiate::initiate,
        session_status::session_status,
        charge::charge,
        submit_otp::submit_otp,
        read_charge::read_charge,
    ),
    components(schemas(error::Body<'_>, webhooks::PaymentEvent, webhooks::PayoutEvent)),
)]
struct Handlers;

/// The document, made once.
pub static DOCUMENT: LazyLock<Json> = LazyLock::new(document);

/// The document's bytes, and the tag that changes with them.
static ANSWER: LazyLock<(String, String)> = LazyLock::new(|| {
    let text = format!("{}\n", DOCUMENT.pretty());
    let tag = entity_tag(&text);
    (text, tag)
});

/// `GET /api/openapi.json`, which wants no key and is not counted.
pub async fn serve(headers: HeaderMap) -> Response {
    let (text, tag) = &*ANSWER;
    cacheable(&headers, tag, "application/json", text)
}

/// The same for whoever gets the same bytes.
pub fn entity_tag(content: &str) -> String {
    let hash = hex::encode(Sha256::digest(content));
    format!("\"{}\"", hash.get(..32).unwrap_or(&hash))
}

/// A text that callers may keep for five minutes and then ask about by its tag.
pub fn cacheable(
    headers: &HeaderMap,
    tag: &'static str,
    content_type: &'static str,
    text: &'static str,
) -> Response {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(','));
    let is_known = known.any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/") == tag
    });
    let kept = [(ETAG, tag), (CACHE_CONTROL, "public, max-age=300")];
    if is_known {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(CONTENT_TYPE, content_type)], text).into_response()
}

/// Puts the document together.
fn document() -> Json {
    let examples = Json::parse(include_str!("openapi/examples.json"));
    let mut document = Json::of(&Handlers::openapi());
    // The package has none, which is not one without a name.
    document.member("info").remove("license");
    document.set("security", json!([{ "api_key": [] }]));
    let Some(Json::Object(paths)) = document.get("paths").cloned() else {
        unreachable!("the handlers have paths");
    };
    for (path, item) in paths {
        for (method, operation) in item.members() {
            let operation = completed(operation.clone(), &examples);
            document
                .member("paths")
                .member(&path)
                .set(method, operation);
        }
    }
    let alias = alias(&document);
    document.member("paths").member(ALIAS).set("post", alias);
    let events = examples.get("webhooks").expect("examples of events");
    document.set("webhooks", webhooks::all(events));
    let components = document.member("components");
    components.set("headers", headers());
    components.set(
        "securitySchemes",
        json!({ "api_key": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "service_sk_…",
            "description": "Your API key: `Authorization: Bearer service_sk_…`. For your server \
                only, never for a browser or an app.",
        } }),
    );
    tidy(&mut document);
    // Descriptions before parts: readers of the file meet the addresses first.
    let mut ordered = Json::Object(Default::default());
    for name in [
        "openapi", "info", "servers", "security", "tags", "paths", "webhooks",
    ] {
        if let Some(part) = document.get(name) {
            ordered.set(name, part.clone());
        }
    }
    for (name, part) in document.members() {
        ordered.set(name, part.clone());
    }
    ordered
}

/// Joins the lines of comments, and tells of a field that may be null what is told of its value.
fn tidy(json: &mut Json) {
    match json {
        Json::Object(members) => {
            for part in members.values_mut() {
                tidy(part);
            }
            let told = members.get("oneOf").into_iter().flat_map(Json::items);
            let told = told
                .filter_map(|one| one.get("description"))
                .next()
                .cloned();
            if let Some(told) = told {
                members.entry("description".to_owned()).or_insert(told);
            }
            if let Some(Json::Other(Value::String(text))) = members.get_mut("description") {
                *text = text
                    .replace("\n\n", "\r")
                    .replace('\n', " ")
                    .replace('\r', "\n\n");
            }
        }
        Json::Array(items) => items.iter_mut().for_each(tidy),
        Json::Other(_) => {}
    }
}

/// An operation with what its own attributes do not say.
fn completed(mut operation: Json, examples: &Json) -> Json {
    let id = operation.text_of("operationId").to_owned();
    let examples = examples.get(&id).expect("every operation has examples");
    if let Some(requests) = examples.get("request") {
        let body = operation.member("requestBody");
        body.set("required", json!(true));
        let media = body.member("content").member("application/json");
        media.set("examples", requests.clone());
    }
    let mut responses = operation.member("responses").clone();
    for (status, response) in responses.clone().members() {
        let response = success(response.clone(), &id, status, examples);
        responses.set(status, response);
    }
    for (status, refusals) in by_status(&refusals(&id)) {
        responses.set(&status, refused(&status, &refusals));
    }
    operation.set("responses", responses);
    operation
}

/// An answer of the handler itself.
fn success(mut response: Json, id: &str, status: &str, examples: &Json) -> Json {
    let headers = response.member("headers");
    always(headers, &["X-Request-Id", "RateLimit-Policy"]);
    sometimes(headers, &["RateLimit"]);
    if matches!(id, "initiate" | "charge") {
        sometimes(headers, &["Idempotent-Replayed"]);
    }
    let media = response.member("content").member("application/json");
    let given = examples.at(&["responses", status]);
    media.set(
        "examples",
        given.expect("every answer has an example").clone(),
    );
    let links = links(id, status);
    if links.members().next().is_some() {
        response.set("links", links);
    }
    response
}

/// How an operation may be refused.
fn refusals(operation: &str) -> Vec<Error> {
    let gate = [
        Error::InvalidApiKey,
        Error::RateLimited {
            retry_after_seconds: 17,
        },
        Error::EmailNotVerified,
        Error::KycNotApproved(Some("IN_REVIEW")),
        Error::Panicked,
        Error::NothingStarted,
    ];
    let read = [Error::NotFound];
    let write = |field, fault: Fault| {
        [
            Error::UnsupportedMediaType,
            Error::PayloadTooLarge,
            Error::RequestTimeout,
            Error::MalformedJson,
            Error::Validation(vec![FieldError {
                field,
                code: fault.code,
                message: fault.message,
            }]),
        ]
    };
    let required = Fault::new(FieldCode::Required, "is required");
    let create = || write("amount".into(), required);
    let created = [
        Error::MerchantNotAcceptingPayments,
        Error::IdempotencyInProgress,
        Error::IdempotencyKeyReused,
        Error::OutcomeUnknown,
    ];
    let more: Vec<Error> = match operation {
        "initiate" | "charge" => create().into_iter().chain(created).collect(),
        "submit_otp" => write("otp".into(), required)
            .into_iter()
            .chain(read)
            .chain([Error::ChargeNotAwaitingOtp, Error::OutcomeUnknown])
            .collect(),
        _ => read.to_vec(),
    };
    gate.into_iter().chain(more).collect()
}

fn by_status(refusals: &[Error]) -> Vec<(String, Vec<&Error>)> {
    let mut statuses: Vec<StatusCode> = refusals.iter().map(Error::status).collect();
    statuses.sort();
    statuses.dedup();
    let of = |status| {
        refusals
            .iter()
            .filter(move |error| error.status() == status)
    };
    let together = statuses
        .into_iter()
        .map(|status| (status.as_str().to_owned(), of(status).collect()));
    together.collect()
}

/// An answer that is an error.
fn refused(status: &str, refusals: &[&Error]) -> Json {
    let request_id = "019aa5c2-7b4f-7d32-a1c9-5e8d0f2b6a41";
    let mut codes = Vec::new();
    let mut examples = Json::Object(Default::default());
    for error in refusals {
        let body = Json::of(&error.body(request_id));
        let code = body.text_of("code").to_owned();
        let is_second = codes.contains(&code);
        let name = if is_second {
            format!("{code}_2")
        } else {
            code.clone()
        };
        let example = examples.member(&name);
        example.set("summary", json!(body.text_of("error")));
        example.set("value", body);
        if !is_second {
            codes.push(code);
        }
    }
    let mut response = Json::from(json!({
        "description": format!("{}.", codes.join(", ")),
        "content": { "application/json": { "schema": { "allOf": [
            { "$ref": "#/components/schemas/Error" },
            { "type": "object", "properties": { "code": { "enum": codes } } },
        ] } } },
    }));
    let media = response.member("content").member("application/json");
    media.set("examples", examples);
    let headers = response.member("headers");
    always(headers, &["X-Request-Id"]);
    match status {
        "401" => always(headers, &["WWW-Authenticate"]),
        // Refused before the rate is known, or because it could not be.
        "500" | "503" => sometimes(headers, &["RateLimit-Policy", "RateLimit", "Retry-After"]),
        "429" => {
            always(headers, &["Retry-After"]);
            sometimes(headers, &["RateLimit-Policy", "RateLimit"]);
        }
        _ => {
            always(headers, &["RateLimit-Policy"]);
            sometimes(headers, &["RateLimit"]);
        }
    }
    if status == "409" {
        sometimes(headers, &["Retry-After"]);
    }
    response
}

/// The same operation under its old address.
fn alias(document: &Json) -> Json {
    let path = ["paths", "/api/v1/payments/initiate", "post"];
    let mut alias = document.at(&path).expect("the operation").clone();
    alias.set("operationId", json!("initiate_deprecated"));
    alias.set("summary", json!("Create a payment session (old address)"));
    alias.set(
        "description",
        json!(
            "The same as POST /api/v1/payments/initiate, and counted and keyed with it. Use \
            that one. This address will be removed; the header Sunset will say when."
        ),
    );
    alias.set("deprecated", json!(true));
    for (status, response) in alias.member("responses").clone().members() {
        let mut response = response.clone();
        let headers = response.member("headers");
        always(headers, &["Deprecation", "Link"]);
        sometimes(headers, &["Sunset"]);
        alias.member("responses").set(status, response);
    }
    alias
}

/// Where an answer leads.
fn links(operation: &str, status: &str) -> Json {
    let session = json!({
        "operationId": "session_status",
        "parameters": { "session_id": "$response.body#/session_id" },
    });
    let charge = json!({
        "operationId": "read_charge",
        "parameters": { "reference": "$response.body#/reference" },
    });
    let otp = json!({
        "operationId": "submit_otp",
        "requestBody": { "reference": "$response.body#/reference", "otp": "123456" },
    });
    Json::from(match (operation, status) {
        ("initiate", "201") => json!({ "session": session }),
        ("charge", "202") => json!({ "session": session, "charge": charge, "otp": otp }),
        ("charge", "422") => json!({ "session": session, "charge": charge }),
        ("submit_otp", _) => json!({ "charge": charge }),
        ("read_charge", _) => json!({ "session": session }),
        _ => json!({}),
    })
}

/// Headers that an answer always carries.
fn always(headers: &mut Json, names: &[&str]) {
    for name in names {
        let pointer = format!("#/components/headers/{name}");
        headers.set(name, json!({ "$ref": pointer }));
    }
}

/// Headers that it carries where they apply.
fn sometimes(headers: &mut Json, names: &[&str]) {
    for name in names {
        let mut header = header(name);
        header.set("required", json!(false));
        headers.set(name, header);
    }
}

fn headers() -> Json {
    let mut headers = Json::Object(Default::default());
    for name in [
        "X-Request-Id",
        "RateLimit-Policy",
        "WWW-Authenticate",
        "Retry-After",
        "Deprecation",
        "Link",
    ] {
        headers.set(name, header(name));
    }
    headers
}

/// A header of answers.
fn header(name: &str) -> Json {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let (description, schema, example): (&str, Value, &str) = match name {
        "X-Request-Id" => (
            "Names this request in our logs. Your own X-Request-Id comes back if it has 1 to 64 \
             letters, digits and dashes.",
            text("^[0-9A-Za-z-]{1,64}$"),
            "019aa5c2-7b4f-7d32-a1c9-5e8d0f2b6a41",
        ),
        "RateLimit-Policy" => (
            "The bucket, its requests per window, and the window in seconds.",
            text("^\"[a-z0-9/:]+\";q=[0-9]+;w=[0-9]+$"),
            "\"v1/payments\";q=60;w=60",
        ),
        "RateLimit" => (
            "Requests that remain in this window, and seconds until it ends. Left out while \
             nobody counts.",
            text("^\"[a-z0-9/:]+\";r=[0-9]+;t=[0-9]+$"),
            "\"v1/payments\";r=59;t=42",
        ),
        "Retry-After" => (
            "Seconds after which a repeat makes sense.",
            text("^[1-9][0-9]*$"),
            "17",
        ),
        "WWW-Authenticate" => ("How to authenticate.", text("^Bearer$"), "Bearer"),
        "Idempotent-Replayed" => (
            "There where this is the stored answer to an earlier request with the same \
             Idempotency-Key.",
            text("^true$"),
            "true",
        ),
        "Deprecation" => (
            "Since when the address is deprecated (RFC 9745).",
            text("^@[0-9]+$"),
            "@1793491200",
        ),
        "Link" => (
            "The address that takes this one's place.",
            text("rel=\"successor-version\""),
            "</api/v1/payments/initiate>; rel=\"successor-version\"",
        ),
        "Sunset" => (
            "When the address will be removed, once that is announced (RFC 8594).",
            json!({ "type": "string" }),
            "Tue, 01 Jun 2027 00:00:00 GMT",
        ),
        _ => unreachable!("no such header"),
    };
    Json::from(json!({
        "description": description,
        "required": true,
        "schema": schema,
        "example": example,
    }))
}
