//! The service with a mail server and a clock that can be moved, and somebody at a browser.

use std::time::Duration;

use chassis::{clock::Clock, testing::ServedService};
use clap::Parser as _;
use db::{Db, testing::TestDb};
use merchants_svc::config::Config;
use proto::merchants::{
    Action, Activity, ChangeEmailRequest, ConfirmRequest, GetLoginRequest, ListActivityRequest,
    LogInRequest, LogInResponse, Login, NoteActivityRequest, Origin, RequestEmailChangeRequest,
    RequestResetRequest, ResetPasswordRequest, SignUpRequest, VerifyEmailRequest,
    confirm_request::Proof, people_client::PeopleClient,
};
use sha2::{Digest as _, Sha256};
use tonic::{Response, Status};
use uuid::Uuid;

use crate::mail_server::MailServer;

pub const PASSWORD: &str = "plantain at the harbour";
pub const OTHER_PASSWORD: &str = "cassava by the lagoon";
pub const MINUTE: Duration = Duration::from_secs(60);

pub type People = PeopleClient<chassis::grpc::Channel>;

pub struct Browser {
    pub people: People,
    pub mail: MailServer,
    pub clock: Clock,
    pub service: ServedService,
    pub database: TestDb,
    pub db: Db,
}

impl Browser {
    pub async fn start() -> Self {
        let file = std::env::temp_dir().join(format!("clock-{}", Uuid::new_v4()));
        let clock = Clock::travelling(file).unwrap();
        let database = TestDb::new("merchants-svc").await;
        Self::start_with(MailServer::start().await, clock, database).await
    }

    async fn start_with(mail: MailServer, clock: Clock, database: TestDb) -> Self {
        let config = Config::parse_from([
            "merchants-svc",
            "--database-url",
            &database.url,
            "--smtp-url",
            &mail.url,
            "--mail-from=Payments <no-reply@pay.test>",
            "--dashboard-url=http://dash.test:8082",
        ]);
        let service = ServedService::start(|sockets, shutdown| {
            merchants_svc::serve(config, sockets, clock.clone(), shutdown)
        })
        .await;
        Self {
            people: PeopleClient::new(service.channel()),
            mail,
            clock,
            db: database.connect().await,
            service,
            database,
        }
    }

    /// Ends the service as a crash would, and starts another once its leases are over.
    pub async fn crash(self) -> Self {
        self.service.crash().await;
        self.run("update mails set lease_until = null").await;
        self.db.close().await;
        Self::start_with(self.mail, self.clock, self.database).await
    }

    pub async fn run(&self, statement: &'static str) {
        let mut conn = self.db.write().await.unwrap();
        conn.sql(statement).run().await.unwrap();
    }

    pub async fn count(&self, statement: &'static str) -> i64 {
        let mut conn = self.db.read().await.unwrap();
        conn.sql(statement).one::<(i64,)>().await.unwrap().0
    }

    pub async fn wait(&self, time: Duration) {
        self.clock.advance(time).await.unwrap();
    }

    pub async fn sign_up(&mut self, email: &str) {
        let request = SignUpRequest {
            business_name: "Ama's Shop".to_owned(),
            email: email.to_owned(),
            password: PASSWORD.to_owned(),
            origin: origin(),
        };
        self.people.sign_up(request).await.unwrap();
    }

    /// Signs up, verifies the address and logs in.
    pub async fn enter(&mut self, email: &str) -> String {
        self.sign_up(email).await;
        let link = self.mail.newest(email, 1).await.token("verify-email");
        self.verify_email(&link).await.unwrap();
        self.log_in(email).await
    }

    /// What this login's person does, to be noted.
    pub async fn note(&self, token: &str, action: Action, object: &str) -> NoteActivityRequest {
        let login = self.who(token).await.unwrap();
        NoteActivityRequest {
            merchant_id: login.merchant.unwrap().merchant_id,
            person_id: login.person.unwrap().person_id,
            action: action.into(),
            object: object.to_owned(),
            origin: origin(),
            form: String::new(),
        }
    }

