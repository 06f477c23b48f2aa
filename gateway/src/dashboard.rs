//! The dashboard: the pages on which a merchant's people serve themselves.
//!
//! Every page is built from what the services say at that moment and works without scripts. The
//! merchant that a page is about comes from the login and nowhere else, so what belongs to another
//! is not found. A write is a form that must come from our own pages; it is answered by 303, or by a
//! page that shows a secret once.

mod activity;
mod address;
mod balance;
mod business;
mod confirm;
mod cookie;
mod customers;
mod enter;
mod export;
mod figures;
mod filters;
mod forms;
mod help;
mod home;
mod interrupted;
mod keys;
mod login;
mod mailed_link;
mod money_out;
mod networks;
mod page;
mod payment;
mod payment_link;
mod payments;
mod payouts;
mod refund;
mod refunds;
mod reset;
mod security;
mod signup;
mod text;
mod timeline;
mod tries;
mod visitor;
mod weather;
mod webhooks;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use chassis::{clock::Clock, config::Mode};
use http::Method;
use ipnet::IpNet;
use proto::{
    charges::{
        charges_client::ChargesClient, disbursements_client::DisbursementsClient,
        merchant_figures_client::MerchantFiguresClient,
        payout_accounts_client::PayoutAccountsClient, statements_client::StatementsClient,
    },
    merchants::{merchant_account_client::MerchantAccountClient, people_client::PeopleClient},
    sessions::sessions_client::SessionsClient,
    webhooks::{
        merchant_events_client::MerchantEventsClient,
        merchant_webhooks_client::MerchantWebhooksClient,
    },
};

use self::{
    cookie::LoginCookie,
    help::Help,
    interrupted::Forms,
    page::Refusal,
    tries::{HolderLooks, Tries},
};
use crate::{
    backend::{
        Backend, Charges, Disbursements, MerchantAccount, MerchantEvents, MerchantFigures,
        MerchantWebhooks, PayoutAccounts, People, Sessions, Statements,
    },
    channels::Channels,
    config::Config,
    error::Error,
    front::{self, Front, X_REQUEST_ID},
    pages::{self, Kind, Referrer, assets, encoding},
    room::Room,
};

/// What the pages share.
#[derive(Debug)]
pub struct Dashboard {
    pub people: People,
    pub account: MerchantAccount,
    pub webhooks: MerchantWebhooks,
    pub sessions: Sessions,
    pub charges: Charges,
    pub disbursements: Disbursements,
    pub payout_accounts: PayoutAccounts,
    pub events: MerchantEvents,
    pub statements: Statements,
    pub figures: MerchantFigures,
    /// For exports that are being passed on: a request's own place ends with its answer's head.
    pub exports_room: Arc<Room>,
    pub tries: Tries,
    /// Of networks, whose wallet it is.
    pub holder_looks: HolderLooks,
    pub cookie: LoginCookie,
    /// What a login may interrupt. The pages know their forms, and no file that they need knows them.
    pub forms: Forms,
    /// For the `curl` that a page shows. Without a trailing slash.
    pub api_url: String,
    /// Of the hosted checkout, without a slash at its end.
    pub checkout_url: String,
    /// Where merchants write to for help.
    pub support_email: Option<Arc<str>>,
    pub mode: Mode,
    pub clock: Clock,
    pub trusted_proxies: Vec<IpNet>,
}

