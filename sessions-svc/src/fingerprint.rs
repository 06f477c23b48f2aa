//! What two requests with one idempotency key must have in common: everything but the key.

use sha2::{Digest, Sha256};

use crate::session::NewSession;

/// SHA-256, in hex, over the parsed values. How a request was spelled does not matter.
pub fn fingerprint(new: &NewSession) -> String {
    let amount = new.amount.minor_units().to_string();
    let values = [
        Some(amount.as_str()),
        Some(new.amount.currency().code()),
        new.description.as_deref(),
        new.redirect_url.as_deref(),
        new.payer.phone.as_ref().map(|phone| phone.as_e164()),
        new.payer.email.as_deref(),
        new.payer.name.as_deref(),
    ];
    let mut digest = Sha256::new();
    for value in values {
        // With its length, so that no two lists of values read the same; -1: there is none.
        let length = value.map_or(-1, |value| i64::try_from(value.len()).unwrap_or(i64::MAX));
        digest.update(length.to_be_bytes());
        digest.update(value.unwrap_or_default());
    }
    hex::encode(digest.finalize())
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
        assert_eq!(fingerprint(&new()), fingerprint(&new()));
    }
}
