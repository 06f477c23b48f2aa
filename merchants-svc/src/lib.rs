//! Who a merchant is: verification, API keys, and the people who use the dashboard.
//!
//! Owns the database `merchants`. Promises that the secret of a key, a login or a link is shown once
//! and stored nowhere, only its SHA-256; that whatever is revoked or changed here holds for the very
//! next [`Authenticate`] call; and that a person is mailed about everything that they would want to
//! know if it was somebody else.
//!
//! [`Authenticate`]: proto::merchants::merchants_server::Merchants::authenticate

mod activity;
mod approvals;
mod business;
mod business_form;
pub mod config;
mod error;
mod grpc;
mod last_uses;
mod letter;
mod link;
mod login;
mod mail;
mod merchant;
mod notice;
mod password;
mod person;
mod post;
mod service;
mod store;
mod token;
mod totp;
mod tries;
mod upkeep;

use chassis::{
    clock::Clock,
    config::SettingsError,
    grpc::{
        Caller::{ChargesSvc, Gateway, Payctl, WebhooksSvc},
        Door, Doors, Sockets,
    },
    ids::PersonId,
    sealed::{Keyring, SealedSecret, SecretError},
    shutdown::Shutdown,
};
use db::{Db, Frame, Schema};
use proto::merchants::{
    business_reviews_server::BusinessReviewsServer, merchant_account_server::MerchantAccountServer,
    merchant_operations_server::MerchantOperationsServer, merchants_server::MerchantsServer,
    notices_server::NoticesServer, people_operations_server::PeopleOperationsServer,
    people_server::PeopleServer,
};
use uuid::Uuid;

use approvals::Approvals;
use config::Config;
use grpc::{Grpc, people::PeopleGrpc};
use last_uses::{LastUses, WriteLastUses};
use password::Hasher;
use post::Post;
use service::{Service, people::People};
use upkeep::Upkeep;

/// The schema that `migrate` applies and that serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
    release_leases: &[store::mails::RELEASE_LEASES],
};

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown).await?;
    let people = begin_people(&config, &mut frame).await?;
    let approvals_worker = frame.clock.worker(approvals::WORK);
    let service = Service {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        mode: config.service.mode,
        last_uses: LastUses::default(),
        approvals: approvals_worker.alarm(),
    };
    let last_uses = WriteLastUses {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        uses: service.last_uses.clone(),
        rests_until: frame.clock.now(),
    };
    frame.work(frame.clock.worker(last_uses::WORK), last_uses);
    frame.work(approvals_worker, Approvals(service.clone()));
    if sockets.admin.is_some() {
        frame.show_oldest("mails_oldest_seconds", store::mails::OLDEST);
    }
    frame.serve(doors(service, people), sockets).await
}

/// What is served, each with who may call it.
fn doors(service: Service, people: People) -> Doors {
    let services = Door::default()
        .service(MerchantsServer::new(Grpc(service.clone())), &[Gateway])
        .service(
            MerchantAccountServer::new(Grpc(service.clone())),
            &[Gateway],
        )
        .service(
            NoticesServer::new(PeopleGrpc(people.clone())),
            &[ChargesSvc, WebhooksSvc],
        )
        .service(PeopleServer::new(PeopleGrpc(people.clone())), &[Gateway]);
    let operators = Door::default()
        .service(
            MerchantOperationsServer::new(Grpc(service.clone())),
            &[Payctl],
        )
        .service(BusinessReviewsServer::new(Grpc(service)), &[Payctl])
        .service(PeopleOperationsServer::new(PeopleGrpc(people)), &[Payctl]);
    Doors {
        services,
        operators,
    }
}

/// Readies what people need, and sends their mails from now on.
async fn begin_people(config: &Config, frame: &mut Frame) -> anyhow::Result<People> {
    let (db, clock) = (frame.db.clone(), frame.clock.clone());
    let keyring = config.keyring()?;
    check_keys(&db, &keyring).await?;
    let upkeep = Upkeep {
        db: db.clone(),
        clock: clock.clone(),
        due: clock.now(),
    };
    frame.work(clock.worker(upkeep::WORK), upkeep);
    let posting = clock.worker(post::WORK);
    let mails = posting.alarm();
    match config.mail_server()? {
        Some(server) => {
            let post = Post {
                db: db.clone(),
                clock: clock.clone(),
                alarm: mails.clone(),
                server,
                dashboard: config.dashboard_url.clone(),
            };
            frame.work(posting, post);
        }
        None => tracing::warn!("SMTP_URL is not set: no mail is sent"),
    }
    let issuer = config.dashboard_url.host_str().unwrap_or_default();
    Ok(People {
        hasher: Hasher::start()?,
        keyring,
        lifetime: config.lifetime(),
        issuer: issuer.to_owned(),
        mails,
        db,
        clock,
    })
}

/// Re-encrypts the secrets of authenticators with the first key.
pub async fn reseal(config: &Config) -> anyhow::Result<()> {
    let service = &config.service;
    let keyring = config.keyring()?;
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    let opening = Db::open(&service.database, service.mode, &SCHEMA, &clock, &shutdown);
    let db = opening.await?;
    let mut last = PersonId::from(Uuid::nil());
    loop {
        let found = store::people::list_with_secrets(&mut db.read().await?, last).await?;
        let Some(end) = found.last() else {
            db.close().await;
            return Ok(());
        };
        last = end.person_id;
        for person in found {
            let mut tx = db.begin().await?;
            if let Some(mut person) = store::people::lock(&mut tx, person.person_id).await? {
                let owner = totp::owner(person.person_id);
                let reseal = |sealed: &SealedSecret| -> Result<SealedSecret, SecretError> {
                    Ok(keyring.seal(&keyring.open(sealed, &owner)?, &owner))
                };
                person.totp_secret = person.totp_secret.as_ref().map(reseal).transpose()?;
                person.totp_pending = person.totp_pending.as_ref().map(reseal).transpose()?;
                store::people::update_totp(&mut tx, &person).await?;
            }
            tx.commit().await?;
        }
    }
}

/// Refuses to start without a key that stored secrets need: nobody who has one could log in.
async fn check_keys(db: &Db, keyring: &Keyring) -> anyhow::Result<()> {
    for secret in store::people::list_secrets(&mut db.read().await?).await? {
        let key_id = secret.key_id;
        if !keyring.has(&key_id) {
            let why =
                format!("the key {key_id}, with which secrets of authenticators are encrypted");
            return Err(SettingsError::new(format!("TOTP_SECRET_KEY lacks {why}")).into());
        }
    }
    Ok(())
}
