//! The service as its own process, which can be killed and has its own environment.

use std::process::Stdio;

use chassis::grpc;
use db::testing::TestDb;
use proto::webhooks::webhooks_client::WebhooksClient;
use tokio::process::{Child, Command};

use crate::world::{Client, arguments, connect, until};

pub struct Process {
    pub client: Client,
    child: Child,
}

impl Process {
    pub async fn start(database: &TestDb, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        // A port that was free a moment ago, and that nobody else on this machine asks for by
        // number.
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--listen={address}"));
        let child = Command::new(env!("CARGO_BIN_EXE_webhooks-svc"))
            .args(&arguments(&database.url, &flags)[1..])
            .envs(environment.iter().copied())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let url = format!("http://{address}");
        until("it serves", async || grpc::is_serving(&url).await).await;
        let client = WebhooksClient::new(connect(&url));
        Self { client, child }
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
