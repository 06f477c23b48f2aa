//! Proto to domain. The gateway and charges-svc have parsed what people wrote; this checks what
//! would otherwise corrupt a record.

use std::{borrow::Cow, str::FromStr};

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{CustomerId, MerchantId, SessionId},
    limits::{
        DESCRIPTION_CHARACTERS_MAX, EMAIL_CHARACTERS_MAX, MARKED_KEY_CHARACTERS_MAX,
        NAME_CHARACTERS_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, URL_CHARACTERS_MAX,
    },
    money::Money,
    phone::Phone,
};
use proto::sessions::{
    CreateSessionRequest, DirectSession as ProtoDirectSession, GetSessionRequest,
    ListCustomersRequest, Payer as ProtoPayer, RecordTransactionRequest,
    Settlement as ProtoSettlement, Transaction as ProtoTransaction,
    record_transaction_request::Step as ProtoStep,
};

use crate::{
    customer::Payer,
    error::Error,
    report::{Report, Step},
    session::{DirectSession, NewSession},
    store::customers::PageStart,
    transaction::{Settlement, Transaction},
};

/// Most characters of a code, such as a method or a reason, and of a rate.
const CODE_MAX: usize = 64;

/// The session to create, and its idempotency key.
pub fn new_session(request: CreateSessionRequest) -> Result<(NewSession, String), Error> {
    let new = NewSession {
        merchant_id: value("merchant_id", &request.merchant_id)?,
        amount: amount(request.amount.as_ref())?,
        description: optional_text(
            "description",
            request.description,
            DESCRIPTION_CHARACTERS_MAX,
        )?,
        redirect_url: optional_text("redirect_url", request.redirect_url, URL_CHARACTERS_MAX)?,
        payer: payer(request.payer)?,
    };
    let key = text(
        "idempotency_key",
        request.idempotency_key,
        MARKED_KEY_CHARACTERS_MAX,
    )?;
    Ok((new, key))
}

/// Text that is not an identifier names nothing, so it is NOT_FOUND.
pub fn wanted_session(
    request: &GetSessionRequest,
) -> Result<(SessionId, Option<MerchantId>), Error> {
    let not_found = |_| Error::SessionNotFound;
    let id = request.session_id.parse().map_err(not_found)?;
    let merchant = Some(&request.merchant_id)
        .filter(|merchant| !merchant.is_empty())
        .map(|merchant| merchant.parse().map_err(not_found))
        .transpose()?;
    Ok((id, merchant))
}

pub fn report(request: RecordTransactionRequest) -> Result<Report, Error> {
    if request.charge_number == 0 {
        return Err(invalid("charge_number", "must be at least 1"));
    }
    if request.version == 0 {
        return Err(invalid("version", "must be at least 1"));
    }
    let step = request
        .step
        .ok_or_else(|| invalid("step", "must be given"))?;
    Ok(Report {
        merchant_id: value("merchant_id", &request.merchant_id)?,
        session_id: value("session_id", &request.session_id)?,
        charge_number: request.charge_number,
        version: request.version,
        step: self::step(step)?,
        direct: request.direct.map(direct_session).transpose()?,
    })
}

fn step(step: ProtoStep) -> Result<Step, Error> {
    Ok(match step {
        ProtoStep::Open(open) => {
            let (transaction, amount) = transaction(open.transaction)?;
            Step::Open {
                transaction,
                amount,
            }
        }
        ProtoStep::Update(update) => {
            let (transaction, amount) = transaction(update.transaction)?;
            let payer = payer(update.payer)?;
            Step::Update {
                transaction,
                amount,
                payer,
            }
        }
        ProtoStep::Withdraw(_) => Step::Withdraw,
    })
}

/// The transaction and its amount, which must be the session's.
fn transaction(transaction: Option<ProtoTransaction>) -> Result<(Transaction, Money), Error> {
    let given = transaction.ok_or_else(|| invalid("transaction", "must be given"))?;
    let status = ChargeStatus::try_from(given.status())
        .map_err(|_| invalid("transaction.status", "must be one of the statuses"))?;
    let amount = amount(given.amount.as_ref())?;
    let reason = optional_text("transaction.failure_reason", given.failure_reason, CODE_MAX)?;
    if reason.is_some() && status != ChargeStatus::Failed {
        return Err(invalid(
            "transaction.failure_reason",
            "must be given only on FAILED",
        ));
    }
    let message = given.failure_message;
    let transaction = Transaction {
        transaction_id: value("transaction.transaction_id", &given.transaction_id)?,
        tx_id_display: value("transaction.tx_id_display", &given.tx_id_display)?,
        status,
        method: text("transaction.method", given.method, CODE_MAX)?,
        failure_reason: reason,
        failure_message: optional_text(
            "transaction.failure_message",
            message,
            DESCRIPTION_CHARACTERS_MAX,
        )?,
        settlement: given.settlement.map(settlement).transpose()?,
        created_at: value("transaction.created_at", &given.created_at)?,
        updated_at: value("transaction.updated_at", &given.updated_at)?,
    };
    Ok((transaction, amount))
}

