//! `/payouts`: money on its way to the merchant's own account, the form that asks for it, and where
//! it goes.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, PayoutId},
    money::Currency,
};
use http::StatusCode;
use proto::{
    charges::{
        CreatePayoutRequest, DisbursementStatus, GetBalanceResponse, GetPayoutRequest,
        ListPayoutsRequest, ListPayoutsResponse, Payout, PayoutAccount, ReadPayoutAccountRequest,
    },
    merchants::Action,
};

use super::{
    Dashboard, balance, export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::{Confirmed, Login, Sent, SentConfirmed},
    money_out,
    page::{Cell, DetailPage, FormPage, MessagePage, Refusal, Section, TablePage, blame, moment},
    payments,
};
use crate::{
    backend,
    error::Error,
    in_hand::RequestInHand,
    pages::{amount::shown, see},
};

pub const PATH: &str = "/payouts";

const EXPORT: &str = "/payouts.csv";

const NEW: &str = "/payouts/new";

const ACCOUNT: &str = "/payouts/account";

const COLUMNS: [&str; 5] = ["Created", "Payout", "To", "State", "Amount"];

const EXPORT_COLUMNS: [&str; 13] = [
    "payout_id",
    "status",
    "provider",
    "account",
    "amount",
    "currency",
    "fee",
    "fee_currency",
    "scheduled",
    "failure_reason",
    "created_at",
    "completed_at",
    "reversed_at",
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
        .route(NEW, get(show_new).post(create))
        .route(ACCOUNT, get(show_account))
        .route(&format!("{PATH}/{{payout_id}}"), get(show_one))
}

fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListPayoutsRequest {
    let statuses = &money_out::STATUSES;
    let status = filters.choice("status", "State", statuses, DisbursementStatus::from_code);
    let (from, to) = filters.days();
    ListPayoutsRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<DisbursementId>(),
        from,
        to,
        status: status.unwrap_or_default().into(),
    }
}

