//! What another service has to tell a merchant, whoever did it.

use chassis::{
    clock::Timestamp,
    ids::{MerchantId, PersonId},
};
use uuid::Uuid;

use crate::{activity::Action, mail::MailKind};

chassis::closed_list! {
    /// What a notice tells.
    pub enum NoticeKind: "a kind of notice" {
        PayoutAccountSet = "PAYOUT_ACCOUNT_SET",
        WebhookExhausted = "WEBHOOK_EXHAUSTED",
    }
}

chassis::text_column!(NoticeKind);

impl NoticeKind {
    /// The mail that tells it.
    pub fn mail(self) -> MailKind {
        match self {
            Self::PayoutAccountSet => MailKind::PayoutAccountSet,
            Self::WebhookExhausted => MailKind::WebhookExhausted,
        }
    }

    /// What a person of the merchant does that leads to it.
    pub fn action(self) -> Option<Action> {
        match self {
            Self::PayoutAccountSet => Some(Action::PayoutAccountChanged),
            Self::WebhookExhausted => None,
        }
    }
}

/// A notice, told once.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Made by who tells it.
    pub notice_id: Uuid,
    pub merchant_id: MerchantId,
    pub kind: NoticeKind,
    /// What it tells of. Never a secret.
    pub about: String,
    /// When it became true.
    pub at: Timestamp,
    /// Whoever of the merchant did it.
    pub person_id: Option<PersonId>,
}
