//! The frame of every process, tested through real sockets.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod admin;
mod grpc;
mod http;
mod operators;
mod service;
mod tls;

use std::future::Future;

use chassis::testing::PATIENCE;

/// The future's output. Fails a test that would wait for ever.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let output = tokio::time::timeout(PATIENCE, future).await;
    output.expect("it should have happened by now")
}
