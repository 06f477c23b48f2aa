//! What two requests with one idempotency key must have in common: everything but the key.

use db::idempotency;

use crate::session::NewSession;

/// The fingerprint of the parsed values, however the request was spelled.
pub fn fingerprint(new: &NewSession) -> String {
    let amount = new.amount.minor_units().to_string();
    idempotency::fingerprint([
        Some(amount.as_str()),
        Some(new.amount.currency().code()),
        new.description.as_deref(),
        new.redirect_url.as_deref(),
        new.payer.phone.as_ref().map(|phone| phone.as_e164()),
        new.payer.email.as_deref(),
        new.payer.name.as_deref(),
    ])
}

#[cfg(test)]
mod tests {
    use chassis::{
        ids::MerchantId,
        money::{Currency, Money},
    };

    use super::*;
    use crate::customer::Payer;

    fn new() -> NewSession {
        NewSession {
            merchant_id: MerchantId::new(),
            amount: Money::new(2550, Currency::GHS),
            description: None,
            redirect_url: None,
            payer: Payer::default(),
        }
    }

    #[test]
    fn every_value_counts_and_none_is_taken_for_another() {
        let text = || Some("a".to_owned());
        let empty = || Some(String::new());
        let with = |payer| NewSession { payer, ..new() };
        let all = [
            new(),
            NewSession {
                amount: Money::new(2551, Currency::GHS),
                ..new()
            },
            NewSession {
                amount: Money::new(2550, Currency::USD),
                ..new()
            },
            NewSession {
                description: empty(),
                ..new()
            },
            NewSession {
                description: text(),
                ..new()
            },
            NewSession {
                redirect_url: text(),
                ..new()
            },
            with(Payer {
                phone: "+233241234567".parse().ok(),
                ..Payer::default()
            }),
            with(Payer {
                email: text(),
                ..Payer::default()
            }),
            with(Payer {
                name: text(),
                ..Payer::default()
            }),
        ];
        let mut prints: Vec<_> = all.iter().map(fingerprint).collect();
        prints.sort();
        prints.dedup();
        assert_eq!(prints.len(), all.len());
        // As every version so far has stored it.
        let stored = "518bc387ed4bb58d931a2dab73b80d59939abe6e730f07edd17ee766b201c7ca";
        assert_eq!(fingerprint(&new()), stored);
    }
}
