//! The API's description of itself, as a document and as a page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    gateway::{CHARGE, Gateway, INITIATE, PAYOUTS, REFUNDS, SUBMIT_OTP},
    http::Answer,
    services::REFERENCE,
};

pub const DOCUMENT: &str = "/api/openapi.json";

/// The document's source.
pub const SOURCE: &str = include_str!("../../../docs/openapi.yaml");

#[tokio::test]
async fn the_document_is_served_as_it_stands() {
    let gateway = Gateway::start().await;
    let served = gateway.request("GET", DOCUMENT).send().await;
    let kept: Value = yaml_serde::from_str(SOURCE).expect("YAML");
    assert_eq!(served.json(), kept);
    // In the same order, too.
    let served = served.text();
    let places = ["\"info\"", "\"paths\"", "\"webhooks\"", "\"components\""];
    let places = places.map(|part| served.find(part).expect(part));
    assert!(places.is_sorted(), "{places:?}");
}

/// Every reference in a part of the document.
fn references(part: &Value) -> Vec<&str> {
    let inner: Vec<&Value> = match part {
        Value::Object(members) => members.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => return Vec::new(),
    };
    let own = part["$ref"].as_str();
    let inner = inner.into_iter().flat_map(references);
    own.into_iter().chain(inner).collect()
}

#[test]
fn references_name_something_and_every_component_is_named() {
    let document: Value = yaml_serde::from_str(SOURCE).expect("YAML");
    let references: BTreeSet<&str> = references(&document).into_iter().collect();
    for reference in &references {
        let pointer = reference
            .strip_prefix('#')
            .expect("a part of this document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let components = document["components"].as_object().expect("components");
    for (kind, parts) in components
        .iter()
        .filter(|(kind, _)| *kind != "securitySchemes")
    {
        for name in parts.as_object().expect("components").keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(
                references.contains(reference.as_str()),
                "{reference} is not used"
            );
        }
    }
}

/// The addresses to which a function of the router gives a handler, according to its source.
pub fn routes_of(function: &str) -> BTreeSet<&'static str> {
    let source = include_str!("../../src/api.rs");
    let (_, body) = source
        .split_once(&format!("\nfn {function}("))
        .expect("the function");
    let (body, _) = body.split_once("\n}\n").expect("its end");
    let routes = body.split(".route(").skip(1);
    let routes = routes.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    routes.filter(|path| *path != DOCUMENT).collect()
}

fn routes() -> BTreeSet<&'static str> {
    &routes_of("specified") | &routes_of("additive")
}

#[tokio::test]
async fn exactly_the_documented_operations_have_handlers() {
    let gateway = Gateway::start().await;
    let document: Value = yaml_serde::from_str(SOURCE).expect("YAML");
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(
        paths.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        routes()
    );
    for (path, methods) in paths {
        let methods = methods.as_object().expect("methods").keys();
        let methods: Vec<String> = methods.map(|method| method.to_uppercase()).collect();
        for method in &methods {
            let keyless = gateway.request(method, path).send().await;
            keyless.assert_error(401, "INVALID_API_KEY");
        }
        let other = gateway.request("DELETE", path).send().await;
        other.assert_error(405, "METHOD_NOT_ALLOWED");
        let allowed = methods.join(",").replace("GET", "GET,HEAD");
        assert_eq!(other.header("allow"), Some(allowed.as_str()), "{path}");
    }
}

#[tokio::test]
async fn the_document_wants_no_key_and_is_not_counted() {
    let gateway = Gateway::start().await;
    for path in [DOCUMENT, "/docs"] {
        let answer = gateway.request("GET", path).send().await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.header("ratelimit-policy"), None);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let post = gateway.request("POST", path).send().await;
        post.assert_error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(post.header("allow"), Some("GET,HEAD"), "{path}");
    }
    assert!(gateway.services.authenticate.asked().is_empty());
    assert!(gateway.services.check.asked().is_empty());
}

