//! The demo merchant's person: invited as an operator would, by a link that is taken from the mailbox.

use std::time::Duration;

use anyhow::Context as _;
use chassis::{grpc, http};
use proto::merchants::{
    InvitePersonRequest, ResetPasswordRequest, people_client::PeopleClient,
    people_operations_client::PeopleOperationsClient,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::ready::{DemoLogin, Ready};

/// Longest wait for the mail.
const MAIL_MAX: Duration = Duration::from_secs(20);

/// Interval of looking into the mailbox.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A mail in the simulator's mailbox.
#[derive(Deserialize)]
struct Caught {
    links: Vec<String>,
}

pub async fn let_in(merchants: &grpc::Channel, ready: &Ready) -> anyhow::Result<DemoLogin> {
    let mut operations = PeopleOperationsClient::new(merchants.clone());
    let invite = |email: &str| InvitePersonRequest {
        merchant_id: ready.demo.merchant_id.clone(),
        email: email.to_owned(),
    };
    let mut email = "demo@example.com".to_owned();
    if let Err(status) = operations.invite_person(invite(&email)).await {
        // Of a demo merchant whose file was lost.
        let is_taken = grpc::reason(&status).as_deref() == Some(grpc::Reason::EmailTaken.code());
        anyhow::ensure!(is_taken, status);
        email = format!("demo-{}@example.com", Uuid::new_v4().simple());
        operations.invite_person(invite(&email)).await?;
    }
    let mailbox = format!("{}.json?to={email}", ready.mail);
    let mailed = tokio::time::timeout(MAIL_MAX, token(&mailbox));
    let token = mailed.await.context("no invitation arrives")??;
    let password = Uuid::new_v4().simple().to_string();
    let request = ResetPasswordRequest {
        token_sha256: Sha256::digest(token).to_vec(),
        password: password.clone(),
        origin: None,
    };
    PeopleClient::new(merchants.clone())
        .reset_password(request)
        .await?;
    Ok(DemoLogin { email, password })
}

/// The secret of the newest invitation in this mailbox, once there is one.
async fn token(mailbox: &str) -> anyhow::Result<String> {
    let client = http::client(Duration::from_secs(5))?;
    loop {
        let mails: Vec<Caught> = client.get(mailbox).send().await?.json().await?;
        let mut links = mails.iter().flat_map(|mail| &mail.links);
        let token = links.find_map(|link| Some(link.split_once("/reset/")?.1));
        if let Some(token) = token {
            return Ok(token.to_owned());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
