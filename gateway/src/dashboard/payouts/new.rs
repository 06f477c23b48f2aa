//! `/payouts/new`: asks for a payout: a form, a page that says what will happen, and the payout.

use std::sync::Arc;

use axum::{Router, extract::State, response::Response, routing::get};
use chassis::{
    grpc::Reason,
    money::{Currency, Money},
};
use http::StatusCode;
use proto::{
    charges::{CreatePayoutRequest, GetBalanceResponse, Payout, PayoutAccount, SeenPayoutTerms},
    merchants::Action,
};

use super::{ACCOUNT, NEW, PATH, SET, account::lacks_totp, is_held, not_enabled};
use crate::{
    backend,
    dashboard::{
        Dashboard,
        login::{Confirmed, Login, Sent, SentConfirmed},
        money_out::{self, Nonce},
        page::{Field, FormPage, MessagePage, Refusal, Section, blame},
        payments,
        text::{Phrase, Say as _, left_until, phrase},
    },
    error::{DisbursementRefusal, Error},
    field_error::FieldError,
    pages::{
        amount::{shown, unbroken},
        form::FormFields,
        see,
    },
};

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(NEW, get(show).post(send))
}

/// What somebody must know before asking for a payout.
struct Terms {
    account: PayoutAccount,
    available: Money,
    fee: Money,
}

impl Terms {
    fn new(account: PayoutAccount, balance: &GetBalanceResponse) -> Result<Self, Error> {
        let fee = balance.payout_fee.as_ref();
        let fee = fee.map(|fee| payments::money(Some(fee))).transpose()?;
        let held = balance.available.iter();
        let held = held.map(|held| payments::money(Some(held)));
        let held = held.collect::<Result<Vec<Money>, Error>>()?;
        let cedis = held
            .into_iter()
            .find(|held| held.currency() == Currency::GHS);
        Ok(Self {
            account,
            available: cedis.unwrap_or(Money::new(0, Currency::GHS)),
            fee: fee.unwrap_or(Money::new(0, Currency::GHS)),
        })
    }

    fn destination(&self) -> Phrase {
        let to = self.account.destination.clone().unwrap_or_default();
        let account = unbroken(&to.account_masked);
        let network = money_out::network(&to);
        phrase!("{0} {1}, {2}", network, account, &self.account.holder_name)
    }

    /// What must still be so when the payout is made.
    fn mark(&self) -> String {
        format!("{} {}", self.account.updated_at, self.fee.minor_units())
    }

    /// What is left of the balance, if there is enough.
    fn left(&self, amount: Money) -> Option<Money> {
        let taken = amount.minor_units().checked_add(self.fee.minor_units())?;
        let left = self.available.minor_units().checked_sub(taken)?;
        (left >= 0).then(|| Money::new(left, Currency::GHS))
    }
}

/// The terms, or the page that says why there can be no payout.
async fn terms(dashboard: &Dashboard, login: &Login) -> Result<Result<Terms, Response>, Error> {
    let refuse = |line: Phrase, label, address: &str| {
        let shell = login.shell(Section::Payouts, "Not possible yet");
        let page = MessagePage::saying(shell, line).next(label, address);
        Ok(Err(page.respond(StatusCode::CONFLICT)))
    };
    let (account, balance) =
        tokio::try_join!(dashboard.payout_account(login), dashboard.balance(login))?;
    let Some(account) = account else {
        let line = "Say first where the money goes.";
        return refuse(line.into(), "Set the payout account", SET);
    };
    if !account.payouts_on_request {
        return refuse(not_enabled(), "Look at the payout account", ACCOUNT);
    }
    if is_held(dashboard, &account) {
        let line = phrase!(
            "The payout account was changed a short time ago. Payouts wait for {0}.",
            left_until(dashboard.clock.now(), &account.held_until)
        );
        return refuse(line, "Look at the payout account", ACCOUNT);
    }
    Ok(Ok(Terms::new(account, &balance)?))
}

