//! What mails say: all of their words, by kind.

use chassis::clock::Timestamp;
use time::{format_description::BorrowedFormatItem, macros::format_description};

use crate::{mail::MailKind, merchant::KycStatus};

/// Ghana's time is UTC all year.
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[day padding:none] [month repr:long] [year], [hour]:[minute] GMT");

/// A mail as it is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Letter {
    pub subject: &'static str,
    pub body: String,
}

/// What a letter tells of.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What it was done to; may be empty.
    pub about: &'a str,
    /// Where the request came from; may be empty.
    pub address: &'a str,
    pub at: Timestamp,
    /// Of the dashboard, without a slash at its end.
    pub dashboard: &'a str,
    /// Where to go, with its secret; empty if this kind has none.
    pub link: &'a str,
}

/// Writes a letter.
pub fn write(kind: MailKind, facts: &Facts<'_>) -> Letter {
    let (subject, what) = match kind {
        MailKind::VerifyEmail => return verify_email(facts),
        MailKind::ConfirmEmail => return confirm_email(facts),
        MailKind::AddressWanted => return address_wanted(facts),
        MailKind::EmailChanged => return email_changed(facts),
        MailKind::AlreadyRegistered => return already_registered(facts),
        MailKind::ResetPassword => return reset_password(facts),
        MailKind::Invited => return invited(facts),
        MailKind::BusinessDecided => return business_decided(facts),
        MailKind::ApprovalEnds => return approval_ends(facts),
        MailKind::ApprovalEnded => return approval_ended(facts),
        MailKind::PayoutAccountSet => return payout_account_set(facts),
        MailKind::WebhookExhausted => return webhook_exhausted(facts),
        MailKind::EmailChangeRequested => (
            "Another e-mail address was asked for",
            "another e-mail address was asked for, for your account",
        ),
        MailKind::PasswordChanged => (
            "Your password was changed",
            "your password was changed, and all of your other logins were ended",
        ),
        MailKind::PasswordReset => (
            "Your password was changed",
            "your password was changed by a link that we had mailed you, and all of your logins \
             were ended",
        ),
        MailKind::TotpChanged => (
            "Your authenticator was changed",
            "an authenticator was set up for your account, and new recovery codes were made",
        ),
        MailKind::RecoveryCodesRenewed => (
            "New recovery codes were made",
            "new recovery codes were made for your account; the old ones no longer work",
        ),
        MailKind::RecoveryCodeUsed => (
            "A recovery code was used",
            "one of your recovery codes was used instead of your authenticator",
        ),
        MailKind::WrongCodes => (
            "Wrong codes were entered for your account",
            "a fifth wrong code was entered in place of your authenticator's, each within a day of the \
             one before, by somebody who knows your password or is logged in as you",
        ),
        MailKind::KeyCreated => ("An API key was created", "an API key was created"),
        MailKind::KeyRevoked => ("An API key was revoked", "an API key was revoked"),
        MailKind::WebhookChanged => (
            "A change of your webhook was asked for",
            "a change of your webhook was asked for",
        ),
        MailKind::WebhookSecretShown => (
            "Your webhook's secret was asked for",
            "the signing secret of your webhook was asked for, to be shown",
        ),
        MailKind::WebhookSecretRotated => (
            "Another secret for your webhook was asked for",
            "another signing secret for your webhook was asked for",
        ),
        MailKind::PayoutAccountChanged => (
            "A change of your payout account was asked for",
            "a change of the wallet that your payouts go to was asked for",
        ),
        MailKind::PayoutRequested => ("A payout was asked for", "a payout was asked for"),
        MailKind::RefundRequested => ("A refund was asked for", "a refund was asked for"),
    };
    notice(subject, what, facts)
}

fn verify_email(facts: &Facts<'_>) -> Letter {
    let link = facts.link;
    let body = format!(
        "Open this link within 24 hours and enter your password there, and your e-mail address is \
         verified:\n\n\
         {link}\n\n\
         If you have not signed up with us, leave it alone.\n"
    );
    let subject = "Verify your e-mail address";
    Letter { subject, body }
}

