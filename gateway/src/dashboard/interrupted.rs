//! What a login or a confirmation interrupts: where somebody was going, and the form that they had
//! sent. It is carried through, and nothing that was typed is lost.

use axum::response::Response;
use http::StatusCode;
use url::form_urlencoded;

use super::{
    page::{Field, FormPage, Shell, respond, told},
    text::{Text, filters},
};
use crate::pages::{form::FormFields, see};

/// Where to go after a login, and a form to send again there.
#[derive(Clone, Debug)]
pub struct Carried {
    /// A path of ours.
    pub then: String,
    /// The fields of the form, encoded as it was; `None` if there was none.
    pub form: Option<String>,
}

/// Tells of a path what the form that is sent there is for, and its fields, if somebody fills it in.
pub type Forms = fn(path: &str) -> Option<(&'static str, Vec<Field>)>;

/// Fields that nobody's page holds for later.
const NEVER_CARRIED: [&str; 4] = ["password", "current_password", "code", "carried"];

/// The field that names whose page a form stood on.
const PERSON: &str = "person";

impl Carried {
    pub fn new(forms: Forms, path: &str, fields: &FormFields) -> Self {
        if forms(path).is_none() {
            return Self::to(page_of(path));
        }
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields.pairs() {
            if !NEVER_CARRIED.contains(&name) {
                form.append_pair(name, value);
            }
        }
        Self {
            then: path.to_owned(),
            form: Some(form.finish()),
        }
    }

    /// To this address, if it is a path of ours, and else to the overview.
    pub fn to(then: &str) -> Self {
        let is_ours = then.starts_with('/')
            && !then.starts_with("//")
            && then.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
        Self {
            then: if is_ours { then } else { "/" }.to_owned(),
            form: None,
        }
    }

    /// What the form of a login or a confirmation was carrying.
    pub fn read(fields: &FormFields) -> Self {
        let form = fields.exact("carried");
        Self {
            form: (!form.is_empty()).then(|| form.to_owned()),
            ..Self::to(fields.get("then"))
        }
    }

    pub fn hidden(&self) -> Vec<(&'static str, String)> {
        let mut hidden = vec![("then", self.then.clone())];
        hidden.extend(self.form.clone().map(|form| ("carried", form)));
        hidden
    }

    /// Goes on: to the page, or to a page with this frame that shows what was typed and sends the form
    /// again once its person says so. Somebody else gets the empty form: a browser may be shared.
    pub fn go_on(
        &self,
        forms: Forms,
        person_id: &str,
        shell: impl FnOnce(&'static str) -> Shell,
    ) -> Response {
        let Some(form) = &self.form else {
            return see(&self.then);
        };
        let Some((what, mut fields)) = forms(&self.then) else {
            return see(page_of(&self.then));
        };
        let sent: Vec<(String, String)> = form_urlencoded::parse(form.as_bytes())
            .into_owned()
            .collect();
        let is_of = |(name, value): &(String, String)| name != PERSON || value == person_id;
        if !sent.iter().all(is_of) {
            return see(page_of(&self.then));
        }
        for field in &mut fields {
            let values = sent.iter().filter(|(name, _)| *name == field.name);
            let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
            if !values.is_empty() {
                field.value = values.join(" ");
            }
        }
        let page = SendAgainPage {
            shell: shell("Send it again"),
            what,
            typed: told(&fields),
            action: self.then.clone(),
            hidden: sent,
        };
        respond(StatusCode::OK, page.shell.language, &page)
    }
}

/// The page with the form or the button that sends to this path.
fn page_of(path: &str) -> &str {
    match path {
        "/verify-email" => "/",
        "/settings/security/logins/end" => "/settings/security",
        "/settings/security/totp/confirm" => "/settings/security/totp",
        "/settings/integrations/webhooks/enabled" => "/settings/integrations/webhooks",
        "/payouts/account/daily" => "/payouts/account",
        _ => path.strip_suffix("/redeliver").unwrap_or(path),
    }
}

/// The form for a password, in place of what a form that was sent would have done.
pub fn login_first(carried: &Carried) -> Response {
    let mut page = login_form("", Some(carried));
    if carried.form.is_none() {
        page.notice =
            Some("You were logged out, so nothing was done. Log in and try again.".into());
    }
    page.respond(StatusCode::UNAUTHORIZED)
}

/// The form for a password. `carried`: a form that the login interrupted.
pub fn login_form(email: &str, carried: Option<&Carried>) -> FormPage {
    let has_form = carried.is_some_and(|carried| carried.form.is_some());
    let mut page = FormPage::new(Shell::outside("Log in"), "/login", "Log in");
    if has_form {
        let kept =
            "You were logged out. What you typed is kept: log in, and you can send it again.";
        page.notice = Some(kept.into());
    }
    page.hidden = carried.map(Carried::hidden).unwrap_or_default();
    page.fields = vec![Field::email().value(email), Field::password()];
    page.links = vec![
        ("Forgot your password?", "/forgot"),
        ("No account yet? Sign up", "/signup"),
    ];
    page
}

/// The form for the password, or for a code, once more.
pub fn confirm_form(shell: Shell, has_totp: bool, carried: &Carried) -> FormPage {
    let mut page = FormPage::new(shell, "/confirm", "Confirm");
    let (lead, field) = match has_totp {
        true => (
            "This needs a code of your authenticator once more, or one of your recovery codes. It counts for five minutes.",
            Field::code(),
        ),
        false => (
            "This needs your password once more. It counts for five minutes.",
            Field::password(),
        ),
    };
    page.lead = vec![lead.into()];
    page.hidden = carried.hidden();
    page.fields = vec![field];
    page
}

/// A page that sends an interrupted form again.
#[derive(Debug, askama::Template)]
#[template(path = "dashboard/send_again.html")]
struct SendAgainPage {
    shell: Shell,
    /// What the form is for.
    what: &'static str,
    /// Label and value.
    typed: Vec<(&'static str, Text)>,
    action: String,
    hidden: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::{Carried, SendAgainPage};
    use crate::dashboard::text::tests::{check_marked, shell};

    #[test]
    fn the_page_that_sends_a_form_again_is_written_in_its_language() {
        check_marked(&SendAgainPage {
            shell: shell(),
            what: "Ask for a payout",
            typed: vec![("Amount in GHS", "20".into())],
            action: "/x".to_owned(),
            hidden: vec![("a".to_owned(), "1".to_owned())],
        });
    }

    #[test]
    fn after_a_login_nobody_is_sent_elsewhere() {
        let to = |then: &str| Carried::to(then).then;
        assert_eq!(to("/payments?status=FAILED"), "/payments?status=FAILED");
        for elsewhere in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "javascript:alert(1)",
            "",
            "/a\r\nSet-Cookie: x",
            "payments",
        ] {
            assert_eq!(to(elsewhere), "/", "{elsewhere}");
        }
    }
}
