//! What is true of a charge from beginning to end.

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

use crate::asked_by::AskedBy;

/// The payment method that merchants see.
pub const METHOD: &str = "MOBILE_MONEY";

/// What never changes once a charge is recorded.
#[derive(Clone, Debug, FromRow)]
pub struct Facts {
    pub transaction_id: ChargeId,
    pub merchant_id: MerchantId,
    /// For the payer's prompt. Absent if the charge was written by a version that did not store
    /// it.
    pub merchant_name: Option<String>,
    pub session_id: SessionId,
    /// Whether it is paid at the hosted checkout, so that its session existed before.
    pub hosted: bool,
    /// Number of this charge within its session, from 1. Void charges count.
    pub charge_number: i64,
    pub tx_id_display: TxIdDisplay,
    pub reference: Reference,
    /// As it was stored; only a newer version may know it.
    pub rail: String,
    pub rail_reference: RailReference,
    pub callback_token: String,
    amount_minor: i64,
    currency: Currency,
    session_amount_minor: i64,
    session_currency: Currency,
    /// Units of the debited currency for one unit of the session's, if they differ.
    pub rate: Option<String>,
    pub provider: Provider,
    pub phone: Phone,
    pub description: Option<String>,
    pub payer_email: Option<String>,
    pub payer_name: Option<String>,
    /// The trace of the request that created it.
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    #[sqlx(flatten)]
    pub asked_by: AskedBy,
}

/// A requested debit, checked when it was parsed.
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
    pub hosted: Option<HostedPayment>,
    pub asked_by: AskedBy,
}

/// The session that a hosted charge pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedPayment {
    pub session_id: SessionId,
    /// In the session's currency.
    pub amount: Money,
    /// GHS for one unit of that currency. Absent for a GHS session.
    pub rate: Option<String>,
}

impl Facts {
    /// The facts of a new charge, with every identifier that it will ever have. `charge_number`
    /// and `traceparent` are set when it is written.
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
            rail: rail.code().to_owned(),
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
            asked_by: new.asked_by.clone(),
        }
    }

    /// The amount debited from the payer.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    /// The same amount in the session's currency.
    pub fn session_amount(&self) -> Money {
        Money::new(self.session_amount_minor, self.session_currency)
    }
}
