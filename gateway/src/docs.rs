//! `GET /docs`: the API's document as a page for people. One file without scripts or anything to
//! load, made once from the same document that `/api/openapi.json` serves.

use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY},
};
use sha2::{Digest as _, Sha256};

use crate::{
    api::openapi::{self, DOCUMENT, json::Json},
    error::Error,
};

const STYLE: &str = include_str!("../assets/docs.css");

/// The page, its tag, and the policy that lets its own style in and nothing else.
static PAGE: LazyLock<Result<(String, String, HeaderValue), String>> = LazyLock::new(|| {
    let page = Page::of(&DOCUMENT)
        .render()
        .map_err(|error| error.to_string())?;
    let tag = openapi::entity_tag(&page);
    let hash = BASE64.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'none'; \
         frame-ancestors 'none'; base-uri 'none'"
    );
    let policy = policy.try_into().map_err(|_| "no policy".to_owned())?;
    Ok((page, tag, policy))
});

pub async fn serve(headers: HeaderMap) -> Result<Response, Error> {
    let made = PAGE.as_ref();
    let (page, tag, policy) = made.map_err(|error| Error::internal(error.as_str()))?;
    let mut response = openapi::cacheable(&headers, tag, "text/html; charset=utf-8", page);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

#[derive(Template)]
#[template(path = "docs/page.html")]
struct Page {
    style: &'static str,
    title: String,
    introduction: Vec<Rich>,
    groups: Vec<Group>,
    errors: Vec<ErrorShown>,
    /// Of an error's body.
    error_fields: Vec<Field>,
}

/// Operations, or events, that belong together.
struct Group {
    id: String,
    name: String,
    about: Rich,
    operations: Vec<Operation>,
}

struct Operation {
    id: String,
    /// POST or GET; empty for an event.
    method: String,
    path: String,
    name: String,
    is_deprecated: bool,
    about: Vec<Rich>,
    /// In the address and in headers.
    parameters: Vec<Field>,
    body: Vec<Field>,
    /// How to call it, or what is sent.
    examples: Vec<Example>,
    answers: Vec<Answer>,
    /// The ways in which it is refused.
    refusals: Vec<Refusal>,
}

struct Field {
    name: String,
    /// How deep it lies in other fields.
    depth: usize,
    is_required: bool,
    kind: String,
    values: Vec<String>,
    about: Rich,
}

struct Example {
    name: String,
    text: String,
}

struct Answer {
    status: String,
    about: Rich,
    headers: Vec<Field>,
    fields: Vec<Field>,
    examples: Vec<Example>,
}

struct Refusal {
    status: String,
    codes: Vec<String>,
}

struct ErrorShown {
    status: String,
    code: String,
    text: String,
}

/// Text with its `names` marked, as HTML.
struct Rich(String);

impl Rich {
    fn of(text: &str) -> Self {
        let escaped = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;");
        let parts = escaped.split('`').enumerate();
        let marked = parts.map(|(index, part)| match index % 2 {
            0 => part.to_owned(),
            _ => format!("<code>{part}</code>"),
        });
        Self(marked.collect())
    }

    fn paragraphs(text: &str) -> Vec<Self> {
        let paragraphs = text.split("\n\n").filter(|text| !text.is_empty());
        paragraphs.map(Self::of).collect()
    }
}

impl Page {
    fn of(document: &Json) -> Self {
        let info = document.get("info").expect("every document has it");
        let mut page = Self {
            style: STYLE,
            title: info.text_of("title").to_owned(),
            introduction: Rich::paragraphs(info.text_of("description")),
            groups: Vec::new(),
            errors: errors(document),
            error_fields: fields(
                document,
                document.at(&["components", "schemas", "Error"]),
                0,
            ),
        };
        let tags = document.get("tags").map(Json::items).unwrap_or_default();
        for tag in tags {
            let name = tag.text_of("name");
            page.groups.push(Group {
                id: name.to_lowercase().replace(' ', "-"),
                name: name.to_owned(),
                about: Rich::of(tag.text_of("description")),
                operations: operations(document, name),
            });
        }
        page
    }
}

/// The operations and events of one tag, in the document's order.
fn operations(document: &Json, tag: &str) -> Vec<Operation> {
    let parts = ["paths", "webhooks"].into_iter();
    let items = parts.flat_map(|part| {
        let items = document.get(part).into_iter().flat_map(Json::members);
        items.map(move |(path, item)| (part, path, item))
    });
    let mut found = Vec::new();
    for (part, path, item) in items {
        for (method, operation) in item.members() {
            let tags = operation.get("tags").map(Json::items).unwrap_or_default();
            if tags.iter().any(|one| one.text() == Some(tag)) {
                let method = if part == "paths" { method } else { "" };
                found.push(Operation::of(document, method, path, operation));
            }
        }
    }
    found
}

impl Operation {
    fn of(document: &Json, method: &str, path: &str, operation: &Json) -> Self {
        let media = operation.at(&["requestBody", "content", "application/json"]);
        let schema = media.and_then(|media| media.get("schema"));
        let responses = || {
            operation
                .get("responses")
                .into_iter()
                .flat_map(Json::members)
        };
        let is_refusal = |response: &Json| {
            response
                .at(&["content", "application/json", "schema", "allOf"])
                .is_some()
        };
        Self {
            id: operation.text_of("operationId").to_owned(),
            method: method.to_uppercase(),
            path: path.to_owned(),
            name: operation.text_of("summary").to_owned(),
            is_deprecated: operation.get("deprecated").is_some(),
            about: Rich::paragraphs(operation.text_of("description")),
            parameters: parameters(document, operation),
            body: fields(document, schema, 0),
            examples: match method {
                "" => events(media),
                _ => calls(method, path, operation, media),
            },
            answers: responses()
                .filter(|(_, response)| !is_refusal(response))
                .map(|(status, response)| Answer::of(document, status, response))
                .collect(),
            refusals: responses()
                .filter(|(_, response)| is_refusal(response))
                .map(|(status, response)| Refusal {
                    status: status.to_owned(),
                    codes: codes(response),
                })
                .collect(),
        }
    }
}

impl Answer {
    fn of(document: &Json, status: &str, response: &Json) -> Self {
        let media = response.at(&["content", "application/json"]);
        let schema = media.and_then(|media| media.get("schema"));
        let headers = response.get("headers").into_iter().flat_map(Json::members);
        let examples = media.and_then(|media| media.get("examples"));
        let examples = examples.into_iter().flat_map(Json::members);
        Self {
            status: status.to_owned(),
            about: Rich::of(response.text_of("description")),
            headers: headers
                .map(|(name, header)| {
                    let header = resolve(document, header);
                    let schema = header.get("schema").unwrap_or(header);
                    Field::of(document, name, schema, is_required(header), 0)
                        .told(header.text_of("description"))
                })
                .collect(),
            fields: fields(document, schema, 0),
            examples: examples
                .map(|(_, example)| Example {
                    name: example.text_of("summary").to_owned(),
                    text: example.get("value").map(Json::pretty).unwrap_or_default(),
                })
                .collect(),
        }
    }
}

impl Field {
    fn of(document: &Json, name: &str, schema: &Json, is_required: bool, depth: usize) -> Self {
        let told = schema.text_of("description");
        let (value, may_be_null) = value_of(document, schema);
        let general = value.text_of("description");
        let mut about = told.to_owned();
        if general != told {
            about = format!("{told} {general}").trim().to_owned();
        }
        let values = value.get("enum").map(Json::items).unwrap_or_default();
        let values: Vec<String> = values
            .iter()
            .filter_map(Json::text)
            .map(str::to_owned)
            .collect();
        let mut kind = kind(value);
        if may_be_null {
            kind += " or null";
        }
        if let Some(default) = schema.get("default").and_then(Json::text) {
            kind += &format!(", {default} if left out");
        }
        Self {
            name: name.to_owned(),
            depth,
            is_required,
            kind,
            // A list of all currencies helps nobody.
            values: if values.len() > 20 {
                Vec::new()
            } else {
                values
            },
            about: Rich::of(&about),
        }
    }

    fn told(self, about: &str) -> Self {
        Self {
            about: Rich::of(about),
            ..self
        }
    }
}

/// What a reference names.
fn resolve<'a>(document: &'a Json, json: &'a Json) -> &'a Json {
    let Some(pointer) = json.get("$ref").and_then(Json::text) else {
        return json;
    };
    let path: Vec<&str> = pointer.trim_start_matches("#/").split('/').collect();
    document.at(&path).unwrap_or(json)
}

/// A schema without its wrapping, and whether it may be null.
fn value_of<'a>(document: &'a Json, schema: &'a Json) -> (&'a Json, bool) {
    let choices = schema.get("oneOf").map(Json::items).unwrap_or_default();
    let is_null = |choice: &&Json| choice.text_of("type") == "null";
    let Some(value) = choices.iter().find(|choice| !is_null(choice)) else {
        let value = resolve(document, schema);
        let types = value.get("type").map(Json::items).unwrap_or_default();
        return (value, types.iter().any(|one| one.text() == Some("null")));
    };
    (
        resolve(document, value),
        choices.iter().any(|one| is_null(&one)),
    )
}