fn confirm_email(facts: &Facts<'_>) -> Letter {
    let link = facts.link;
    let body = format!(
        "Open this link within 24 hours and enter your password there, and you log in with this \
         e-mail address from then on:\n\n\
         {link}\n\n\
         If you have not asked for it, leave it alone.\n"
    );
    let subject = "Confirm your new e-mail address";
    Letter { subject, body }
}

fn address_wanted(facts: &Facts<'_>) -> Letter {
    let dashboard = facts.dashboard;
    let body = format!(
        "Somebody has tried to use your e-mail address for another account. You have an account \
         with it, so nothing has changed.\n\n\
         If it was you, log in at {dashboard}/login with this address.\n"
    );
    let subject = "Your e-mail address is in use already";
    Letter { subject, body }
}

/// `about` is the new address.
fn email_changed(facts: &Facts<'_>) -> Letter {
    let Facts {
        about,
        dashboard,
        link,
        ..
    } = facts;
    let body = format!(
        "Your account at {dashboard}/ no longer has this e-mail address, but {about}.\n\n\
         If this was not you: open this link within 7 days and choose another password there. Your \
         account then has this address again, and whoever is logged in is logged out:\n\n\
         {link}\n\n\
         And tell us.\n"
    );
    let subject = "Your e-mail address was changed";
    Letter { subject, body }
}

fn already_registered(facts: &Facts<'_>) -> Letter {
    let dashboard = facts.dashboard;
    let body = format!(
        "Somebody has tried to sign up with your e-mail address, which has an account already. \
         Nothing has changed.\n\n\
         If it was you, log in at {dashboard}/login, or choose another password at \
         {dashboard}/forgot\n"
    );
    let subject = "You have signed up already";
    Letter { subject, body }
}

fn reset_password(facts: &Facts<'_>) -> Letter {
    let link = facts.link;
    let body = format!(
        "Open this link within 30 minutes to choose another password:\n\n\
         {link}\n\n\
         If you have not asked for it, leave it alone: your password stays as it is.\n"
    );
    let subject = "Choose another password";
    Letter { subject, body }
}

/// `about` is the merchant's name.
fn invited(facts: &Facts<'_>) -> Letter {
    let Facts { about, link, .. } = facts;
    let body = format!(
        "You can now use the dashboard of {about}. Open this link within 7 days to choose your \
         password:\n\n\
         {link}\n\n\
         If you do not know {about}, leave it alone.\n"
    );
    let subject = "Your invitation to the dashboard";
    Letter { subject, body }
}

/// `about` is what an operator decided.
fn business_decided(facts: &Facts<'_>) -> Letter {
    let (subject, told) = match facts.about.parse() {
        Ok(KycStatus::Approved) => (
            "Your business is approved",
            "Your business is approved: you can take payments.",
        ),
        Ok(KycStatus::Rejected) => (
            "Your business is not approved yet",
            "We could not approve your business. You can correct what you told us.",
        ),
        Ok(KycStatus::InReview) => (
            "We are looking at your business",
            "We are looking at what you told us about your business. Until we have decided, you \
             cannot change it.",
        ),
        Ok(KycStatus::Pending | KycStatus::Expired) | Err(_) => (
            "Your business needs another approval",
            "Your business is no longer approved. Tell us about it anew.",
        ),
    };
    business(subject, told, facts)
}

/// `about` is the last day of the approval.
fn approval_ends(facts: &Facts<'_>) -> Letter {
    let told = format!(
        "The approval of your business ends with {}. Tell us about your business anew before then.",
        facts.about
    );
    business("Your approval ends soon", &told, facts)
}

fn approval_ended(facts: &Facts<'_>) -> Letter {
    let told = format!(
        "The approval of your business ended with {}, and you cannot take payments until there is \
         another. Tell us about your business anew, unless you have.",
        facts.about
    );
    business("Your approval has ended", &told, facts)
}

