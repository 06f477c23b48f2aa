//! Which forms a login may interrupt, as a page tells of them.

use super::{
    business, keys, money_out,
    page::Field,
    payment_link,
    payouts::{account, new},
    webhooks::{conformance, doctor, endpoint, replay},
};

/// The form that somebody filled in for this path: what it is for, and its fields. `None` if nothing
/// is typed there but secrets: then a button was pressed, which is pressed again on its page.
pub fn of(path: &str) -> Option<(&'static str, Vec<Field>)> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let form = match *parts.as_slice() {
        ["payments", "new"] => ("Ask for a payment", payment_link::fields()),
        ["payments", reference, "refund"] => (
            "Refund a payment",
            vec![
                Field::text("", "Payment").value(reference),
                money_out::amount_field(""),
            ],
        ),
        ["payouts", "new"] => ("Ask for a payout", new::sent_fields()),
        ["payouts", "account", "set"] => ("Set the payout account", account::sent_fields()),
        ["settings", "business"] => ("Business", business::fields()),
        ["settings", "security", "email"] => ("Change your e-mail address", vec![Field::email()]),
        ["settings", "integrations", "keys", "new"] => {
            ("Create an API key", vec![keys::name_field()])
        }
        ["settings", "integrations", "keys", _, "revoke"] => {
            ("Revoke an API key", keys::revoked_fields())
        }
        ["settings", "integrations", "webhooks", ref page @ ..] => match *page {
            ["endpoint"] => ("Webhook address", endpoint::fields()),
            ["doctor"] => ("Signature doctor", doctor::fields()),
            ["replay"] => ("Replay what was missed", vec![replay::since_field()]),
            ["conformance", _] => ("Conformance run", vec![conformance::address_field()]),
            _ => return None,
        },
        _ => return None,
    };
    Some(form)
}