fn settlement(settlement: ProtoSettlement) -> Result<Settlement, Error> {
    Ok(Settlement {
        amount: amount(settlement.amount.as_ref())?,
        rate: text("settlement.rate", settlement.rate, CODE_MAX)?,
    })
}

fn direct_session(direct: ProtoDirectSession) -> Result<DirectSession, Error> {
    Ok(DirectSession {
        amount: amount(direct.amount.as_ref())?,
        description: optional_text(
            "direct.description",
            direct.description,
            DESCRIPTION_CHARACTERS_MAX,
        )?,
        payer: payer(direct.payer)?,
        created_at: value("direct.created_at", &direct.created_at)?,
    })
}

fn payer(payer: Option<ProtoPayer>) -> Result<Payer, Error> {
    let given = payer.unwrap_or_default();
    Ok(Payer {
        phone: given.phone.map(|phone| e164(&phone)).transpose()?,
        email: optional_text("payer.email", given.email, EMAIL_CHARACTERS_MAX)?,
        name: optional_text("payer.name", given.name, NAME_CHARACTERS_MAX)?,
    })
}

/// Accepts only the canonical form: one number written in two ways would be two customers.
fn e164(text: &str) -> Result<Phone, Error> {
    text.parse()
        .ok()
        .filter(|phone: &Phone| phone.as_e164() == text)
        .ok_or_else(|| invalid("payer.phone", "must be a phone number in E.164 form"))
}

/// Positive, in a known currency.
fn amount(money: Option<&proto::money::Money>) -> Result<Money, Error> {
    money
        .and_then(|money| Money::try_from(money).ok())
        .filter(|money| money.is_positive())
        .ok_or_else(|| invalid("amount", "must be positive and in a known currency"))
}

/// Empty text counts as absent.
fn optional_text(
    field: &'static str,
    text: Option<String>,
    max: usize,
) -> Result<Option<String>, Error> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| self::text(field, text, max)).transpose()
}

fn text(field: &'static str, text: String, max: usize) -> Result<String, Error> {
    if text.is_empty() || text.chars().count() > max || text.chars().any(char::is_control) {
        return Err(invalid(
            field,
            "must be a text, neither empty nor too long, without control characters",
        ));
    }
    Ok(text)
}

fn value<T: FromStr>(field: &'static str, text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|_| invalid(field, "must be in the one form that we write"))
}

fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    let message = message.into();
    Error::Invalid { field, message }
}

/// Whose customers to list, after which place, and how many.
pub fn wanted_customers(
    request: &ListCustomersRequest,
) -> Result<(MerchantId, PageStart, u32), Error> {
    let merchant = value("merchant_id", &request.merchant_id)?;
    let page_size = match request.page_size {
        0 => PAGE_SIZE_DEFAULT,
        size @ 1..=PAGE_SIZE_MAX => size,
        _ => {
            let message = format!("must be at most {PAGE_SIZE_MAX}");
            return Err(invalid("page_size", message));
        }
    };
    Ok((merchant, place(&request.page_token)?, page_size))
}

/// A place as a token, which callers return unchanged.
pub fn page_token(place: &PageStart) -> String {
    let (listed_at, created_at) = (
        place.listed_at.unix_millis(),
        place.created_at.unix_millis(),
    );
    format!("{listed_at}.{created_at}.{}", place.customer_id)
}

/// An empty token means the place before the first customer.
fn place(token: &str) -> Result<PageStart, Error> {
    let millis = |text: &str| Timestamp::from_unix_millis(text.parse().ok()?).ok();
    let parse = || {
        let (listed_at, rest) = token.split_once('.')?;
        let (created_at, customer_id) = rest.split_once('.')?;
        Some(PageStart {
            listed_at: millis(listed_at)?,
            created_at: millis(created_at)?,
            customer_id: customer_id.parse::<CustomerId>().ok()?.to_string(),
        })
    };
    if token.is_empty() {
        return Ok(PageStart::first());
    }
    parse().ok_or_else(|| invalid("page_token", "must be a token from the previous answer"))
}
