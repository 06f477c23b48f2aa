//! Parses what callers send. It is checked here, once and never again.

use std::{borrow::Cow, fmt::Display, str::FromStr};

use chassis::{
    charge_status::ChargeStatus,
    failure::FailureReason,
    ids::{MerchantId, SessionId},
    limits::{
        AMOUNT_HUNDREDTHS_MAX, DESCRIPTION_CHARACTERS_MAX, EMAIL_CHARACTERS_MAX,
        MARKED_KEY_CHARACTERS_MAX, NAME_CHARACTERS_MAX, REQUEST_ID_CHARACTERS_MAX,
        is_visible_ascii,
    },
    money::{Currency, Money},
    page::{PageAsked, PageRequest},
    phone::Phone,
    provider::{MUST_BE_PROVIDER, Provider},
};
use proto::{
    charges::{
        AskedBy as ProtoAskedBy, ChargeStatus as ProtoChargeStatus, CheckWalletRequest,
        CloseCaseRequest, CreateChargeRequest, HostedSession, ListChargesRequest,
        Provider as ProtoProvider, ReceiveCallbackRequest, SeenPayoutTerms,
        SetPayoutAccountRequest, close_case_request::Action,
    },
    money::Money as ProtoMoney,
};
use rails::{Callback, RailName};
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::{
    asked_by::AskedBy,
    case::Decision,
    charge::{HostedPayment, NewCharge},
    disbursement::{Destination, DestinationType},
    error::{Error, Result},
    payout::SeenTerms,
    store::charges::list::WantedCharges,
};

/// Longest text that an operator may write, in characters.
const EVIDENCE_MAX: usize = 500;

/// A text that is not an identifier names nothing, so the result is `not_found`.
pub fn id<T: FromStr>(text: &str, not_found: Error) -> Result<T> {
    text.parse().map_err(|_| not_found)
}

pub fn merchant_id(text: &str) -> Result<MerchantId> {
    text.parse()
        .map_err(|_| invalid("merchant_id", "must be a merchant's id"))
}

/// An identifier or number that is looked for, if any is.
pub fn given<T: FromStr>(field: &'static str, text: Option<&str>) -> Result<Option<T>> {
    let parsed = text.map(|text| {
        let fault = |_| invalid(field, "must be in the one form that we write");
        text.parse().map_err(fault)
    });
    parsed.transpose()
}

/// `id`: how the store orders the ids of the list.
pub fn page<I: FromStr + Display>(
    asked: PageAsked<'_>,
    id: impl FnOnce(I) -> Uuid,
) -> Result<PageRequest<Uuid>> {
    asked
        .parse(id)
        .map_err(|fault| invalid(fault.field, fault.message))
}

pub fn wanted_charges(request: &ListChargesRequest) -> Result<WantedCharges> {
    let amount = |field, amount: Option<&ProtoMoney>| {
        let cedis = amount.map(|amount| cedis(field, Some(amount)));
        cedis.transpose()
    };
    let status = match request.status() {
        ProtoChargeStatus::Unspecified => None,
        status => Some(
            ChargeStatus::try_from(status)
                .map_err(|_| invalid("status", "must be one of the statuses"))?,
        ),
    };
    let provider = match request.provider() {
        ProtoProvider::Unspecified => None,
        provider => {
            Some(Provider::try_from(provider).map_err(|_| invalid("provider", MUST_BE_PROVIDER))?)
        }
    };
    let payer = request.payer.as_ref();
    let email = payer.map(|payer| &payer.email);
    if email.is_some_and(String::is_empty) {
        return Err(invalid("payer.email", "must not be empty"));
    }
    let or_phone = payer.and_then(|payer| payer.phone.as_deref());
    Ok(WantedCharges {
        merchant_id: merchant_id(&request.merchant_id)?,
        email: email.cloned(),
        or_phone: given("payer.phone", or_phone)?,
        reference: given("reference", request.reference.as_deref())?,
        session_id: given("session_id", request.session_id.as_deref())?,
        phone: match payer {
            Some(_) => None,
            None => given("phone", request.phone.as_deref())?,
        },
        status,
        provider,
        tx_id_display: given("tx_id_display", request.tx_id_display.as_deref())?,
        failure_reason: given("failure_reason", request.failure_reason.as_deref())?,
        amount_from: amount("amount_from", request.amount_from.as_ref())?,
        amount_to: amount("amount_to", request.amount_to.as_ref())?,
        is_open: request.is_open,
    })
}

