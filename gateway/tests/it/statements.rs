//! Statements are passed on as they are.

use proto::charges::{ListStatementKeysResponse, StatementFormat, StatementKey};
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    gateway::Gateway,
    services::{merchant, refusal},
};

const DAY: &str = "/api/v1/statements/2026-11-24";

async fn with_statement() -> Gateway {
    let gateway = Gateway::start().await;
    let pieces = vec![Ok("{\"format\":"), Ok("\"x\"}\n")];
    gateway
        .services
        .read_statement
        .answers(move |_| Ok(pieces.clone()));
    gateway
}

#[tokio::test]
async fn a_statement_is_passed_on_byte_for_byte() {
    let gateway = with_statement().await;
    let answer = gateway.get(DAY).send().await;
    // In the chunks of HTTP/1.1, each with its length before it.
    let pieces = "A\r\n{\"format\":\r\n5\r\n\"x\"}\n\r\n0\r\n\r\n";
    assert_eq!((answer.status, answer.text()), (200, pieces));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let asked = gateway.services.read_statement.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(asked.day, "2026-11-24");
    assert_eq!(asked.format(), StatementFormat::Json);
}

#[tokio::test]
async fn csv_is_for_whoever_asks_for_it() {
    use StatementFormat::{Csv, Json};
    let gateway = with_statement().await;
    for (query, accept, format) in [
        ("", "text/csv", Csv),
        ("", "TEXT/CSV; charset=utf-8, */*;q=0.1", Csv),
        ("", "application/json, text/csv", Json),
        ("", "*/*", Json),
        ("", "text/csvx", Json),
        ("?format=csv", "*/*", Csv),
        ("?format=csv", "application/json", Csv),
        ("?format=json", "text/csv", Json),
    ] {
        let request = gateway.get(&format!("{DAY}{query}"));
        let answer = request.header("accept", accept).send().await;
        let content_type = match format {
            Csv => "text/csv; charset=utf-8",
            _ => "application/json",
        };
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{query} {accept}"
        );
        let asked = gateway.services.read_statement.asked();
        assert_eq!(asked.last().unwrap().format(), format, "{query} {accept}");
    }
}

#[tokio::test]
async fn a_day_or_format_that_is_none_is_named() {
    let gateway = with_statement().await;
    for (path, field) in [
        ("/api/v1/statements/2026-02-30", "day"),
        ("/api/v1/statements/yesterday", "day"),
        ("/api/v1/statements/2026-11-24%00", "day"),
        ("/api/v1/statements/2026-11-24?format=xml", "format"),
        (
            "/api/v1/statements/2026-11-24?format=csv&format=csv",
            "format",
        ),
    ] {
        let answer = gateway.get(path).send().await;
        answer.assert_error(400, "VALIDATION_ERROR");
        assert_eq!(answer.json()["fields"][0]["field"], field, "{path}");
    }
    assert!(gateway.services.read_statement.asked().is_empty());
}

#[tokio::test]
async fn what_there_is_no_statement_of_is_said() {
    let gateway = Gateway::start().await;
    gateway.get(DAY).send().await.assert_error(404, "NOT_FOUND");
    for (code, reason, status, shown) in [
        (
            Code::FailedPrecondition,
            "STATEMENT_NOT_READY",
            404,
            "STATEMENT_NOT_READY",
        ),
        (
            Code::Unavailable,
            "STATEMENT_KEY_MISSING",
            503,
            "UNAVAILABLE",
        ),
        (Code::Internal, "INTERNAL", 500, "INTERNAL_ERROR"),
    ] {
        let refused = refusal(code, reason);
        gateway
            .services
            .read_statement
            .answers(move |_| Err(refused.clone()));
        gateway.get(DAY).send().await.assert_error(status, shown);
    }
    // Before the first piece, a failure is still an answer.
    let failed = vec![Err(Status::internal("the lines do not fit"))];
    gateway
        .services
        .read_statement
        .answers(move |_| Ok(failed.clone()));
    gateway
        .get(DAY)
        .send()
        .await
        .assert_error(500, "INTERNAL_ERROR");
}

#[tokio::test]
async fn the_keys_are_published() {
    let gateway = Gateway::start().await;
    gateway.services.list_statement_keys.answers(|_| {
        Ok(ListStatementKeysResponse {
            keys: vec![StatementKey {
                key_id: "aa".to_owned(),
                public_key: "bb".to_owned(),
            }],
        })
    });
    let answer = gateway.get("/api/v1/statements/keys").send().await;
    let expected = json!({ "keys": [{ "key_id": "aa", "public_key": "bb" }] });
    assert_eq!((answer.status, answer.json()), (200, expected));
}