fn form(login: &Login, terms: &Terms, typed: &str, nonce: Nonce) -> FormPage {
    let shell = login.shell(Section::Payouts, "Ask for a payout");
    let mut page = FormPage::new(shell, NEW, "Go on");
    page.lead = vec![
        phrase!("Available: {0}", shown(terms.available)),
        phrase!("To: {0}", terms.destination()),
    ];
    if terms.fee.minor_units() > 0 {
        let fee = shown(terms.fee);
        page.lead.push(phrase!("Fee: {0}, beside the amount", fee));
    }
    page.hidden = vec![nonce];
    page.fields = vec![money_out::amount_field(typed)];
    page.links = vec![("All payouts", PATH)];
    page
}

/// What the first step asks, and the second has told.
pub fn sent_fields() -> Vec<Field> {
    vec![
        money_out::amount_field(""),
        Field::text("fee", "Fee"),
        Field::text("to", "To"),
    ]
}

/// Says what will happen, and asks.
fn confirmation(
    login: &Login,
    terms: &Terms,
    (amount, left): (Money, Money),
    nonce: Nonce,
) -> FormPage {
    let shell = login.shell(Section::Payouts, "Pay out?");
    let mut page = FormPage::new(shell, NEW, "Pay out");
    page.is_grave = true;
    page.lead = vec![
        phrase!("Amount: {0}", shown(amount)),
        phrase!("Fee: {0}", shown(terms.fee)),
        phrase!("To: {0}", terms.destination()),
        phrase!("Left on your balance: {0}", shown(left)),
        "Once the network has paid it, it cannot be called back.".into(),
    ];
    page.hidden = vec![
        ("step", "pay".to_owned()),
        ("amount", amount.to_major().to_string()),
        ("terms", terms.mark()),
        nonce,
        // For a login that interrupts it: what was seen here is shown once more then.
        ("fee", shown(terms.fee)),
        ("to", terms.destination().say(page.shell.language)),
    ];
    page.links = vec![("Change the amount", NEW), ("Do not pay out", PATH)];
    page
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money().or_else(|| lacks_totp(&login, NEW)) {
        return Ok(refusal);
    }
    match terms(&dashboard, &login).await? {
        Ok(terms) => {
            let page = form(&login, &terms, "", money_out::new_nonce());
            Ok(page.respond(StatusCode::OK))
        }
        Err(refused) => Ok(refused),
    }
}

/// The form again, with what is wrong with the amount.
fn refuse(
    login: &Login,
    terms: &Terms,
    (typed, nonce): (&str, Nonce),
    status: StatusCode,
    why: Phrase,
) -> Response {
    let mut again = form(login, terms, typed, nonce);
    again.fields = vec![money_out::amount_field(typed).error(Some(why))];
    again.respond(status)
}

fn refuse_too_much(
    login: &Login,
    terms: &Terms,
    again: (&str, Nonce),
    available: Money,
) -> Response {
    let why = phrase!(
        "Only {0} is available, and the fee is taken beside the amount.",
        shown(available)
    );
    refuse(login, terms, again, StatusCode::CONFLICT, why)
}