pub fn new_charge(request: CreateChargeRequest) -> Result<NewCharge> {
    let amount = cedis("amount", request.amount.as_ref())?;
    let (provider, phone) = payer(request.provider(), &request.mobile_number)?;
    Ok(NewCharge {
        merchant_id: merchant_id(&request.merchant_id)?,
        merchant_name: text("merchant_name", request.merchant_name, NAME_CHARACTERS_MAX)?,
        amount,
        phone,
        provider,
        description: optional(
            "description",
            request.description,
            DESCRIPTION_CHARACTERS_MAX,
        )?,
        payer_email: optional("payer_email", request.payer_email, EMAIL_CHARACTERS_MAX)?,
        payer_name: optional("payer_name", request.payer_name, NAME_CHARACTERS_MAX)?,
        hosted: request
            .hosted
            .map(|session| hosted(&session, amount))
            .transpose()?,
        asked_by: asked_by(request.asked_by),
    })
}

/// Which request asked for it, if a program's did. It is for the record alone: what does not fit there
/// is left out, and refuses nothing.
pub fn asked_by(asked_by: Option<ProtoAskedBy>) -> AskedBy {
    let ProtoAskedBy {
        request_id,
        key_name,
    } = asked_by.unwrap_or_default();
    let fitting = |name, text, most| optional(name, text, most).ok().flatten();
    AskedBy {
        request_id: fitting("request_id", request_id, REQUEST_ID_CHARACTERS_MAX),
        key_name: fitting("key_name", key_name, NAME_CHARACTERS_MAX),
    }
}

/// The wallet that a payer would be charged by.
pub fn wallet(request: &CheckWalletRequest) -> Result<(Provider, Phone)> {
    payer(request.provider(), &request.mobile_number)
}

fn payer(provider: ProtoProvider, mobile_number: &str) -> Result<(Provider, Phone)> {
    let provider =
        Provider::try_from(provider).map_err(|_| invalid("provider", MUST_BE_PROVIDER))?;
    let phone = Phone::parse_ghana_mobile(mobile_number)
        .map_err(|_| invalid("mobile_number", "must be a Ghana mobile number"))?;
    Ok((provider, phone))
}

/// A positive amount of GHS.
pub fn cedis(field: &'static str, money: Option<&ProtoMoney>) -> Result<Money> {
    let amount = amount(field, money)?;
    if amount.currency() != Currency::GHS {
        return Err(invalid(field, "must be in GHS"));
    }
    Ok(amount)
}

/// What somebody was shown before asking for a payout.
pub fn seen_terms(seen: &SeenPayoutTerms) -> Result<SeenTerms> {
    let fee = seen.fee.as_ref().map(Money::try_from);
    let (Some(Ok(fee)), Ok(account_updated_at)) = (fee, seen.account_updated_at.parse()) else {
        return Err(invalid(
            "seen",
            "must be a fee and when the account was set",
        ));
    };
    Ok(SeenTerms {
        fee,
        account_updated_at,
    })
}

