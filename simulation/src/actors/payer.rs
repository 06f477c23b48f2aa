//! A payer at the hosted checkout, in a browser without scripts, with one or several tabs.

use futures::future::join_all;

use super::{Stage, merchant};
use crate::{
    choice::Choices,
    history::{CodeEntry, Order, RequestEnd, SessionTold, phone},
    time::{MINUTE, Millis, SECOND},
};

/// Most forms that one tab sends.
const FORMS_MAX: u64 = 3;

/// Creates a payment link and pays it.
pub async fn pay_link(stage: Stage, number: u64) {
    let mut choices = Choices::of(stage.world.seed, &format!("link {number}"));
    stage.world.time.sleep(choices.below(2 * MINUTE)).await;
    let Some(session) = merchant::make_session(&stage, &mut choices, number).await else {
        return;
    };
    let tabs = choices.weighted(&[(50, 1_u64), (35, 2), (15, 3)]);
    join_all((0..tabs).map(|tab| {
        let mut choices = Choices::of(stage.world.seed, &format!("link {number} tab {tab}"));
        let sessions_end = choices.chance(60);
        let tab = Tab {
            stage: stage.clone(),
            session: session.clone(),
            phones: number * 100 + tab * 10,
            // Some arrive only when the session is about to expire.
            begin: if sessions_end {
                24 * 60 * MINUTE - 30 * SECOND
            } else {
                0
            },
            choices,
        };
        tab.run()
    }))
    .await;
    for _ in 0..2 {
        stage
            .world
            .time
            .sleep(choices.between(MINUTE, 10 * MINUTE))
            .await;
        merchant::read_session(&stage, session.merchant, &session.session_id).await;
    }
}

struct Tab {
    stage: Stage,
    session: SessionTold,
    /// The payer's first number; each form gets the next.
    phones: u64,
    begin: Millis,
    choices: Choices,
}

impl Tab {
    async fn run(mut self) {
        let time = self.stage.world.time.clone();
        time.sleep(self.begin + self.choices.below(2 * MINUTE))
            .await;
        let mut forms = 0;
        for _ in 0..12 {
            let page = self.look().await;
            match PageOffer::of(&page) {
                PageOffer::Form { attempt, quote } if forms < FORMS_MAX => {
                    // The payer takes time, while another tab may pay.
                    let most = self.choices.weighted(&[(50, 5 * SECOND), (50, MINUTE)]);
                    time.sleep(self.choices.below(most)).await;
                    self.send_form(forms, &attempt, &quote).await;
                    forms += 1;
                }
                PageOffer::Code { reference } => self.send_code(&reference).await,
                PageOffer::Form { .. } => return,
                PageOffer::Other => {}
            }
            time.sleep(self.choices.between(2 * SECOND, 60 * SECOND))
                .await;
        }
    }

    async fn look(&self) -> String {
        let request = self
            .stage
            .client
            .get(self.stage.page(&self.session.session_id, ""));
        page_of(&self.stage.ask(request, 20 * SECOND).await)
    }

    /// Sends the form, perhaps twice: a double tap.
    async fn send_form(&mut self, form: u64, attempt: &str, quote: &str) {
        let phone = phone(self.phones + form);
        let network = self
            .choices
            .weighted(&[(55, "MTN"), (30, "TELECEL"), (15, "AT")]);
        let order = self.stage.history.order(Order {
            merchant: self.session.merchant,
            phone: phone.clone(),
            amount_minor: None,
            keyed: true,
            session: Some(self.session.session_id.clone()),
            tries: Vec::new(),
        });
        let body =
            format!("attempt={attempt}&quote={quote}&network={network}&mobile_number={phone}");
        let times = if self.choices.chance(200) { 2 } else { 1 };
        let stage = &self.stage;
        join_all((0..times).map(async |_| {
            let sent = stage.history.sent(order, stage.world.time.now());
            let request = stage.client.post(stage.page(&self.session.session_id, ""));
            let told = stage.ask(posted(request, body.clone()), 30 * SECOND).await;
            stage.history.told(sent, as_api(told));
        }))
        .await;
    }

    async fn send_code(&mut self, reference: &str) {
        let code = self.choices.weighted(&[(65, "123456"), (35, "999999")]);
        let request = self
            .stage
            .client
            .post(self.stage.page(&self.session.session_id, "/code"));
        let request = posted(request, format!("reference={reference}&otp={code}"));
        let sent_at = self.stage.world.time.now();
        self.stage.ask(request, 30 * SECOND).await;
        self.stage.history.code(CodeEntry {
            sent_at,
            reference: reference.to_owned(),
            // What the page says about it is for people.
            told: RequestEnd::Nothing,
        });
    }
}

fn posted(request: reqwest::RequestBuilder, body: String) -> reqwest::RequestBuilder {
    request
        .header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .body(body)
}

/// A form that comes back with 503 says that nothing was sent.
fn as_api(told: RequestEnd) -> RequestEnd {
    let page = page_of(&told);
    match told {
        RequestEnd::Answer { at, status, .. } => RequestEnd::Answer {
            at,
            status,
            body: serde_json::Value::Null,
            retry_after: status == 503 && field(&page, "attempt").is_some(),
        },
        RequestEnd::Nothing => RequestEnd::Nothing,
    }
}

fn page_of(told: &RequestEnd) -> String {
    match told {
        RequestEnd::Answer { body, .. } => body.as_str().unwrap_or_default().to_owned(),
        RequestEnd::Nothing => String::new(),
    }
}

/// What a page lets the payer do.
enum PageOffer {
    Form { attempt: String, quote: String },
    Code { reference: String },
    Other,
}

impl PageOffer {
    fn of(page: &str) -> Self {
        if let Some(attempt) = field(page, "attempt") {
            let quote = field(page, "quote").unwrap_or_default();
            return Self::Form { attempt, quote };
        }
        let code = field(page, "reference").filter(|_| page.contains("name=\"otp\""));
        code.map_or(Self::Other, |reference| Self::Code { reference })
    }
}

/// The value of a hidden field.
fn field(page: &str, name: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.to_owned())
}
