//! What is true of a charge from its first record to its last.

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, MerchantId, RailReference, Reference, SessionId, TxIdDisplay},
    money::{Currency, Money},
    phone::Phone,
    provider::Provider,
};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

/// What a merchant is told is the way to pay.
pub const METHOD: &str = "MOBILE_MONEY";

/// What never changes once a charge is written.
#[derive(Clone, Debug, FromRow)]
pub struct Facts {
    pub transaction_id: ChargeId,
    pub merchant_id: MerchantId,
    /// For the payer's prompt. Absent where a version that kept none wrote the charge.
    pub merchant_name: Option<String>,
    pub session_id: SessionId,
    /// Paid at the hosted checkout: the session was there before.
    pub hosted: bool,
    /// Number of this charge within its session, from 1; void ones count.
    pub charge_number: i64,
    pub tx_id_display: TxIdDisplay,
    pub reference: Reference,
    pub rail: RailName,
    pub rail_reference: RailReference,
    pub callback_token: String,
    amount_minor: i64,
    currency: Currency,
    session_amount_minor: i64,
    session_currency: Currency,
    /// Units of the debited currency for one unit of the session's, where those differ.
    pub rate: Option<String>,
    pub provider: Provider,
    pub phone: Phone,
    pub description: Option<String>,
    pub payer_email: Option<String>,
    pub payer_name: Option<String>,
    /// The trace of the request that began it.
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
}

/// What somebody wants to debit; checked when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCharge {
    pub merchant_id: MerchantId,
    pub merchant_name: String,
    pub amount: Money,
    pub phone: Phone,
    pub provider: Provider,
    pub description: Option<String>,
    pub payer_email: Option<String>,
    pub payer_name: Option<String>,
    pub hosted: Option<Hosted>,
}

/// The session that a hosted charge pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    pub session_id: SessionId,
    /// In the session's currency.
    pub amount: Money,
    /// GHS for one unit of it; absent for a GHS session.
    pub rate: Option<String>,
}

impl Facts {
    /// With every identifier that the charge will ever have. `charge_number` and `traceparent` are
    /// set when it is written.
    pub fn new(new: &NewCharge, rail: RailName, now: Timestamp) -> Self {
        let tx_id_display = TxIdDisplay::new();
        let (session_id, session_amount, rate) = match &new.hosted {
            Some(hosted) => (hosted.session_id, hosted.amount, hosted.rate.clone()),
            None => (SessionId::new(), new.amount, None),
        };
        Self {
            transaction_id: ChargeId::new(),
            merchant_id: new.merchant_id,
            merchant_name: Some(new.merchant_name.clone()),
            session_id,
            hosted: new.hosted.is_some(),
            charge_number: 1,
            reference: Reference::new(&tx_id_display),
            tx_id_display,
            rail,
            rail_reference: RailReference::new(),
            callback_token: Uuid::new_v4().simple().to_string(),
            amount_minor: new.amount.minor_units(),
            currency: new.amount.currency(),
            session_amount_minor: session_amount.minor_units(),
            session_currency: session_amount.currency(),
            rate,
            provider: new.provider,
            phone: new.phone.clone(),
            description: new.description.clone(),
            payer_email: new.payer_email.clone(),
            payer_name: new.payer_name.clone(),
            traceparent: None,
            created_at: now,
        }
    }

    /// What the payer is debited.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    /// The same as its session counts it.
    pub fn session_amount(&self) -> Money {
        Money::new(self.session_amount_minor, self.session_currency)
    }
}