impl Dashboard {
    pub fn new(config: &Config, channels: &Channels, clock: &Clock) -> Self {
        let people = PeopleClient::new(channels.merchants.clone());
        let account = MerchantAccountClient::new(channels.merchants.clone());
        let webhooks = MerchantWebhooksClient::new(channels.webhooks.clone());
        let sessions = SessionsClient::new(channels.sessions.clone());
        let charges = ChargesClient::new(channels.charges.clone());
        let disbursements = DisbursementsClient::new(channels.charges.clone());
        let payout_accounts = PayoutAccountsClient::new(channels.charges.clone());
        let statements = StatementsClient::new(channels.statements.clone());
        let figures = MerchantFiguresClient::new(channels.charges.clone());
        let events = MerchantEventsClient::new(channels.webhooks.clone());
        Self {
            sessions: Backend::new("sessions", sessions),
            charges: Backend::new("charges", charges),
            disbursements: Backend::new("disbursements", disbursements),
            payout_accounts: Backend::new("payout accounts", payout_accounts),
            events: Backend::new("webhooks", events),
            statements: Backend::new("statements", statements),
            figures: Backend::new("merchant figures", figures),
            exports_room: Arc::new(Room::of_requests(export::EXPORTS_MAX)),
            webhooks: Backend::new("merchant webhooks", webhooks),
            people: Backend::new("people", people),
            account: Backend::new("merchant account", account),
            tries: Tries::new(config.dashboard_tries_per_address, clock.clone()),
            holder_looks: HolderLooks::new(clock.clone()),
            forms: forms::of,
            cookie: LoginCookie::at(&config.dashboard_url),
            checkout_url: config
                .checkout_url
                .as_str()
                .trim_end_matches('/')
                .to_owned(),
            api_url: config.api_url.as_str().trim_end_matches('/').to_owned(),
            support_email: config.support_email.as_deref().map(Into::into),
            mode: config.mode,
            clock: clock.clone(),
            trusted_proxies: config.trusted_proxies(),
        }
    }
}

/// All routes of the dashboard.
pub fn router(dashboard: Arc<Dashboard>, front: Front) -> Router {
    let email = dashboard.support_email.clone();
    Router::new()
        .route("/signup", get(signup::show).post(signup::sign_up))
        .route("/signup/sent", get(signup::sent))
        .route(
            "/verify-email/{token}",
            get(signup::show_verify).post(signup::verify),
        )
        .route("/verify-email", post(signup::send_again))
        .route("/login", get(enter::show).post(enter::log_in))
        .route("/login/totp", get(enter::show_code).post(enter::enter_code))
        .route("/logout", post(enter::log_out))
        .route("/confirm", get(confirm::show).post(confirm::confirm))
        .route("/forgot", get(reset::show).post(reset::ask))
        .route("/forgot/sent", get(reset::sent))
        .route("/reset/{token}", get(reset::show_reset).post(reset::reset))
        .route("/", get(home::show))
        .merge(address::routes())
        .merge(payments::routes())
        .merge(payment_link::routes())
        .merge(payment::routes())
        .merge(refund::routes())
        .merge(refunds::routes())
        .merge(payouts::routes())
        .merge(customers::routes())
        .merge(balance::routes())
        .merge(keys::routes())
        .merge(webhooks::routes())
        .merge(business::routes())
        .merge(security::routes())
        .merge(activity::routes())
        .route("/assets/{name}", get(asset))
        .fallback(async || Refusal(Error::NotFound))
        .method_not_allowed_fallback(async || Refusal(Error::MethodNotAllowed))
        .layer(middleware::from_fn_with_state(email.clone(), help::offer))
        .layer(middleware::from_fn_with_state(front, front::pass))
        .layer(middleware::from_fn_with_state(email, dress))
        .layer(middleware::from_fn(encode))
        .with_state(dashboard)
}

async fn asset(Path(name): Path<String>, request: Request) -> Response {
    let served = assets::serve(&name, request).await;
    served.unwrap_or_else(|error| Refusal(error).into_response())
}

/// Compresses what a browser loads. Not what it gets for a form: such a page may hold a secret
/// beside what was typed, and its length would tell of both (the BREACH attack). Nor a file, which
/// is passed on as it is read.
async fn encode(request: Request, next: Next) -> Response {
    if request.uri().path().ends_with(".csv") {
        return next.run(request).await;
    }
    match *request.method() {
        Method::GET | Method::HEAD => encoding::pages(request, next).await,
        _ => next.run(request).await,
    }
}

/// Adds the headers that browsers need to every answer, and turns the front's JSON server errors
/// into pages.
async fn dress(State(email): State<Option<Arc<str>>>, request: Request, next: Next) -> Response {
    let kind = Kind::of(&request, |_| false);
    let mut response = next.run(request).await;
    if pages::is_front_failure(&response) {
        let request_id = response.headers().get(X_REQUEST_ID);
        let request_id = request_id.and_then(|id| id.to_str().ok());
        let help = Help {
            email,
            request_id: request_id.unwrap_or_default().to_owned(),
        };
        let page = help.within(|| Refusal(Error::NothingStarted).into_response());
        pages::replace_body(&mut response, page);
    }
    pages::dress(&mut response, kind, Referrer::Ourselves);
    response
}
