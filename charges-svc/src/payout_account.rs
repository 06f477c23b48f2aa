//! Where a merchant's payouts go.

use chassis::{clock::Timestamp, ids::MerchantId};
use sqlx::FromRow;
use uuid::Uuid;

use crate::disbursement::Destination;

/// A merchant's payout account.
#[derive(Clone, Debug, FromRow)]
pub struct PayoutAccount {
    pub merchant_id: MerchantId,
    #[sqlx(flatten)]
    pub destination: Destination,
    /// The holder's name as the rail told it.
    pub rail_holder_name: Option<String>,
    /// Whether the merchant may ask for payouts.
    pub payouts_on_request: bool,
    pub daily_settlement: bool,
    /// Payouts wait until then.
    pub held_until: Timestamp,
    pub updated_at: Timestamp,
}

impl PayoutAccount {
    /// Enough for its merchant to recognise it: `MTN 024 ••• 4567, Ama Mensah`.
    pub fn masked(&self) -> String {
        let to = &self.destination;
        let holder = to.holder_name.as_deref().unwrap_or_default();
        format!("{} {}, {holder}", to.provider, to.masked())
    }
}

/// What a merchant's person asks for.
#[derive(Clone, Debug)]
pub struct OwnSetting {
    /// In merchants-svc.
    pub person_id: Uuid,
    pub destination: Destination,
    /// When the account that they saw was set; `None` if there was none.
    pub seen: Option<Timestamp>,
    /// The holder's name that they confirmed, empty if the rail told none; `None` if nothing is
    /// confirmed yet.
    pub confirmed_name: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub enum OwnOutcome {
    Set(PayoutAccount),
    /// Nothing was set: this is to be confirmed first.
    ToConfirm(HolderToConfirm),
}

/// What a rail tells about an account that a merchant asks for.
#[derive(Clone, Debug)]
pub struct HolderToConfirm {
    pub destination: Destination,
    /// The holder's name, if it tells one.
    pub told: Option<String>,
}

/// An account that was set in place of another, as its merchant is told and shown. Masked.
#[derive(Clone, Debug, FromRow)]
pub struct AccountChange {
    pub notice_id: Uuid,
    pub merchant_id: MerchantId,
    pub created_at: Timestamp,
    pub account_before: Option<String>,
    pub account_after: Option<String>,
    pub held_until: Option<Timestamp>,
    /// Who set it; `None` is an operator.
    pub person_id: Option<Uuid>,
}

/// Whether two spellings are one name: the same words in any order, whatever their case. A rail
/// often leaves out middle names, so the shorter one may lack words, but a name alone that many share
/// is nobody's.
pub fn is_same_name(ours: &str, theirs: &str) -> bool {
    let words = |name: &str| -> Vec<String> {
        let lower = name.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric());
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (ours, theirs) = (words(ours), words(theirs));
    let (fewer, more) = match ours.len() <= theirs.len() {
        true => (ours, theirs),
        false => (theirs, ours),
    };
    let is_enough = fewer.len() >= 2 || (fewer.len() == 1 && more.len() == 1);
    is_enough && fewer.iter().all(|word| more.contains(word))
}

#[cfg(test)]
mod tests {
    use super::is_same_name;

    #[test]
    fn names_are_compared_by_their_words() {
        for (ours, theirs, is_same) in [
            ("Ama Mensah", "MENSAH AMA", true),
            ("Ama K. Mensah", "Ama Mensah", true),
            ("Ama Mensah", "Kofi Mensah", false),
            ("Ama", "", false),
            ("", "", false),
            ("Mensah", "Ama Mensah", false),
            ("Ama Mensah", "AMA", false),
            ("Shoprite", "SHOPRITE", true),
            ("Akua's Shop Ltd.", "AKUA S SHOP LTD", true),
        ] {
            assert_eq!(is_same_name(ours, theirs), is_same, "{ours} {theirs}");
        }
    }
}