impl Dashboard {
    async fn list_payouts(
        &self,
        request: ListPayoutsRequest,
    ) -> Result<ListPayoutsResponse, Error> {
        let listed = self.disbursements.read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.list_payouts(request).await },
        );
        listed.await
    }

    /// Where the merchant's payouts go, if that was set.
    async fn payout_account(&self, login: &Login) -> Result<Option<PayoutAccount>, Error> {
        let request = ReadPayoutAccountRequest {
            merchant_id: login.merchant_id(),
        };
        let account =
            self.disbursements.read(
                backend::DEADLINE,
                request,
                |mut disbursements, request| async move {
                    disbursements.read_payout_account(request).await
                },
            );
        match account.await {
            Ok(account) => Ok(Some(account)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = wanted(&mut filters, &login);
    let mut page = TablePage::new(login.shell(Section::Payouts, "Payouts"), &COLUMNS);
    page.button = Some(("Ask for a payout", NEW.to_owned()));
    page.facts = vec![(
        "Account",
        Cell::phrase("Where the money goes").link(ACCOUNT.to_owned()),
    )];
    page.empty = "No payout yet. Ask for one once you have collected something.";
    let listing = async {
        let listed = dashboard.list_payouts(request).await?;
        let rows = listed.payouts.iter().map(row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

fn row(payout: &Payout) -> Result<Vec<Cell>, Error> {
    let id = &payout.payout_id;
    let made = match payout.scheduled {
        true => "Daily settlement",
        false => "",
    };
    Ok(vec![
        Cell::time(&payout.created_at),
        Cell::text(id).link(format!("{PATH}/{id}")).detail(made),
        money_out::destination(payout.destination.as_ref()),
        money_out::state(payout.status(), payout.reversed_at.as_deref()),
        payments::amount(payout.amount.as_ref())?,
    ])
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    payout_id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(payout_id) = payout_id.map_err(|_| Error::NotFound)?;
    let payout_id: PayoutId = payout_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetPayoutRequest {
        merchant_id: login.merchant_id(),
        payout_id: payout_id.to_string(),
    };
    let payout = dashboard.disbursements.read(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move { disbursements.get_payout(request).await },
    );
    let payout = payout.await?;
    let (status, reversed_at) = (payout.status(), payout.reversed_at.as_deref());
    let mut page = DetailPage::new(login.shell(Section::Payouts, "Payout"));
    page.lead = vec![money_out::meaning(status, reversed_at).to_owned()];
    page.lead.extend(payout.failure_message.clone());
    let amount = payments::money(payout.amount.as_ref())?;
    let asked = match payout.scheduled {
        true => "By the daily settlement",
        false => "On request",
    };
    page.facts = vec![
        ("Amount", Cell::text(&shown(amount))),
        ("State", money_out::state(status, reversed_at)),
        ("To", money_out::destination(payout.destination.as_ref())),
        ("Made", Cell::phrase(asked)),
        ("Payout", Cell::text(&payout.payout_id)),
    ];
    if let Some(fee) = &payout.fee {
        let fee = payments::money(Some(fee))?;
        page.facts.insert(1, ("Fee", Cell::text(&shown(fee))));
    }
    page.moments = money_out::moments(
        &payout.created_at,
        status,
        &payout.updated_at,
        payout.completed_at.as_deref(),
        reversed_at,
    );
    page.links = vec![("All payouts", PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

async fn show_account(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
) -> Result<Response, Refusal> {
    let shell = login.shell(Section::Payouts, "Payout account");
    let Some(account) = dashboard.payout_account(&login).await? else {
        let line = "No payout account is set yet. Write to us from your e-mail address, and we set it together with you.";
        let page = MessagePage::saying(shell, line).next("Back to the payouts", PATH);
        return Ok(page.respond(StatusCode::OK));
    };
    let mut page = DetailPage::new(shell);
    page.lead.push(
        "For your safety, only we change this account: write to us from your e-mail address. After a change, payouts wait for a while."
            .to_owned(),
    );
    let switch = |is_on| match is_on {
        true => Cell::state("On", "good"),
        false => Cell::state("Off", "idle"),
    };
    page.facts = vec![
        (
            "Account",
            money_out::destination(account.destination.as_ref()),
        ),
        ("Name", Cell::text(&account.holder_name)),
        ("Payouts on request", switch(account.payouts_on_request)),
        ("Daily settlement", switch(account.daily_settlement)),
        ("Last change", Cell::time(&account.updated_at)),
    ];
    if let Some(name) = &account.rail_holder_name {
        page.facts
            .insert(2, ("Name at the network", Cell::text(name)));
    }
    if is_held(&dashboard, &account) {
        let held = Cell::time(&account.held_until);
        page.facts.push(("Payouts wait until", held));
    }
    page.links = vec![("All payouts", PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

fn is_held(dashboard: &Dashboard, account: &PayoutAccount) -> bool {
    let until = account.held_until.parse::<Timestamp>();
    until.is_ok_and(|until| dashboard.clock.now() < until)
}

/// What somebody must know before asking for a payout.
struct Terms {
    account: PayoutAccount,
    balance: GetBalanceResponse,
}

/// The terms, or the page that says why there can be no payout.
async fn terms(dashboard: &Dashboard, login: &Login) -> Result<Result<Terms, Response>, Error> {
    let refuse = |line: &str, label, address: &str| {
        let shell = login.shell(Section::Payouts, "Not possible yet");
        let page = MessagePage::saying(shell, line).next(label, address);
        Ok(Err(page.respond(StatusCode::CONFLICT)))
    };
    if !login.has_totp {
        let line = "Set up an authenticator before the first payout, so that a password alone moves no money.";
        let address = "/settings/security/totp";
        return refuse(line, "Set up an authenticator", address);
    }
    let (account, balance) =
        tokio::try_join!(dashboard.payout_account(login), dashboard.balance(login))?;
    let Some(account) = account.filter(|account| account.payouts_on_request) else {
        let line =
            "Payouts on request are not switched on for you. Write to us from your e-mail address.";
        return refuse(line, "Look at the payout account", ACCOUNT);
    };
    if is_held(dashboard, &account) {
        let line = format!(
            "The payout account was changed a short time ago. Payouts wait until {}.",
            moment(&account.held_until)
        );
        return refuse(&line, "Look at the payout account", ACCOUNT);
    }
    Ok(Ok(Terms { account, balance }))
}

fn form(login: &Login, terms: &Terms, typed: &str) -> Result<FormPage, Error> {
    let shell = login.shell(Section::Payouts, "Ask for a payout");
    let mut page = FormPage::new(shell, NEW, "Pay out");
    let available = balance::available(&terms.balance, Currency::GHS)?;
    let to = terms.account.destination.clone().unwrap_or_default();
    page.lead = vec![
        format!("Available: {}", shown(available)),
        format!(
            "To: {} {}, {}",
            to.provider, to.account_masked, terms.account.holder_name
        ),
    ];
    if let Some(fee) = &terms.balance.payout_fee {
        let fee = payments::money(Some(fee))?;
        page.lead
            .push(format!("Fee: {}, beside the amount", shown(fee)));
    }
    page.hidden = vec![money_out::new_nonce()];
    page.fields = vec![money_out::amount_field(typed)];
    page.links = vec![("All payouts", PATH)];
    Ok(page)
}

async fn show_new(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money() {
        return Ok(refusal);
    }
    match terms(&dashboard, &login).await? {
        Ok(terms) => Ok(form(&login, &terms, "")?.respond(StatusCode::OK)),
        Err(refused) => Ok(refused),
    }
}

async fn create(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money() {
        return Ok(refusal);
    }
    let terms = match terms(&dashboard, &login).await? {
        Ok(terms) => terms,
        Err(refused) => return Ok(refused),
    };
    let typed = fields.get("amount");
    let mut again = form(&login, &terms, typed)?;
    let (amount, key) = (money_out::parse_amount(typed), money_out::key(&fields));
    let (amount, idempotency_key) = match (amount, key) {
        (Ok(amount), Some(key)) => (amount, key),
        (Err(error), _) => {
            again.fields = vec![money_out::amount_field(typed).error(Some(error))];
            return Ok(again.respond(StatusCode::BAD_REQUEST));
        }
        (Ok(_), None) => {
            let notice = "This form was not whole. Look at it once more and send it again.";
            return Ok(again.refuse(StatusCode::BAD_REQUEST, Some(notice.to_owned())));
        }
    };
    dashboard
        .note(&login, Action::PayoutRequested, &shown(amount))
        .await?;
    let request = CreatePayoutRequest {
        merchant_id: login.merchant_id(),
        amount: Some(amount.into()),
        idempotency_key,
    };
    let made = dashboard.disbursements.keyed(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move { disbursements.create_payout(request).await },
    );
    let refuse = |mut page: FormPage, error: String| {
        page.fields = vec![money_out::amount_field(typed).error(Some(error))];
        Ok(page.respond(StatusCode::CONFLICT))
    };
    match made.await {
        Ok(answer) => {
            let payout = answer.payout.unwrap_or_default();
            Ok(see(&format!("{PATH}/{}", payout.payout_id)))
        }
        Err(Error::InsufficientBalance(available)) => {
            let line = "Only {} is available, and the fee is taken beside the amount.";
            refuse(again, line.replace("{}", &shown(available)))
        }
        Err(Error::PayoutAccountOnHold(until)) => {
            let line = "The payout account was changed. Payouts wait until";
            refuse(again, format!("{line} {}.", moment(&until)))
        }
        Err(Error::Validation(faults)) => {
            let notice = blame(&mut again.fields, &faults);
            Ok(again.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::IdempotencyKeyReused | Error::IdempotencyInProgress) => {
            let notice =
                "This form was sent before. Look at the payouts before you ask for another.";
            Ok(again.refuse(StatusCode::CONFLICT, Some(notice.to_owned())))
        }
        Err(error) => Err(error.into()),
    }
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    Extension(in_hand): Extension<RequestInHand>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListPayoutsRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListPayoutsRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_payouts(request).await?;
            let rows = listed.payouts.into_iter().map(exported);
            Ok(Listed {
                rows: rows.collect::<Result<_, _>>()?,
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("payouts", filters);
    export::csv(&dashboard, &in_hand, list, &EXPORT_COLUMNS, read).await
}

fn exported(payout: Payout) -> Result<Vec<String>, Error> {
    let status = payout.status().code().unwrap_or_default();
    let [amount, currency] = export::amount(payout.amount.as_ref())?;
    let [fee, fee_currency] = export::amount(payout.fee.as_ref())?;
    let destination = payout.destination.unwrap_or_default();
    Ok(vec![
        payout.payout_id,
        status.to_owned(),
        destination.provider,
        destination.account_masked,
        amount,
        currency,
        fee,
        fee_currency,
        payout.scheduled.to_string(),
        payout.failure_reason.unwrap_or_default(),
        payout.created_at,
        payout.completed_at.unwrap_or_default(),
        payout.reversed_at.unwrap_or_default(),
    ])
}
