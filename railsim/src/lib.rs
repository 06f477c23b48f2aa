//! Simulates what is outside of the service: the mobile-money networks MTN MoMo, Paystack and Hubtel
//! with their real wire formats, the payers' handsets, the networks' own book of debits and credits, and
//! a mailbox that catches all mail.
//!
//! Promises: a wallet is debited at most once per reference, and credited at most once; what anyone
//! was told survives `kill -9`; the number of the payer or payee alone chooses the story, so every outcome is available on demand.
//! Knows nothing of the services that call it: the wire formats are implemented a second time here.

mod as_text;
mod book;
mod call_plan;
mod callback;
mod config;
mod credit;
mod credits;
mod handset;
mod hubtel;
mod journal;
mod mail;
mod momo;
mod networks;
mod payees;
mod paying;
mod payment;
mod paystack;
mod rail;
mod request;
mod story;
mod wire;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    middleware::{self, Next},
    response::Response,
};
use chassis::{
    clock::Clock,
    grpc,
    http::Limits,
    shutdown::{Shutdown, Tasks},
};
use tokio::net::TcpListener;

pub use config::Config;

use book::Book;
use callback::CallbackSender;
use mail::Mailbox;
use networks::Networks;

const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long a stopping network waits for the callbacks that it is sending.
const CALLBACKS_DRAIN_MAX: Duration = Duration::from_secs(2);

/// The simulator's bound sockets.
#[derive(Debug)]
pub struct Sockets {
    /// The networks' APIs, and the pages.
    pub web: TcpListener,
    /// SMTP.
    pub mail: TcpListener,
}

impl Sockets {
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let web = grpc::bind("RAILSIM_LISTEN", config.listen).await?;
        let mail = grpc::bind("RAILSIM_MAIL_LISTEN", config.mail_listen).await?;
        Ok(Self { web, mail })
    }
}

/// Serves all wires, the pages and the book, and takes mail, until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    chassis::config::check(&config)?;
    let worker = clock.worker("railsim");
    let book = match &config.data {
        Some(folder) => Book::in_folder(folder, config.timing(), config.terms(), worker.alarm())?,
        None => Book::in_memory(config.timing(), config.terms(), worker.alarm()),
    };
    let linked = config.mail_links.clone();
    let mailbox = Arc::new(match &config.data {
        Some(folder) => Mailbox::in_folder(folder, linked)?,
        None => Mailbox::in_memory(linked),
    });
    let callbacks = CallbackSender::new(&config)?;
    let networks = Arc::new(Networks {
        config,
        clock: clock.clone(),
        book,
        callbacks,
    });
    let router = router(networks.clone(), mailbox.clone());

    let calls = Tasks::new();
    let serving = chassis::http::serve(router, sockets.web, Limits::default(), shutdown.clone());
    let catching = mail::serve(mailbox, sockets.mail, clock, shutdown.clone());
    let running = networks.run(worker, calls.clone(), shutdown);
    // A network that has lost its book must stop answering.
    tokio::try_join!(serving, catching, async { Ok(running.await?) })?;
    calls.drain(CALLBACKS_DRAIN_MAX).await;
    Ok(())
}

fn router(networks: Arc<Networks>, mailbox: Arc<Mailbox>) -> Router {
    Router::new()
        .merge(momo::routes())
        .merge(paystack::routes())
        .merge(hubtel::routes())
        .merge(handset::routes())
        .merge(payees::routes())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(networks.clone(), hold_clock))
        .with_state(networks)
        .merge(mail::routes(mailbox))
}

/// Time travel waits for every request.
async fn hold_clock(
    State(networks): State<Arc<Networks>>,
    request: Request,
    next: Next,
) -> Response {
    let _activity = networks.clock.activity();
    next.run(request).await
}