/// The first step leads to the second, which pays.
async fn send(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money().or_else(|| lacks_totp(&login, NEW)) {
        return Ok(refusal);
    }
    // Before the terms are looked at: what this very form has paid already is found by its key,
    // whatever has changed since.
    let refused = match Order::read(&fields) {
        None => None,
        Some(order) => match pay(&dashboard, &login, order).await {
            Ok(Ok(payout)) => return Ok(see(&format!("{PATH}/{}", payout.payout_id))),
            Ok(Err(refused)) => Some(refused),
            Err(Error::IdempotencyKeyReused | Error::IdempotencyInProgress) => {
                let list = ("All payouts", PATH);
                return Ok(money_out::sent_before(&login, Section::Payouts, list));
            }
            Err(error) => return Err(error.into()),
        },
    };
    let terms = match terms(&dashboard, &login).await? {
        Ok(terms) => terms,
        Err(refused) => return Ok(refused),
    };
    let typed = fields.get("amount");
    let nonce = match &refused {
        Some(_) => money_out::next_nonce(&fields),
        None => money_out::same_nonce(&fields),
    };
    let amount = match money_out::parse_amount(typed) {
        Ok(amount) => amount,
        Err(why) => {
            let status = StatusCode::BAD_REQUEST;
            return Ok(refuse(&login, &terms, (typed, nonce), status, why));
        }
    };
    let notice = match refused {
        Some(Refused::TooMuch(available)) => {
            return Ok(refuse_too_much(&login, &terms, (typed, nonce), available));
        }
        Some(Refused::Invalid(faults)) => {
            let mut again = form(&login, &terms, typed, nonce);
            let notice = blame(&mut again.fields, &faults);
            return Ok(again.refuse(StatusCode::BAD_REQUEST, notice));
        }
        Some(Refused::OtherTerms) => {
            Some("The account or the fee has changed meanwhile. Look at it once more.")
        }
        Some(Refused::Before) => Some(money_out::REFUSED_BEFORE),
        None if fields.get("step") == "pay" => {
            Some("This form was not whole. Look at it once more and send it again.")
        }
        None => None,
    };
    let Some(left) = terms.left(amount) else {
        let again = (typed, nonce);
        return Ok(refuse_too_much(&login, &terms, again, terms.available));
    };
    let page = confirmation(&login, &terms, (amount, left), nonce);
    Ok(match notice {
        None => page.respond(StatusCode::OK),
        Some(notice) => page.refuse(StatusCode::CONFLICT, Some(notice.into())),
    })
}

/// What somebody confirmed.
struct Order {
    amount: Money,
    seen: SeenPayoutTerms,
    idempotency_key: String,
}

impl Order {
    /// `None` if the form is not the second one, or not whole.
    fn read(fields: &FormFields) -> Option<Self> {
        if fields.get("step") != "pay" {
            return None;
        }
        let (account_updated_at, fee) = fields.get("terms").split_once(' ')?;
        let fee = Money::new(fee.parse().ok()?, Currency::GHS);
        Some(Self {
            amount: money_out::parse_amount(fields.get("amount")).ok()?,
            seen: SeenPayoutTerms {
                fee: Some(fee.into()),
                account_updated_at: account_updated_at.to_owned(),
            },
            idempotency_key: money_out::key(fields)?,
        })
    }
}

/// Why what was confirmed is not paid. The page that shows the terms again says more.
enum Refused {
    /// When it was sent first. What stood in its way then may be gone.
    Before,
    OtherTerms,
    TooMuch(Money),
    Invalid(Vec<FieldError>),
}

async fn pay(
    dashboard: &Dashboard,
    login: &Login,
    order: Order,
) -> Result<Result<Payout, Refused>, Error> {
    dashboard
        .note_form(
            login,
            Action::PayoutRequested,
            &shown(order.amount),
            &order.idempotency_key,
        )
        .await?;
    let request = CreatePayoutRequest {
        merchant_id: login.merchant_id(),
        amount: Some(order.amount.into()),
        idempotency_key: order.idempotency_key,
        seen: Some(order.seen),
        // By a person, whom the activity names.
        asked_by: None,
    };
    let made = dashboard.disbursements.keyed(
        backend::DEADLINE,
        request,
        |mut disbursements, request| async move { disbursements.create_payout(request).await },
    );
    let refused = match made.await {
        Ok(answer) => return Ok(Ok(answer.payout.unwrap_or_default())),
        Err(Error::DisbursementRefused { replayed: true, .. }) => Refused::Before,
        Err(
            Error::DisbursementRefused {
                why:
                    DisbursementRefusal::PayoutsNotEnabled | DisbursementRefusal::PayoutAccountOnHold(_),
                ..
            }
            | Error::AtDashboard {
                reason: Reason::PayoutTermsChanged,
                ..
            },
        ) => Refused::OtherTerms,
        Err(Error::DisbursementRefused {
            why: DisbursementRefusal::InsufficientBalance(available),
            ..
        }) => Refused::TooMuch(available),
        Err(Error::Validation(faults)) => Refused::Invalid(faults),
        Err(error) => return Err(error),
    };
    Ok(Err(refused))
}
