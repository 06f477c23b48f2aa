//! Callbacks of the rails.

use chassis::testing::until;
use proto::charges::{ReceiveCallbackRequest, ReceiveCallbackResponse};
use tonic::Code;

use crate::{
    gateway::{Gateway, NOBODY},
    services::{rails, refusal},
};

#[tokio::test]
async fn a_callback_is_passed_on_byte_for_byte() {
    let gateway = Gateway::start().await;
    for (method, rail) in [("POST", "momo"), ("PUT", "momo"), ("POST", "paystack")] {
        let body = b"{\"status\" : \"SUCCESSFUL\"}\r\n\xff\x00";
        let answer = gateway
            .request(method, &format!("/rails/{rail}/t0k%65n"))
            .header("X-Paystack-Signature", "00ff")
            .body(body)
            .send()
            .await;
        assert_eq!((answer.status, answer.body.len()), (200, 0));
        let passed_on = gateway.services.receive_callback.asked().pop();
        let signature = ("x-paystack-signature".to_owned(), "00ff".to_owned());
        let expected = ReceiveCallbackRequest {
            rail: rail.to_owned(),
            token: "t0ken".to_owned(),
            body: body.to_vec(),
            // For a charges-svc of the version before, whatever the rail.
            signature: Some("00ff".to_owned()),
            headers: (rail == "paystack")
                .then_some(signature)
                .into_iter()
                .collect(),
        };
        assert_eq!(passed_on, Some(expected));
    }
    assert!(
        gateway.services.authenticate.asked().is_empty(),
        "rails have no key"
    );
}

#[tokio::test]
async fn an_unsigned_and_empty_callback_is_passed_on_too() {
    let gateway = Gateway::start().await;
    let answer = gateway.request("PUT", "/rails/momo/token").send().await;
    assert_eq!(answer.status, 200);
    let passed_on = gateway.services.receive_callback.asked_once();
    assert!(passed_on.body.is_empty() && passed_on.headers.is_empty());
}

#[tokio::test]
async fn a_callback_is_not_acknowledged_until_its_rails_headers_are_known() {
    let gateway = Gateway::start().await;
    let unavailable = |_| Err(refusal(Code::Unavailable, "STARTING"));
    gateway.services.list_rails.answers(unavailable);
    let call = async || {
        let request = gateway.request("POST", "/rails/paystack/token");
        request.header("X-Paystack-Signature", "00ff").send().await
    };
    call().await.assert_error(503, "UNAVAILABLE");
    assert!(gateway.services.receive_callback.asked().is_empty());
    gateway.services.list_rails.answers(|_| Ok(rails()));
    assert_eq!(call().await.status, 200);
    let passed_on = gateway.services.receive_callback.asked_once();
    assert_eq!(passed_on.headers["x-paystack-signature"], "00ff");
}

#[tokio::test]
async fn charges_svc_is_asked_about_its_rails_once_for_many_callbacks() {
    let gateway = Gateway::start().await;
    for _ in 0..3 {
        gateway.request("POST", "/rails/momo/token").send().await;
    }
    assert_eq!(gateway.services.list_rails.asked().len(), 1);
}

#[tokio::test]
async fn a_charges_svc_that_lists_no_rails_yet_still_gets_callbacks() {
    let gateway = Gateway::start().await;
    let before = |_| Err(tonic::Status::unimplemented("the version before"));
    gateway.services.list_rails.answers(before);
    let request = gateway.request("POST", "/rails/paystack/token");
    let answer = request.header("X-Paystack-Signature", "00ff").send().await;
    assert_eq!(answer.status, 200);
    let passed_on = gateway.services.receive_callback.asked_once();
    assert!(passed_on.headers.is_empty());
    assert_eq!(passed_on.signature.as_deref(), Some("00ff"));
}

#[tokio::test]
async fn what_charges_svc_refuses_is_refused() {
    let gateway = Gateway::start().await;
    for (code, reason, status, told) in [
        (Code::NotFound, "CALLBACK_NOT_FOUND", 404, "NOT_FOUND"),
        (
            Code::Unauthenticated,
            "CALLBACK_SIGNATURE_INVALID",
            401,
            "INVALID_SIGNATURE",
        ),
        (Code::Unavailable, "STORE_UNAVAILABLE", 503, "UNAVAILABLE"),
        (Code::Internal, "", 500, "INTERNAL_ERROR"),
    ] {
        let answer = move |_| Err(refusal(code, reason));
        gateway.services.receive_callback.answers(answer);
        let answer = gateway
            .request("POST", "/rails/momo/token")
            .body("{}")
            .send()
            .await;
        answer.assert_error(status, told);
    }
}

#[tokio::test]
async fn a_callback_is_not_acknowledged_while_charges_svc_is_away() {
    let gateway = Gateway::start_with(&["--charges-url", NOBODY]).await;
    let answer = gateway
        .request("POST", "/rails/momo/token")
        .body("{}")
        .send()
        .await;
    answer.assert_error(503, "UNAVAILABLE");
}

#[tokio::test]
async fn a_callback_of_more_than_64_kib_is_refused() {
    let gateway = Gateway::start().await;
    let send = async |length| {
        let body = vec![b'x'; length];
        gateway
            .request("POST", "/rails/momo/token")
            .body(body)
            .send()
            .await
    };
    assert_eq!(send(64 * 1024).await.status, 200);
    send(64 * 1024 + 1)
        .await
        .assert_error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(gateway.services.receive_callback.asked().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_a_callback_address_is_unknown_without_asking() {
    let gateway = Gateway::start().await;
    let long = "a".repeat(129);
    for path in [
        "/rails/momo/%00",
        "/rails/momo/token%00",
        "/rails/momo/t%20oken",
        "/rails/momo/t%C3%B6ken",
        "/rails/momo/%FF",
        "/rails/momo/to%2Fken",
        "/rails/mo%00mo/token",
        &format!("/rails/momo/{long}"),
        &format!("/rails/{long}/token"),
    ] {
        let answer = gateway.request("POST", path).body("{}").send().await;
        answer.assert_error(404, "NOT_FOUND");
    }
    assert!(gateway.services.receive_callback.asked().is_empty());
    let longest = format!("/rails/momo/{}", &long[1..]);
    let answer = gateway.request("POST", &longest).body("{}").send().await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn one_address_has_a_limited_number_of_unknown_callbacks_and_known_ones_still_pass() {
    let gateway = Gateway::start_with(&["--callback-failures-per-minute", "3"]).await;
    gateway.services.receive_callback.answers(|request| {
        let is_known = request.token == "known";
        let found = is_known.then(ReceiveCallbackResponse::default);
        found.ok_or_else(|| refusal(Code::NotFound, "CALLBACK_NOT_FOUND"))
    });
    let call = async |token: &str| {
        let path = format!("/rails/momo/{token}");
        gateway.request("POST", &path).body("{}").send().await
    };
    for token in ["unknown", "%00"] {
        until("the address is told to wait", async || {
            let answer = call(token).await;
            let waits = answer.status == 429;
            if waits {
                answer.assert_error(429, "RATE_LIMITED");
                let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=60).contains(&wait));
            }
            waits
        })
        .await;
        assert_eq!(call("known").await.status, 200);
    }
}