    pub async fn verify_email(&mut self, token: &str) -> Result<String, Status> {
        self.verify_email_with(token, PASSWORD).await
    }

    pub async fn verify_email_with(
        &mut self,
        token: &str,
        password: &str,
    ) -> Result<String, Status> {
        let request = VerifyEmailRequest {
            token_sha256: sha256(token),
            password: password.to_owned(),
            origin: origin(),
        };
        let verified = self.people.verify_email(request).await;
        verified.map(|verified| verified.into_inner().email)
    }

    pub async fn try_log_in(&self, email: &str, password: &str) -> Result<LogInResponse, Status> {
        self.try_log_in_after("", email, password).await
    }

    /// In a browser that had a login with this token before; with none if it is empty.
    pub async fn try_log_in_after(
        &self,
        earlier: &str,
        email: &str,
        password: &str,
    ) -> Result<LogInResponse, Status> {
        let earlier_token_sha256 = match earlier {
            "" => Vec::new(),
            token => sha256(token),
        };
        let request = LogInRequest {
            email: email.to_owned(),
            password: password.to_owned(),
            origin: origin(),
            earlier_token_sha256,
        };
        let begun = self.people.clone().log_in(request).await;
        begun.map(Response::into_inner)
    }

    /// The token of a new login.
    pub async fn log_in(&self, email: &str) -> String {
        let begun = self.try_log_in(email, PASSWORD).await.unwrap();
        assert!(!begun.needs_code);
        begun.token
    }

    pub async fn who(&self, token: &str) -> Result<Login, Status> {
        let request = GetLoginRequest {
            token_sha256: sha256(token),
        };
        let login = self.people.clone().get_login(request).await;
        login.map(Response::into_inner)
    }

    pub async fn person_id(&self, token: &str) -> String {
        self.who(token).await.unwrap().person.unwrap().person_id
    }

    pub async fn confirm(&mut self, token: &str, proof: Proof) -> Result<Login, Status> {
        let request = ConfirmRequest {
            token_sha256: sha256(token),
            proof: Some(proof),
            origin: origin(),
        };
        self.people.confirm(request).await.map(Response::into_inner)
    }

    pub async fn ask_reset(&mut self, email: &str) -> Result<(), Status> {
        let request = RequestResetRequest {
            email: email.to_owned(),
            origin: origin(),
        };
        self.people.request_reset(request).await.map(drop)
    }

    pub async fn reset(&mut self, token: &str, password: &str) -> Result<(), Status> {
        let request = ResetPasswordRequest {
            token_sha256: sha256(token),
            password: password.to_owned(),
            origin: origin(),
        };
        self.people.reset_password(request).await.map(drop)
    }

    pub async fn ask_email(&mut self, token: &str, email: &str) -> Result<(), Status> {
        let request = RequestEmailChangeRequest {
            person_id: self.person_id(token).await,
            email: email.to_owned(),
            origin: origin(),
        };
        self.people.request_email_change(request).await.map(drop)
    }

    pub async fn change_email(&mut self, link: &str, password: &str) -> Result<String, Status> {
        let request = ChangeEmailRequest {
            token_sha256: sha256(link),
            password: password.to_owned(),
            origin: origin(),
        };
        let changed = self.people.change_email(request).await;
        changed.map(|changed| changed.into_inner().email)
    }

    /// What was done to the merchant of this login, newest first.
    pub async fn activities(&mut self, token: &str) -> Vec<Activity> {
        let request = ListActivityRequest {
            merchant_id: self.who(token).await.unwrap().merchant.unwrap().merchant_id,
            ..Default::default()
        };
        let listed = self.people.list_activity(request).await.unwrap();
        listed.into_inner().activities
    }
}

pub fn sha256(token: &str) -> Vec<u8> {
    Sha256::digest(token).to_vec()
}

pub fn origin() -> Option<Origin> {
    Some(Origin {
        address: "192.0.2.7".to_owned(),
        user_agent: "Firefox on Ama's phone".to_owned(),
    })
}