#[tokio::test]
async fn what_a_caller_has_already_is_not_sent_again() {
    let gateway = Gateway::start().await;
    for path in [DOCUMENT, "/docs"] {
        let first = gateway.request("GET", path).send().await;
        let tag = first.header("etag").expect("a tag").to_owned();
        let again = async |known: &str| -> Answer {
            let request = gateway.request("GET", path);
            request.header("if-none-match", known).send().await
        };
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            "*".to_owned(),
        ] {
            let answer = again(&known).await;
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{known}");
            assert_eq!(answer.header("etag"), Some(tag.as_str()));
            let kept = answer.header("cache-control");
            assert_eq!(kept, Some("public, max-age=300"), "{known}");
        }
        for other in ["\"other\"", "other", ""] {
            let answer = again(other).await;
            assert_eq!(answer.status, 200, "{other}");
            assert_eq!(answer.body, first.body);
        }
    }
}

#[tokio::test]
async fn the_page_needs_nothing_but_itself() {
    let gateway = Gateway::start().await;
    let page = gateway.request("GET", "/docs").send().await;
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = page.text();
    for foreign in [
        "<script",
        "<link rel=\"stylesheet\"",
        "<img",
        " style=",
        "@import",
        "url(",
    ] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    assert_eq!(text.matches("<style>").count(), 1);
}

#[tokio::test]
async fn the_page_shows_every_operation_field_and_event() {
    let gateway = Gateway::start().await;
    let document = gateway.request("GET", DOCUMENT).send().await.json();
    let page = gateway.request("GET", "/docs").send().await;
    let text = page.text();
    let operations = document["paths"].as_object().expect("paths").values();
    let events = document["webhooks"].as_object().expect("webhooks").values();
    let mut seen = 0;
    for operation in operations
        .chain(events)
        .flat_map(|item| item.as_object().expect("methods").values())
    {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(text.contains(&format!("id=\"{id}\"")), "{id}");
        seen += 1;
    }
    assert_eq!(seen, 32);
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    for schema in schemas.values() {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (field, _) in properties {
            assert!(text.contains(&format!("<code>{field}</code>")), "{field}");
        }
    }
}

/// The fields that a parser reads, according to its source.
fn fields_read(source: &str) -> BTreeSet<&str> {
    let reads = ["fields.required(\"", "fields.optional(\""].into_iter();
    let after = reads.flat_map(|call| source.split(call).skip(1));
    after.filter_map(|rest| rest.split('"').next()).collect()
}

/// A request body as the document describes it.
struct Documented {
    path: &'static str,
    source: &'static str,
    /// With every reference replaced by what it names.
    schema: Value,
    /// The example with the most fields.
    example: Value,
}

impl Documented {
    async fn all(gateway: &Gateway) -> Vec<Self> {
        let document = gateway.request("GET", DOCUMENT).send().await.json();
        let bodies = [
            (INITIATE, include_str!("../../src/api/initiate.rs")),
            (CHARGE, include_str!("../../src/api/charge.rs")),
            (SUBMIT_OTP, include_str!("../../src/api/submit_otp.rs")),
            (PAYOUTS, include_str!("../../src/api/payouts.rs")),
            (REFUNDS, include_str!("../../src/api/refunds.rs")),
        ];
        let documented = bodies.map(|(path, source)| {
            let operation = &document["paths"][path]["post"];
            let media = &operation["requestBody"]["content"]["application/json"];
            let examples = media["examples"].as_object().expect("examples").values();
            let whole = examples.max_by_key(|one| one["value"].as_object().map(|it| it.len()));
            Self {
                path,
                source,
                schema: followed(&document, &media["schema"]),
                example: whole.expect("an example")["value"].clone(),
            }
        });
        documented.into()
    }

    fn fields(&self) -> Vec<(&str, &Value)> {
        let properties = self.schema["properties"].as_object().expect("fields");
        let fields = properties.iter();
        fields
            .map(|(name, schema)| (name.as_str(), schema))
            .collect()
    }

    fn is_required(&self, field: &str) -> bool {
        let required = self.schema["required"].as_array().into_iter().flatten();
        required.into_iter().any(|one| one == field)
    }

    /// Sends the example with one field changed. Returns the refused fields if the answer is 400.
    async fn send(&self, gateway: &Gateway, field: &str, value: Option<Value>) -> Vec<String> {
        let mut body = self.example.clone();
        let fields = body.as_object_mut().expect("an object");
        // Valid in every currency.
        if fields.contains_key("amount") {
            fields.insert("amount".to_owned(), json!(40));
        }
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
        let path = self.path.replace("{reference}", REFERENCE);
        let answer = gateway.post(&path, body.to_string()).send().await;
        if answer.status != 400 {
            assert_ne!(answer.status, 500, "{}", answer.text());
            return Vec::new();
        }
        let refused = answer.refused_fields().into_iter();
        refused
            .map(|(name, code)| format!("{name} {code}"))
            .collect()
    }
}