/// The type with its limits, in words.
fn kind(schema: &Json) -> String {
    let types = schema.get("type").map(Json::items).unwrap_or_default();
    let only = types
        .iter()
        .filter_map(Json::text)
        .find(|one| *one != "null");
    let mut kind = only.unwrap_or(schema.text_of("type")).to_owned();
    let number = |name| schema.get(name).map(Json::pretty);
    match (number("minLength"), number("maxLength")) {
        (Some(min), Some(max)) => kind += &format!(", {min} to {max} characters"),
        (None, Some(max)) => kind += &format!(", at most {max} characters"),
        _ => {}
    }
    if let Some(minimum) = number("minimum") {
        kind += &format!(", at least {minimum}");
    }
    if let Some(minimum) = number("exclusiveMinimum") {
        kind += &format!(", more than {minimum}");
    }
    if let Some(maximum) = number("maximum") {
        kind += &format!(", at most {maximum}");
    }
    kind
}

/// The fields of an object, each followed by those inside it.
fn fields(document: &Json, schema: Option<&Json>, depth: usize) -> Vec<Field> {
    let Some(schema) = schema else {
        return Vec::new();
    };
    let (object, _) = value_of(document, schema);
    let object = object
        .get("items")
        .map_or(object, |items| resolve(document, items));
    let required = object.get("required").map(Json::items).unwrap_or_default();
    let properties = object.get("properties").into_iter().flat_map(Json::members);
    let mut found = Vec::new();
    for (name, property) in properties {
        let is_required = required.iter().any(|one| one.text() == Some(name));
        found.push(Field::of(document, name, property, is_required, depth));
        found.extend(fields(document, Some(property), depth + 1));
    }
    found
}

