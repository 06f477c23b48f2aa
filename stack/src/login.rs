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

use crate::{
    ready::{DemoLogin, Ready},
    services::Services,
};

/// Longest wait for the mail.
const MAIL_MAX: Duration = Duration::from_secs(20);

/// Interval of looking into the mailbox.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The subject of the mail that tells of a password that was chosen by a link.
const NOTICE: &str = "Your password was changed";

/// A mail in the simulator's mailbox.
#[derive(Deserialize)]
struct Caught {
    subject: String,
    links: Vec<String>,
}

pub async fn let_in(services: &Services, ready: &Ready) -> anyhow::Result<DemoLogin> {
    let mut operations = PeopleOperationsClient::new(services.merchants_operators.clone());
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
    let invitation = |mails: &[Caught]| {
        let mut links = mails.iter().flat_map(|mail| &mail.links);
        links.find_map(|link| Some(link.split_once("/reset/")?.1.to_owned()))
    };
    let token = mailed(&mailbox, invitation).await?;
    let password = Uuid::new_v4().simple().to_string();
    let request = ResetPasswordRequest {
        token_sha256: Sha256::digest(token).to_vec(),
        password: password.clone(),
        origin: None,
    };
    let mut people = PeopleClient::new(services.merchants.clone());
    people.reset_password(request).await?;
    // The notice of it belongs to the start, too, and not to what the terminal then tells.
    let notice = |mails: &[Caught]| mails.iter().find(|mail| mail.subject == NOTICE).map(|_| ());
    mailed(&mailbox, notice).await?;
    Ok(DemoLogin { email, password })
}

/// What is wanted of the mails in this mailbox, once it is there.
async fn mailed<T>(mailbox: &str, wanted: impl Fn(&[Caught]) -> Option<T>) -> anyhow::Result<T> {
    let client = http::client(Duration::from_secs(5))?;
    let looking = async {
        loop {
            let mails: Vec<Caught> = client.get(mailbox).send().await?.json().await?;
            if let Some(found) = wanted(&mails) {
                return Ok(found);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let found = tokio::time::timeout(MAIL_MAX, looking).await;
    found.context("no mail arrives for the dashboard's login")?
}
