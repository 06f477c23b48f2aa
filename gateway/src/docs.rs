//! `GET /docs`: the API's document as a page for people. A single file that has no scripts and
//! loads nothing, built once from the document that `/api/openapi.json` serves.

use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY},
};
use sha2::{Digest as _, Sha256};
use yaml_serde::Value;

use crate::{
    api::openapi::{self, DOCUMENT},
    error::Error,
};

const STYLE: &str = include_str!("../assets/docs.css");

/// Marks what goes beyond the specification.
const ADDITIVE: &str = "x-additive";

/// Longer lists of values, such as all currencies, are left out because they help nobody.
const VALUES_SHOWN_MAX: usize = 20;

/// The page, its entity tag, and the policy that lets in its own style, embedded images and nothing
/// else.
static PAGE: LazyLock<Result<(String, String, HeaderValue), String>> = LazyLock::new(|| {
    let page = DocsPage::of(&openapi::resolved(&DOCUMENT, &DOCUMENT))
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
struct DocsPage {
    style: &'static str,
    title: String,
    introduction: Vec<RichText>,
    groups: Vec<Group>,
    errors: Vec<ErrorEntry>,
    /// The fields of an error's body.
    error_fields: Vec<Field>,
}

/// Operations, or events, that belong together.
struct Group {
    id: String,
    name: String,
    about: RichText,
    operations: Vec<Operation>,
}

struct Operation {
    id: String,
    /// POST or GET; empty for an event.
    method: String,
    path: String,
    name: String,
    is_deprecated: bool,
    is_additive: bool,
    about: Vec<RichText>,
    /// In the address and in headers.
    parameters: Vec<Field>,
    body: Vec<Field>,
    /// How to call it, or what is sent.
    examples: Vec<Example>,
    answers: Vec<DocumentedResponse>,
    /// How it can be refused.
    refusals: Vec<DocumentedError>,
}

struct Field {
    name: String,
    /// How deeply it is nested in other fields.
    depth: usize,
    is_required: bool,
    /// Beyond the specification, unlike what it is a part of.
    is_additive: bool,
    kind: String,
    values: Vec<NamedValue>,
    about: RichText,
}

struct NamedValue {
    text: String,
    is_additive: bool,
}

struct Example {
    name: String,
    text: String,
}

struct DocumentedResponse {
    status: String,
    about: RichText,
    headers: Vec<Field>,
    fields: Vec<Field>,
    examples: Vec<Example>,
}

struct DocumentedError {
    status: String,
    codes: Vec<String>,
}

struct ErrorEntry {
    status: String,
    code: String,
    text: String,
}

/// HTML of a text, with its `names` marked as code.
struct RichText(String);

impl RichText {
    fn of(text: &Value) -> Self {
        Self::marked(string(text))
    }

    fn paragraphs(text: &Value) -> Vec<Self> {
        let paragraphs = string(text).split("\n\n");
        paragraphs
            .filter(|text| !text.is_empty())
            .map(Self::marked)
            .collect()
    }

    fn marked(text: &str) -> Self {
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
}

impl DocsPage {
    fn of(document: &Value) -> Self {
        let groups = items(&document["tags"]).iter().map(|tag| Group {
            id: string(&tag["name"]).to_lowercase().replace(' ', "-"),
            name: text(&tag["name"]),
            about: RichText::of(&tag["description"]),
            operations: operations(document, &tag["name"]),
        });
        Self {
            style: STYLE,
            title: text(&document["info"]["title"]),
            introduction: RichText::paragraphs(&document["info"]["description"]),
            groups: groups.collect(),
            errors: errors(document),
            error_fields: fields(&document["components"]["schemas"]["Error"], 0),
        }
    }
}

/// The operations and events of one tag, in the document's order.
fn operations(document: &Value, tag: &Value) -> Vec<Operation> {
    let parts = ["paths", "webhooks"].into_iter();
    let addresses = parts.flat_map(|part| {
        members(&document[part]).map(move |(path, methods)| (part == "webhooks", path, methods))
    });
    let operations = addresses.flat_map(|(is_event, path, methods)| {
        members(methods).map(move |(method, it)| (if is_event { "" } else { method }, path, it))
    });
    operations
        .filter(|(_, _, operation)| items(&operation["tags"]).contains(tag))
        .map(|(method, path, operation)| Operation::of(method, path, operation))
        .collect()
}

impl Operation {
    fn of(method: &str, path: &str, operation: &Value) -> Self {
        let media = json_of(&operation["requestBody"]);
        let responses = || members(&operation["responses"]);
        Self {
            id: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            name: text(&operation["summary"]),
            is_deprecated: operation["deprecated"] == true,
            is_additive: operation[ADDITIVE] == true,
            about: RichText::paragraphs(&operation["description"]),
            parameters: items(&operation["parameters"])
                .iter()
                .map(Field::of_parameter)
                .collect(),
            body: fields(&media["schema"], 0),
            examples: match method {
                "" => vec![Example {
                    name: "Body".to_owned(),
                    text: pretty(&media["example"]),
                }],
                _ => calls(method, path, operation, media),
            },
            answers: responses()
                .filter(|(_, response)| codes(response).is_empty())
                .map(|(status, response)| DocumentedResponse::of(status, response))
                .collect(),
            refusals: responses()
                .filter(|(_, response)| !codes(response).is_empty())
                .map(|(status, response)| DocumentedError {
                    status: status.to_owned(),
                    codes: codes(response),
                })
                .collect(),
        }
    }
}

impl DocumentedResponse {
    fn of(status: &str, response: &Value) -> Self {
        let media = json_of(response);
        let examples = members(&media["examples"]).map(|(_, example)| Example {
            name: text(&example["summary"]),
            text: pretty(&example["value"]),
        });
        Self {
            status: status.to_owned(),
            about: RichText::of(&response["description"]),
            headers: members(&response["headers"])
                .map(|(name, header)| Field::of_header(name, header))
                .collect(),
            fields: fields(&media["schema"], 0),
            examples: examples.collect(),
        }
    }
}

impl Field {
    fn of(name: &str, schema: &Value, is_required: bool, depth: usize) -> Self {
        let values = items(&schema["enum"])
            .iter()
            .filter(|value| value.is_string());
        let named = values.map(|value| NamedValue {
            text: text(value),
            is_additive: items(&schema["x-additive-values"]).contains(value),
        });
        let mut values: Vec<NamedValue> = named.collect();
        if values.len() > VALUES_SHOWN_MAX {
            values.clear();
        }
        Self {
            name: name.to_owned(),
            depth,
            is_required,
            is_additive: schema[ADDITIVE] == true,
            kind: kind(schema),
            values,
            about: RichText::of(&schema["description"]),
        }
    }

    /// The field for a header, with the header's own description instead of its type's.
    fn of_header(name: &str, header: &Value) -> Self {
        Self {
            is_additive: header[ADDITIVE] == true,
            about: RichText::of(&header["description"]),
            ..Self::of(name, &header["schema"], header["required"] == true, 0)
        }
    }

    fn of_parameter(parameter: &Value) -> Self {
        let field = Self::of_header(string(&parameter["name"]), parameter);
        Self {
            kind: format!("{} ({})", field.kind, string(&parameter["in"])),
            ..field
        }
    }
}

/// The type with its limits, in words.
fn kind(schema: &Value) -> String {
    let types = match &schema["type"] {
        Value::Sequence(types) => types.as_slice(),
        only => std::slice::from_ref(only),
    };
    let only = types.iter().find(|one| **one != "null");
    let mut kind = only.map(text).unwrap_or_default();
    let limit = |name: &str| Some(&schema[name]).filter(|it| !it.is_null()).map(pretty);
    match (limit("minLength"), limit("maxLength")) {
        (Some(min), Some(max)) => kind += &format!(", {min} to {max} characters"),
        (None, Some(max)) => kind += &format!(", at most {max} characters"),
        _ => {}
    }
    if let Some(minimum) = limit("minimum") {
        kind += &format!(", at least {minimum}");
    }
    if let Some(minimum) = limit("exclusiveMinimum") {
        kind += &format!(", more than {minimum}");
    }
    if let Some(maximum) = limit("maximum") {
        kind += &format!(", at most {maximum}");
    }
    if types.iter().any(|one| one == "null") {
        kind += " or null";
    }
    if let Some(default) = schema["default"].as_str() {
        kind += &format!(", {default} if left out");
    }
    kind
}

/// The fields of an object, or of an array's objects, each followed by those inside it.
fn fields(schema: &Value, depth: usize) -> Vec<Field> {
    let object = schema.get("items").unwrap_or(schema);
    let required = items(&object["required"]);
    let mut found = Vec::new();
    for (name, property) in members(&object["properties"]) {
        let is_required = required.iter().any(|one| one == name);
        found.push(Field::of(name, property, is_required, depth));
        found.extend(fields(property, depth + 1));
    }
    found
}

/// How to call an operation, one call for each example.
fn calls(method: &str, path: &str, operation: &Value, media: &Value) -> Vec<Example> {
    let mut address = path.to_owned();
    let mut headers = "  -H \"Authorization: Bearer $KEY\"".to_owned();
    for parameter in items(&operation["parameters"]) {
        let name = string(&parameter["name"]);
        if parameter["in"] == "path" {
            let example = string(&parameter["schema"]["examples"][0]);
            address = address.replace(&format!("{{{name}}}"), example);
        } else {
            let example = string(&parameter["example"]);
            headers += &format!(" \\\n  -H \"{name}: {example}\"");
        }
    }
    let call = format!("curl \"$API{address}\" \\\n{headers}");
    if method == "get" {
        let name = "Call".to_owned();
        return vec![Example { name, text: call }];
    }
    let shown = members(&media["examples"]).map(|(_, example)| {
        let body = pretty(&example["value"]);
        let body = format!("-H \"Content-Type: application/json\" \\\n  -d '{body}'");
        Example {
            name: text(&example["summary"]),
            text: format!("{call} \\\n  {body}"),
        }
    });
    shown.collect()
}

/// The error codes of a response; none if it is not an error.
fn codes(response: &Value) -> Vec<String> {
    let parts = items(&json_of(response)["schema"]["allOf"]).iter();
    let codes = parts.flat_map(|part| items(&part["properties"]["code"]["enum"]));
    codes.map(text).collect()
}

/// Every distinct error of all operations, sorted by status.
fn errors(document: &Value) -> Vec<ErrorEntry> {
    let operations = members(&document["paths"]).flat_map(|(_, methods)| members(methods));
    let responses = operations.flat_map(|(_, operation)| members(&operation["responses"]));
    let mut errors = Vec::<ErrorEntry>::new();
    for (status, response) in responses.filter(|(_, response)| !codes(response).is_empty()) {
        for (_, example) in members(&json_of(response)["examples"]) {
            let said = string(&example["value"]["error"]);
            if errors.iter().all(|known| known.text != said) {
                errors.push(ErrorEntry {
                    status: status.to_owned(),
                    code: text(&example["value"]["code"]),
                    text: said.to_owned(),
                });
            }
        }
    }
    errors.sort_by(|one, other| one.status.cmp(&other.status));
    errors
}

/// The JSON media type of a request or response.
fn json_of(body: &Value) -> &Value {
    &body["content"]["application/json"]
}

/// The members of an object, in order; none for any other value.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let members = value.as_mapping().into_iter().flatten();
    members.map(|(name, member)| (string(name), member))
}

/// The items of an array; none for any other value.
fn items(value: &Value) -> &[Value] {
    value.as_sequence().map(Vec::as_slice).unwrap_or_default()
}

/// A string; empty for any other value.
fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn text(value: &Value) -> String {
    string(value).to_owned()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("the document is JSON")
}