fn parameters(document: &Json, operation: &Json) -> Vec<Field> {
    let parameters = operation.get("parameters").map(Json::items);
    let parameters = parameters.unwrap_or_default().iter();
    let shown = parameters.map(|parameter| {
        let schema = parameter.get("schema").unwrap_or(parameter);
        let is_required = is_required(parameter);
        let name = parameter.text_of("name");
        let field = Field::of(document, name, schema, is_required, 0);
        let kind = format!("{} ({})", field.kind, parameter.text_of("in"));
        Field { kind, ..field }.told(parameter.text_of("description"))
    });
    shown.collect()
}

fn is_required(json: &Json) -> bool {
    json.get("required").is_some_and(|it| it.pretty() == "true")
}

/// How to call an operation, once for each example.
fn calls(method: &str, path: &str, operation: &Json, media: Option<&Json>) -> Vec<Example> {
    let mut address = format!("\"$API{path}\"");
    let mut headers = "  -H \"Authorization: Bearer $KEY\"".to_owned();
    let parameters = operation.get("parameters").map(Json::items);
    for parameter in parameters.unwrap_or_default() {
        let name = parameter.text_of("name");
        if parameter.text_of("in") == "path" {
            let examples = parameter.at(&["schema", "examples"]).map(Json::items);
            let example = examples.unwrap_or_default().first().and_then(Json::text);
            address = address.replace(&format!("{{{name}}}"), example.unwrap_or_default());
        } else {
            let example = parameter.text_of("example");
            headers += &format!(" \\\n  -H \"{name}: {example}\"");
        }
    }
    if method == "get" {
        let text = format!("curl {address} \\\n{headers}");
        let name = "Call".to_owned();
        return vec![Example { name, text }];
    }
    let examples = media.and_then(|media| media.get("examples"));
    let examples = examples.into_iter().flat_map(Json::members);
    let shown = examples.map(|(_, example)| {
        let body = example.get("value").map(Json::pretty).unwrap_or_default();
        Example {
            name: example.text_of("summary").to_owned(),
            text: format!(
                "curl {address} \\\n{headers} \\\n  -H \"Content-Type: application/json\" \\\n  \
                 -d '{body}'"
            ),
        }
    });
    shown.collect()
}

/// What is sent for an event.
fn events(media: Option<&Json>) -> Vec<Example> {
    let example = media.and_then(|media| media.get("example"));
    let shown = example.map(|example| Example {
        name: "Body".to_owned(),
        text: example.pretty(),
    });
    shown.into_iter().collect()
}

/// The codes of a refusal.
fn codes(response: &Json) -> Vec<String> {
    let all = response.at(&["content", "application/json", "schema", "allOf"]);
    let all = all.map(Json::items).unwrap_or_default();
    let codes = all
        .iter()
        .find_map(|part| part.at(&["properties", "code", "enum"]));
    let codes = codes.map(Json::items).unwrap_or_default();
    codes
        .iter()
        .filter_map(Json::text)
        .map(str::to_owned)
        .collect()
}

/// Every error of every operation, once, by status.
fn errors(document: &Json) -> Vec<ErrorShown> {
    let items = document.get("paths").into_iter().flat_map(Json::members);
    let operations = items.flat_map(|(_, item)| item.members());
    let responses = operations.flat_map(|(_, operation)| {
        let responses = operation.get("responses").into_iter();
        responses.flat_map(Json::members)
    });
    let mut errors = Vec::<ErrorShown>::new();
    for (status, response) in responses.filter(|(_, response)| !codes(response).is_empty()) {
        let examples = response.at(&["content", "application/json", "examples"]);
        for (_, example) in examples.into_iter().flat_map(Json::members) {
            let Some(value) = example.get("value") else {
                continue;
            };
            let text = value.text_of("error");
            if errors.iter().any(|known| known.text == text) {
                continue;
            }
            errors.push(ErrorShown {
                status: status.to_owned(),
                code: value.text_of("code").to_owned(),
                text: text.to_owned(),
            });
        }
    }
    errors.sort_by(|one, other| one.status.cmp(&other.status));
    errors
}
