//! What is sent to Paystack.

use chassis::provider::Provider;
use serde::Serialize;

use crate::answer::PaymentRequest;

/// `POST /charge`
#[derive(Serialize)]
pub struct Charge {
    email: String,
    /// Pesewas.
    amount: i64,
    currency: &'static str,
    reference: String,
    mobile_money: MobileMoney,
    metadata: Metadata,
}

#[derive(Serialize)]
struct MobileMoney {
    phone: String,
    provider: &'static str,
}

#[derive(Serialize)]
struct Metadata {
    reference: String,
}

#[derive(Serialize)]
pub struct Otp<'a> {
    pub otp: &'a str,
    pub reference: String,
}

impl Charge {
    pub fn new(request: &PaymentRequest, email_domain: &str) -> Self {
        let stand_in = || format!("{}@{email_domain}", request.rail_reference);
        Self {
            email: request.payer_email.clone().unwrap_or_else(stand_in),
            amount: request.amount.minor_units(),
            currency: request.amount.currency().code(),
            reference: request.rail_reference.to_string(),
            mobile_money: MobileMoney {
                phone: request.phone.local(),
                provider: provider_code(request.provider),
            },
            metadata: Metadata {
                reference: request.reference.to_string(),
            },
        }
    }
}

fn provider_code(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => "mtn",
        Provider::Telecel => "vod",
        Provider::At => "atl",
    }
}
