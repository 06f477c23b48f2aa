//! What goes beyond the specification is marked as such, in the document and on its page.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    gateway::Gateway,
    openapi::{DOCUMENT, SOURCE, followed, routes_of},
};

/// The specification's fields of each shape that it describes.
const SPECIFIED: [(&str, &str); 12] = [
    // Spec 2.1, 4.1 and 4.2.
    (
        "InitiateRequest",
        "amount currency description redirect_url customer_email customer_name customer_phone",
    ),
    (
        "SessionCreated",
        "session_id payment_url amount currency expires_at warnings",
    ),
    (
        "SessionShown",
        "session_id status amount currency description expires_at created_at transaction",
    ),
    // Spec 2.2.
    (
        "TransactionShown",
        "transaction_id tx_id_display status method amount currency failure_reason",
    ),
    // Spec 2.3, 4.3, 4.4 and 4.5.
    (
        "ChargeRequest",
        "amount mobile_number provider currency description payer_email payer_name",
    ),
    ("OtpRequest", "reference otp"),
    (
        "ChargeReply",
        "reference transaction_id session_id status amount currency message",
    ),
    (
        "ChargeShown",
        "reference transaction_id session_id status amount currency method failure_reason \
         created_at updated_at",
    ),
    // Spec 6.1.
    ("PaymentEvent", "id type created_at data"),
    (
        "PaymentEventData",
        "tx_id_display session_id amount currency method status failure_reason",
    ),
    ("PayoutEvent", "id type created_at data"),
    // Spec 7.
    ("Error", "error code kyc_status"),
];

fn document() -> Value {
    yaml_serde::from_str(SOURCE).expect("YAML")
}

fn is_marked(part: &Value) -> bool {
    part["x-additive"] == true
}

fn members(part: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let members = part.as_object().into_iter().flatten();
    members.map(|(name, member)| (name.as_str(), member))
}

/// Every operation of merchants, and every webhook.
fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    let paths = ["paths", "webhooks"].map(|part| members(&document[part]));
    let methods = paths.into_iter().flatten();
    let methods = methods.flat_map(|(_, methods)| members(methods));
    methods.map(|(_, operation)| operation)
}

/// The names of those members that are not marked, if the mark is what tells them apart.
fn unmarked<'a>(parts: impl Iterator<Item = (&'a str, &'a Value)>) -> BTreeSet<&'a str> {
    let unmarked = parts.filter(|(_, part)| !is_marked(part));
    unmarked.map(|(name, _)| name).collect()
}

#[test]
fn exactly_the_operations_beyond_the_specification_are_marked() {
    let document = document();
    let (mut marked, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (path, methods) in members(&document["paths"]) {
        for (_, operation) in members(methods) {
            match is_marked(operation) {
                true => marked.insert(path),
                false => others.insert(path),
            };
        }
    }
    assert_eq!(marked, routes_of("additive"));
    assert_eq!(others, routes_of("specified"));
    let events = members(&document["webhooks"]).map(|(name, event)| (name, &event["post"]));
    let specified = [
        "payment.success",
        "payment.failed",
        "payout.success",
        "payout.failed",
    ];
    assert_eq!(unmarked(events), specified.into());
}

#[test]
fn exactly_the_fields_beyond_the_specification_are_marked() {
    let document = document();
    for (shape, fields) in SPECIFIED {
        let properties = &document["components"]["schemas"][shape]["properties"];
        let fields: BTreeSet<&str> = fields.split_whitespace().collect();
        assert_eq!(unmarked(members(properties)), fields, "{shape}");
    }
    // Spec 4.1 warns of these two.
    let warnings = &document["components"]["schemas"]["WarningCode"];
    let all = warnings["enum"].as_array().expect("codes").iter();
    let beyond = warnings["x-additive-values"].as_array().expect("codes");
    let specified: Vec<&Value> = all.filter(|code| !beyond.contains(code)).collect();
    assert_eq!(
        specified,
        ["CUSTOMER_EMAIL_OMITTED", "CUSTOMER_PHONE_OMITTED"]
    );
}

#[test]
fn exactly_the_parameters_and_headers_beyond_the_specification_are_marked() {
    let document = document();
    for operation in operations(&document).filter(|operation| !is_marked(operation)) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = followed(&document, parameter);
            // Of the others, it has only the signature (spec 6.3).
            let is_specified =
                parameter["in"] == "path" || parameter["name"] == "X-Service-Signature";
            assert_eq!(is_marked(&parameter), !is_specified, "{parameter}");
        }
        for (_, response) in members(&operation["responses"]) {
            let response = followed(&document, response);
            for (name, header) in members(&response["headers"]) {
                let header = followed(&document, header);
                assert_eq!(is_marked(&header), name != "Retry-After", "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_document_and_the_page_show_the_marks() {
    let gateway = Gateway::start().await;
    let served = gateway.request("GET", DOCUMENT).send().await.json();
    assert_eq!(
        served["paths"]["/api/v1/payouts"]["post"]["x-additive"],
        true
    );
    let page = gateway.request("GET", "/docs").send().await;
    let page = page.text();
    let document = document();
    for operation in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        let (_, title) = page
            .split_once(&format!("<h3 id=\"{id}-title\">"))
            .expect("its title");
        let (title, _) = title.split_once("</h3>").expect("its end");
        assert_eq!(
            title.contains(">additive<"),
            is_marked(operation),
            "{title}"
        );
    }
    let lines = |name: &str| {
        let named = format!("<p><code>{name}</code> <span class=\"kind\">");
        let lines = page.lines().filter(move |line| line.contains(&named));
        lines
            .map(|line| line.contains(">additive<"))
            .collect::<BTreeSet<_>>()
    };
    for beyond in [
        "settled_amount",
        "Idempotency-Key",
        "session_status",
        "wait",
        "X-Request-Id",
    ] {
        assert_eq!(lines(beyond), [true].into(), "{beyond}");
    }
    for specified in ["payment_url", "mobile_number", "otp", "X-Service-Signature"] {
        assert_eq!(lines(specified), [false].into(), "{specified}");
    }
    let value = "<code>CURRENCY_WITHOUT_RATE</code> <span class=\"mark extra\">additive</span>";
    assert!(page.contains(value));
}