/// Where payouts go.
pub fn destination(request: SetPayoutAccountRequest) -> Result<Destination> {
    let holder_name = text(
        "holder_name",
        request.holder_name.trim().to_owned(),
        NAME_CHARACTERS_MAX,
    )?;
    let account = request.account.trim();
    let destination_type = DestinationType::try_from(request.r#type())
        .map_err(|_| invalid("type", "must be mobile money or a bank"))?;
    let (provider, account) = match destination_type {
        DestinationType::MobileMoney => {
            let provider = Provider::try_from(request.provider())
                .map_err(|_| invalid("provider", MUST_BE_PROVIDER))?;
            let phone = Phone::parse_ghana_mobile(account)
                .map_err(|_| invalid("account", "must be a Ghana mobile number"))?;
            (provider.code().to_owned(), phone.as_e164().to_owned())
        }
        DestinationType::Bank => {
            let code = request.bank_code.trim();
            let is_code = code.bytes().all(|b| b.is_ascii_alphanumeric());
            if !is_code || !(1..=20).contains(&code.len()) {
                return Err(invalid("bank_code", "must be a bank's code"));
            }
            let is_number = account.bytes().all(|b| b.is_ascii_digit());
            if !is_number || !(1..=34).contains(&account.len()) {
                return Err(invalid("account", "must be an account number"));
            }
            (code.to_owned(), account.to_owned())
        }
    };
    Ok(Destination {
        destination_type,
        provider,
        account,
        holder_name: Some(holder_name),
    })
}

/// What treasury did.
pub fn note(note: &str) -> Result<String> {
    text("note", note.trim().to_owned(), EVIDENCE_MAX)
}

pub fn idempotency_key(key: &str) -> Result<String> {
    if !is_visible_ascii(key.as_bytes(), MARKED_KEY_CHARACTERS_MAX) {
        return Err(invalid(
            "idempotency_key",
            format!("must be 1 to {MARKED_KEY_CHARACTERS_MAX} visible ASCII characters"),
        ));
    }
    Ok(key.to_owned())
}

fn failure_reason(code: &str) -> Result<FailureReason> {
    code.parse()
        .map_err(|_| invalid("failed_reason", "must be one of the failure reasons"))
}

/// The same for a disbursement: what a payee or a rail can be the reason of. Our empty float is never
/// told as anybody's want of funds.
pub fn disbursement_failure_reason(code: &str) -> Result<FailureReason> {
    use FailureReason as Why;
    let reason = failure_reason(code)?;
    match reason {
        Why::PayeeNotFound
        | Why::PayeeLimitReached
        | Why::PayeeAccountBlocked
        | Why::RailUnavailable
        | Why::RailConfiguration
        | Why::RailError => Ok(reason),
        _ => Err(invalid(
            "failed_reason",
            "must be a reason of payouts and refunds",
        )),
    }
}

/// The same for a charge, which has a payer but no payee of ours.
pub fn charge_failure_reason(code: &str) -> Result<FailureReason> {
    let reason = failure_reason(code)?;
    match reason.is_of_disbursements() {
        true => Err(invalid("failed_reason", "must be a reason of charges")),
        false => Ok(reason),
    }
}

pub fn evidence(evidence: &str) -> Result<String> {
    text("evidence", evidence.trim().to_owned(), EVIDENCE_MAX)
}

/// What an operator decides about a case. Only a release may have a reason to override, and only
/// what was refunded already has evidence.
pub fn decision(request: CloseCaseRequest) -> Result<Decision> {
    const REASON: &str = "override_reason";
    let action = request.action();
    if action != Action::Release && request.override_reason.is_some() {
        return Err(invalid(REASON, "is for a release alone"));
    }
    if action != Action::Refunded && request.evidence.is_some() {
        return Err(invalid("evidence", "is for what was refunded already"));
    }
    match action {
        Action::Refund => Ok(Decision::Refund),
        Action::Refunded => evidence(&request.evidence.unwrap_or_default()).map(Decision::Refunded),
        Action::Release => {
            let reason = request.override_reason;
            let reason = reason.map(|reason| reason.trim().to_owned());
            optional(REASON, reason, EVIDENCE_MAX).map(Decision::Release)
        }
        Action::Unspecified => {
            let message = "must be refund, refunded or release";
            Err(invalid("action", message))
        }
    }
}

/// The session that a hosted charge pays. Its amount at its rate must be the amount debited.
fn hosted(session: &HostedSession, debited: Money) -> Result<HostedPayment> {
    let session_id: SessionId = session
        .session_id
        .parse()
        .map_err(|_| invalid("hosted.session_id", "must be a session's id"))?;
    let amount = amount("hosted.amount", session.amount.as_ref())?;
    let rate = session.rate.as_deref().map(str::parse::<Decimal>);
    let rate = rate
        .transpose()
        .map_err(|_| invalid("hosted.rate", "must be a decimal"))?;
    let quoted = match rate {
        None => amount,
        Some(rate) => {
            let is_positive = rate.is_sign_positive() && !rate.is_zero();
            let converted = amount.convert(rate, Currency::GHS).ok();
            let converted = converted.filter(|_| is_positive && amount.currency() != Currency::GHS);
            converted.ok_or(invalid("hosted.rate", "must be a positive rate to GHS"))?
        }
    };
    if quoted != debited {
        return Err(invalid(
            "amount",
            "must be the session's amount at the rate",
        ));
    }
    Ok(HostedPayment {
        session_id,
        amount,
        // In the one form that others can read, however it was written.
        rate: rate.map(|rate| rate.normalize().to_string()),
    })
}

/// Gateways of older versions send the one header of a rail that signs its callbacks by itself.
pub fn callback(rail: RailName, request: ReceiveCallbackRequest) -> Callback {
    let mut headers = request.headers;
    if let (Some(signature), [header]) = (request.signature, rail.terms().callback_headers) {
        headers.insert((*header).to_owned(), signature);
    }
    Callback {
        token: request.token,
        headers,
        body: request.body,
    }
}

fn amount(field: &'static str, money: Option<&ProtoMoney>) -> Result<Money> {
    let money = money.ok_or(invalid(field, "is missing"))?;
    let money =
        Money::try_from(money).map_err(|_| invalid(field, "must be in a known currency"))?;
    // Currencies have 0 to 4 decimals, so it is the major units that are limited.
    let most = Decimal::new(AMOUNT_HUNDREDTHS_MAX, 2);
    if !money.is_positive() || money.to_major() > most {
        let message = format!("must be positive and at most {most}");
        return Err(invalid(field, message));
    }
    Ok(money)
}

fn optional(field: &'static str, value: Option<String>, most: usize) -> Result<Option<String>> {
    value.map(|value| text(field, value, most)).transpose()
}

fn text(field: &'static str, value: String, most: usize) -> Result<String> {
    let is_short = (1..=most).contains(&value.chars().count());
    if !is_short || value.chars().any(char::is_control) {
        return Err(invalid(
            field,
            "must be a short text without control characters",
        ));
    }
    Ok(value)
}

pub fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    let message = message.into();
    Error::Invalid { field, message }
}