fn business(subject: &'static str, told: &str, facts: &Facts<'_>) -> Letter {
    let dashboard = facts.dashboard;
    let body = format!("{told}\n\nYou find the details at {dashboard}/settings/business\n");
    Letter { subject, body }
}

/// `about` says which account, which one before, and when.
fn payout_account_set(facts: &Facts<'_>) -> Letter {
    let Facts {
        about,
        address,
        dashboard,
        ..
    } = facts;
    let from = match *address {
        "" => String::new(),
        address => format!("The request came from {address}.\n\n"),
    };
    let body = format!(
        "Your payout account was set: {about}.\n\n\
         {from}\
         You find it at {dashboard}/payouts/account\n\n\
         If this was not you, and nobody of your business: choose another password at \
         {dashboard}/forgot at once, and tell us, so that no money goes there.\n"
    );
    let subject = "Your payout account was set";
    Letter { subject, body }
}

/// `about` says which event, to which address, and when.
fn webhook_exhausted(facts: &Facts<'_>) -> Letter {
    let Facts {
        about, dashboard, ..
    } = facts;
    let webhooks = format!("{dashboard}/settings/integrations/webhooks");
    let body = format!(
        "We stopped trying to deliver an event to your webhook: {about}.\n\n\
         You find it, and any others, at {webhooks}/deliveries?status=EXHAUSTED\n\n\
         Once your server answers again, have them all sent again at {webhooks}/replay\n"
    );
    let subject = "We stopped trying to deliver an event";
    Letter { subject, body }
}

/// As people in Ghana read it.
pub fn moment(at: Timestamp) -> String {
    let text = at.datetime().format(MOMENT);
    text.unwrap_or_else(|_| at.to_string())
}

/// What somebody did as the person who is mailed, and what to do if it was another.
fn notice(subject: &'static str, what: &str, facts: &Facts<'_>) -> Letter {
    let at = moment(facts.at);
    let about = match facts.about {
        "" => String::new(),
        about => format!(": {about}"),
    };
    let from = match facts.address {
        "" => String::new(),
        address => format!("The request came from {address}.\n\n"),
    };
    let dashboard = facts.dashboard;
    let body = format!(
        "On {at}, {what}{about}.\n\n\
         {from}\
         If this was not you: choose another password at {dashboard}/forgot at once, and tell us.\n"
    );
    Letter { subject, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts<'static> {
        Facts {
            about: "till (…x7Qz)",
            address: "192.0.2.7",
            at: "2026-11-05T09:05:00.000Z".parse().unwrap(),
            dashboard: "https://dash.example.com",
            link: "https://dash.example.com/reset/token",
        }
    }

    #[test]
    fn a_notice_says_what_when_from_where_and_what_to_do() {
        assert_eq!(
            write(MailKind::KeyCreated, &facts()).body,
            "On 5 November 2026, 09:05 GMT, an API key was created: till (…x7Qz).\n\n\
             The request came from 192.0.2.7.\n\n\
             If this was not you: choose another password at https://dash.example.com/forgot \
             at once, and tell us.\n"
        );
    }

    #[test]
    fn an_account_that_was_set_is_told_with_where_it_was_set_from_if_that_is_known() {
        let body = write(MailKind::PayoutAccountSet, &facts()).body;
        assert!(body.contains("was set: till (…x7Qz).\n\nThe request came from 192.0.2.7.\n\n"));
        assert!(body.contains("If this was not you"));
        let by_operator = Facts {
            address: "",
            ..facts()
        };
        let body = write(MailKind::PayoutAccountSet, &by_operator).body;
        assert!(!body.contains("came from"));
    }

    #[test]
    fn every_mail_leads_somewhere() {
        for kind in MailKind::ALL {
            let letter = write(*kind, &facts());
            assert!(letter.body.contains("https://dash.example.com/"), "{kind}");
        }
    }
}
