//! Payers and customers, and how a payer is recognised as a customer. No I/O.
//!
//! Rules of the directory (spec §2.4):
//! - A payer is the customer with the same phone, else the one with the same e-mail (whatever its
//!   case), else a new one. A name alone neither matches nor adds a customer.
//! - A missing phone or e-mail of a recognised customer is filled in, unless another customer has
//!   it. An existing one is never replaced, so two customers are never merged.
//! - A customer whom the merchant named without a phone learns that of the wallet that paid, unless
//!   another customer has it.
//! - The name is the last one that the merchant gave.

use chassis::{
    clock::Timestamp,
    ids::{CustomerId, MerchantId},
    phone::Phone,
};
use sqlx::FromRow;

/// Who pays, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Payer {
    #[sqlx(rename = "payer_phone")]
    pub phone: Option<Phone>,
    #[sqlx(rename = "payer_email")]
    pub email: Option<String>,
    #[sqlx(rename = "payer_name")]
    pub name: Option<String>,
}

impl Payer {
    /// What is known here, completed from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            phone: self.phone.or(other.phone),
            email: self.email.or(other.email),
            name: self.name.or(other.name),
        }
    }

    /// Whether there is a phone or an e-mail to recognise the payer by.
    pub fn is_identified(&self) -> bool {
        self.phone.is_some() || self.email.is_some()
    }

    /// The form that an e-mail address is recognised by: lower case.
    pub fn email_key(&self) -> Option<String> {
        self.email.as_deref().map(str::to_lowercase)
    }
}

/// A payer whom a merchant's session or charge has named.
#[derive(Clone, Debug)]
pub struct NamedPayer {
    pub merchant_id: MerchantId,
    pub payer: Payer,
    pub named_at: Timestamp,
}

/// An entry of a merchant's directory.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Customer {
    pub customer_id: CustomerId,
    pub merchant_id: MerchantId,
    pub phone: Option<Phone>,
    pub email: Option<String>,
    pub email_key: Option<String>,
    pub name: Option<String>,
    pub created_at: Timestamp,
    /// When the latest of its charges settled.
    pub last_payment_at: Option<Timestamp>,
    /// How many of its charges settled.
    pub payments_count: i64,
    /// `last_payment_at`, or 1970 before the first payment.
    pub listed_at: Timestamp,
}

/// The customers with a payer's phone and with its e-mail; they may be the same.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    pub by_phone: Option<Customer>,
    pub by_email: Option<Customer>,
}

impl Matches {
    /// The customer that the payer is recognised as, completed with what the payer adds.
    pub fn recognise(&self, payer: &Payer) -> Option<Customer> {
        let mut customer = self.by_phone.as_ref().or(self.by_email.as_ref())?.clone();
        if self.by_phone.is_none() && customer.phone.is_none() {
            customer.phone.clone_from(&payer.phone);
        }
        if self.by_email.is_none() && customer.email.is_none() {
            customer.email.clone_from(&payer.email);
            customer.email_key = payer.email_key();
        }
        if payer.name.is_some() {
            customer.name.clone_from(&payer.name);
        }
        Some(customer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(phone: &str, email: &str, name: &str) -> Payer {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Payer {
            phone: given(phone).map(|phone| phone.parse().unwrap()),
            email: given(email),
            name: given(name),
        }
    }

    fn customer(phone: &str, email: &str) -> Customer {
        let Payer { phone, email, name } = payer(phone, email, "");
        let at = Timestamp::from_unix_millis(0).unwrap();
        Customer {
            customer_id: CustomerId::new(),
            merchant_id: MerchantId::new(),
            phone,
            email_key: email.as_deref().map(str::to_lowercase),
            email,
            name,
            created_at: at,
            last_payment_at: None,
            payments_count: 0,
            listed_at: at,
        }
    }

    const AMA: &str = "+233241234567";
    const KOFI: &str = "+233201234567";

    #[test]
    fn the_phone_wins_over_the_email_and_nothing_is_merged() {
        let (ama, kofi) = (customer(AMA, ""), customer("", "kofi@example.com"));
        let matches = Matches {
            by_phone: Some(ama.clone()),
            by_email: Some(kofi),
        };
        let recognised = matches
            .recognise(&payer(AMA, "kofi@example.com", ""))
            .unwrap();
        assert_eq!(recognised, ama);
    }

    #[test]
    fn what_is_missing_is_filled_in_and_what_is_there_stays() {
        let by_phone = Matches {
            by_phone: Some(customer(AMA, "")),
            by_email: None,
        };
        let filled = by_phone
            .recognise(&payer(AMA, "Ama@Example.com", "Ama"))
            .unwrap();
        assert_eq!(filled.email.as_deref(), Some("Ama@Example.com"));
        assert_eq!(filled.email_key.as_deref(), Some("ama@example.com"));
        assert_eq!(filled.name.as_deref(), Some("Ama"));
        let by_email = Matches {
            by_phone: None,
            by_email: Some(customer(AMA, "ama@example.com")),
        };
        let kept = by_email
            .recognise(&payer(KOFI, "ama@example.com", ""))
            .unwrap();
        assert_eq!(kept.phone.unwrap().as_e164(), AMA);
    }

    #[test]
    fn a_name_alone_identifies_nobody() {
        assert!(!payer("", "", "Ama").is_identified());
        assert!(
            Matches::default()
                .recognise(&payer("", "", "Ama"))
                .is_none()
        );
    }
}
