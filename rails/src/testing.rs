//! What the tests of the rails, and of what stands on them, share.

use std::sync::Mutex;

use chassis::testing::fake_server::{FakeServer, Reaction, ReceivedRequest, json};

/// MTN's network, which answers the token requests of both products itself, and the rest by `script`.
pub async fn with_tokens(
    script: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
) -> FakeServer {
    let minted = Mutex::new(0);
    FakeServer::start(move |seen| {
        let token_calls = ["POST /collection/token/", "POST /disbursement/token/"];
        if !token_calls.contains(&seen.call.as_str()) {
            return script(seen);
        }
        let mut minted = minted.lock().expect("nobody panics with it");
        *minted += 1;
        token(&format!("token-{minted}"), 3600)
    })
    .await
}

pub fn token(token: &str, expires_in: u32) -> Reaction {
    let body = format!(
        r#"{{"access_token":"{token}","token_type":"access_token","expires_in":{expires_in}}}"#
    );
    json(200, body)
}