/// A schema with its references replaced by what they name, and null left out.
pub fn followed(document: &Value, schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(choices) = schema["oneOf"].as_array() {
        let value = choices.iter().find(|choice| choice["type"] != "null");
        schema = value.expect("a choice").clone();
    }
    if let Some(pointer) = schema["$ref"].as_str() {
        let pointer = pointer.trim_start_matches('#');
        schema = document.pointer(pointer).expect("what it names").clone();
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        for property in properties.values_mut() {
            *property = followed(document, property);
        }
    }
    schema
}

#[tokio::test]
async fn exactly_the_documented_fields_are_read() {
    let gateway = Gateway::start().await;
    for documented in Documented::all(&gateway).await {
        let fields = documented.fields();
        let names: BTreeSet<&str> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, fields_read(documented.source), "{}", documented.path);
        for name in names {
            let refused = documented.send(&gateway, name, Some(json!([]))).await;
            assert_eq!(refused, [format!("{name} INVALID_TYPE")]);
            let missing = match documented.is_required(name) {
                true => vec![format!("{name} REQUIRED")],
                false => Vec::new(),
            };
            assert_eq!(documented.send(&gateway, name, None).await, missing);
            let null = documented.send(&gateway, name, Some(Value::Null)).await;
            assert_eq!(null, missing);
        }
    }
}

#[tokio::test]
async fn limits_are_as_documented() {
    let gateway = Gateway::start().await;
    let mut seen = 0;
    for documented in Documented::all(&gateway).await {
        for (name, schema) in documented.fields() {
            let is_taken = async |value: Value| {
                let refused = documented.send(&gateway, name, Some(value)).await;
                refused.is_empty()
            };
            if let Some(most) = schema["maxLength"].as_u64() {
                let most = usize::try_from(most).expect("a small number");
                assert!(is_taken(json!(text_of(schema, most))).await, "{name}");
                assert!(!is_taken(json!(text_of(schema, most + 1))).await, "{name}");
                seen += 1;
            }
            if schema["minLength"] == 1 {
                assert!(!is_taken(json!("")).await, "{name}");
                seen += 1;
            }
            if schema["type"] == "number" {
                assert_eq!(schema["maximum"], json!(9_999_999_999.99));
                let is_raw_taken = async |digits: &str| {
                    is_taken(serde_json::from_str(digits).expect("a number")).await
                };
                assert!(is_raw_taken("9999999999.99").await);
                assert!(!is_raw_taken("10000000000").await);
                assert!(is_raw_taken("0.01").await);
                assert!(!is_raw_taken("0").await);
                seen += 1;
            }
            for value in schema["enum"].as_array().into_iter().flatten() {
                assert!(is_taken(value.clone()).await, "{name} {value}");
                seen += 1;
            }
            if schema["enum"].is_array() {
                assert!(!is_taken(json!("XAU")).await, "{name}");
            }
        }
    }
    assert!(seen > 180, "{seen}");
}

#[tokio::test]
async fn the_limit_of_keys_is_as_documented() {
    let gateway = Gateway::start().await;
    let document: Value = yaml_serde::from_str(SOURCE).expect("YAML");
    let schema = &document["components"]["parameters"]["IdempotencyKey"]["schema"];
    let most = schema["maxLength"].as_u64().expect("a limit");
    let most = usize::try_from(most).expect("a small number");
    assert_eq!(schema["minLength"], 1);
    for (characters, status) in [(0, 400), (1, 201), (most, 201), (most + 1, 400)] {
        let request = gateway.post(INITIATE, json!({ "amount": 40 }).to_string());
        let request = request.header("idempotency-key", &"k".repeat(characters));
        assert_eq!(request.send().await.status, status, "{characters}");
    }
}

/// A text of that many characters, in the format that the schema requires.
fn text_of(schema: &Value, characters: usize) -> String {
    let fill = |count: usize| "a".repeat(count);
    match schema["format"].as_str() {
        Some("uri") => format!("https://example.com/{}", fill(characters - 20)),
        Some("email") => {
            let labels = "b.".repeat((characters - 66) / 2);
            let rest = characters - 65 - labels.len();
            format!("{}@{labels}{}", fill(64), "c".repeat(rest))
        }
        _ => fill(characters),
    }
}
