//! Proto to domain. The gateway and charges-svc have parsed what people wrote; this checks what
//! would otherwise corrupt a record.

use std::{borrow::Cow, fmt::Display, str::FromStr};

use chassis::{
    charge_status::ChargeStatus,
    ids::{CustomerId, MerchantId, SessionId},
    limits::{
        DESCRIPTION_CHARACTERS_MAX, EMAIL_CHARACTERS_MAX, MARKED_KEY_CHARACTERS_MAX,
        NAME_CHARACTERS_MAX, URL_CHARACTERS_MAX,
    },
    money::Money,
    page::{PageAsked, PageRequest, TOKEN_FAULT},
    phone::Phone,
};
use proto::sessions::{
    AddWalletsRequest, CreateSessionRequest, DirectSession as ProtoDirectSession,
    GetCustomerRequest, GetSessionRequest, ListCustomersRequest, ListSessionsRequest,
    Payer as ProtoPayer, RecordTransactionRequest, SessionStatus as ProtoSessionStatus,
    Settlement as ProtoSettlement, Transaction as ProtoTransaction, Wallet as ProtoWallet,
    record_transaction_request::Step as ProtoStep,
};

use crate::{
    customer::Payer,
    error::Error,
    report::{Report, Step},
    session::{DirectSession, NewSession, SessionStatus},
    store::{customers::WantedCustomers, list::WantedSessions},
    transaction::{Settlement, Transaction, TransactionPlace, Wallet},
};

/// Most characters of a code, such as a method or a reason, and of a rate.
const CODE_MAX: usize = 64;

/// Most wallets in one request.
pub const WALLETS_MAX: usize = 500;

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
pub fn session_id(text: &str) -> Result<SessionId, Error> {
    text.parse().map_err(|_| Error::SessionNotFound)
}

pub fn wanted_session(
    request: &GetSessionRequest,
) -> Result<(SessionId, Option<MerchantId>), Error> {
    let not_found = |_| Error::SessionNotFound;
    let id = session_id(&request.session_id)?;
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
        wallet: given.wallet.map(wallet).transpose()?,
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
        phone: given
            .phone
            .map(|phone| e164("payer.phone", &phone))
            .transpose()?,
        email: optional_text("payer.email", given.email, EMAIL_CHARACTERS_MAX)?,
        name: optional_text("payer.name", given.name, NAME_CHARACTERS_MAX)?,
    })
}

/// Accepts only the canonical form: one number written in two ways would be two customers.
fn e164(field: &'static str, text: &str) -> Result<Phone, Error> {
    text.parse()
        .ok()
        .filter(|phone: &Phone| phone.as_e164() == text)
        .ok_or_else(|| invalid(field, "must be a phone number in E.164 form"))
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

/// `id`: how the store orders the ids of the list.
pub fn page<I: FromStr + Display, J: Default>(
    asked: PageAsked<'_>,
    id: impl FnOnce(I) -> J,
) -> Result<PageRequest<J>, Error> {
    asked
        .parse(id)
        .map_err(|fault| invalid(fault.field, fault.message))
}

/// Which sessions, and which one alone.
pub fn wanted_sessions(
    request: ListSessionsRequest,
) -> Result<(WantedSessions, Option<SessionId>), Error> {
    let status = match request.status() {
        ProtoSessionStatus::Unspecified => None,
        status => Some(
            SessionStatus::try_from(status)
                .map_err(|_| invalid("status", "must be one of the statuses"))?,
        ),
    };
    let wanted = WantedSessions {
        merchant_id: value("merchant_id", &request.merchant_id)?,
        status,
        provider: optional_text("provider", request.provider, CODE_MAX)?,
    };
    let session_id = request.session_id.map(|id| value("session_id", &id));
    Ok((wanted, session_id.transpose()?))
}

pub fn wanted_customers(request: ListCustomersRequest) -> Result<WantedCustomers, Error> {
    let email = optional_text("email", request.email, EMAIL_CHARACTERS_MAX)?;
    Ok(WantedCustomers {
        merchant_id: value("merchant_id", &request.merchant_id)?,
        phone: request
            .phone
            .map(|phone| e164("phone", &phone))
            .transpose()?,
        email_key: email.map(|email| email.to_lowercase()),
    })
}

/// Text that is not an identifier names nothing, so it is NOT_FOUND.
pub fn wanted_customer(request: &GetCustomerRequest) -> Result<(MerchantId, CustomerId), Error> {
    let not_found = |_| Error::CustomerNotFound;
    let merchant = request.merchant_id.parse().map_err(not_found)?;
    Ok((merchant, request.customer_id.parse().map_err(not_found)?))
}

/// The place in the list of transactions without a wallet that a token leads to.
pub fn missing_after(token: &str) -> Result<(Option<SessionId>, i64), Error> {
    let parse = || {
        let (session, number) = token.split_once('.')?;
        Some((Some(session.parse().ok()?), number.parse().ok()?))
    };
    match token {
        "" => Ok((None, 0)),
        _ => parse().ok_or_else(|| invalid("page_token", TOKEN_FAULT)),
    }
}

pub fn wallets(request: AddWalletsRequest) -> Result<Vec<(TransactionPlace, Wallet)>, Error> {
    if request.wallets.len() > WALLETS_MAX {
        return Err(invalid("wallets", format!("must be at most {WALLETS_MAX}")));
    }
    let wallets = request.wallets.into_iter().map(|added| {
        let place = added.transaction.unwrap_or_default();
        let place = TransactionPlace {
            session_id: value("transaction.session_id", &place.session_id)?,
            charge_number: place.charge_number.into(),
            transaction_id: value("transaction.transaction_id", &place.transaction_id)?,
        };
        Ok((place, wallet(added.wallet.unwrap_or_default())?))
    });
    wallets.collect()
}

fn wallet(wallet: ProtoWallet) -> Result<Wallet, Error> {
    let is_last_four = |text: &str| text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_last_four(&wallet.last_four) {
        return Err(invalid("wallet.last_four", "must be four digits"));
    }
    Ok(Wallet {
        provider: text("wallet.provider", wallet.provider, CODE_MAX)?,
        last_four: wallet.last_four,
    })
}
