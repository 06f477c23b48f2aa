//! `/`: what is left to do until the first payment has arrived, and how the merchant stands.
//!
//! Each step is computed from what is on record; none is clicked away.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use chassis::{config::Mode, money::Money};
use http::StatusCode;
use proto::{
    charges::GetBalanceRequest,
    merchants::{Business, KycStatus, MerchantKey},
    webhooks::{DeliveryStatus, EndpointHealth, ListMerchantDeliveriesRequest},
};

use super::{
    Dashboard, business,
    enter::parameter,
    figures::{Figure, Week},
    keys,
    login::Login,
    page::{Live, Refusal, Section, Shell, Table, first, heads, respond},
    text::{Phrase, Text, filters, moment, phrase},
    webhooks::GIVEN_UP,
};
use crate::{
    backend,
    error::Error,
    pages::{self, amount::shown},
};

const DELIVERIES: &str = "/settings/integrations/webhooks/deliveries";

#[derive(Debug, askama::Template)]
#[template(path = "dashboard/home.html")]
struct HomePage {
    shell: Shell,
    /// Empty once all are done.
    steps: Vec<Step>,
    /// Whether an authenticator is still to be set up. Nothing waits for it.
    lacks_totp: bool,
    figures: Vec<Figure>,
    /// `None` if it cannot be told right now.
    week: Option<Week>,
    /// How the networks do. `None` if it cannot be told right now.
    weather: Option<Table>,
    /// A command for the next step, and which key it needs.
    command: Option<(Phrase, String)>,
    is_verified: bool,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    is_done: bool,
    /// Whether all before it are done, and it is not.
    is_next: bool,
    /// What is to be done.
    lead: &'static str,
    /// Where: label and address.
    link: Option<(&'static str, &'static str)>,
}

impl Step {
    fn new(name: &'static str, is_done: bool, lead: &'static str) -> Self {
        Self {
            name,
            is_done,
            is_next: false,
            lead,
            link: None,
        }
    }

    fn at(self, label: &'static str, address: &'static str) -> Self {
        Self {
            link: Some((label, address)),
            ..self
        }
    }
}

pub async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    // The page does without them.
    let week = async { Ok(dashboard.week(&login).await.inspect_err(pages::report).ok()) };
    let weather = async { Ok(dashboard.weather().await.inspect_err(pages::report).ok()) };
    let (business, key, health, given_up, has_delivered, balance, week, weather) = tokio::try_join!(
        business::load(&dashboard, &login),
        keys::newest(&dashboard, &login),
        dashboard.health(&login),
        dashboard.given_up(&login),
        dashboard.has_delivered(&login),
        dashboard.available(&login),
        week,
        weather,
    )?;
    // What was collected once has a balance ever after, be it nothing.
    let has_payment = !balance.is_empty();
    let done = match parameter(query.as_deref(), "done").as_str() {
        "verification-sent" => Some("The link is on its way."),
        "verification-limit" => Some(
            "There were several messages already. Look into your mail, and into the folder for spam.",
        ),
        _ => None,
    };
    let has = Done {
        key: key.is_some(),
        endpoint: health.is_some(),
        payment: has_payment,
        delivery: has_delivered,
    };
    let mut steps = steps(&login, &business, &has);
    let steps_done = steps.iter().filter(|step| step.is_done).count();
    if let Some(next) = steps.iter_mut().find(|step| !step.is_done) {
        next.is_next = true;
    } else {
        steps.clear();
    }
    let mut shell = login.shell(Section::Home, "Overview").done(done);
    shell.live = Some(Live {
        is_open: !steps.is_empty(),
        state: phrase!("Steps that are done: {0}", steps_done.to_string()).into(),
    });
    let page = HomePage {
        shell,
        command: (!has_payment).then(|| (which_key(key.as_ref()), dashboard.first_payment())),
        is_verified: login.email_verified,
        lacks_totp: !login.has_totp,
        figures: figures(&balance, health.as_ref(), given_up),
        week,
        weather,
        steps,
    };
    Ok(respond(StatusCode::OK, page.shell.language, &page))
}

/// What is on record already.
struct Done {
    key: bool,
    endpoint: bool,
    payment: bool,
    delivery: bool,
}

/// All steps, in their order.
fn steps(login: &Login, business: &Business, has: &Done) -> Vec<Step> {
    vec![
        Step::new(
            "Verify your e-mail address",
            login.email_verified,
            "Open the link that we have sent you.",
        ),
        business_step(login, business),
        Step::new(
            "Create an API key",
            has.key,
            "Your program shows it with every request.",
        )
        .at("API keys", "/settings/integrations/keys"),
        Step::new(
            "Say where events go",
            has.endpoint,
            "Your program then hears of every payment as soon as it ends.",
        )
        .at("Webhook", "/settings/integrations/webhooks"),
        Step::new(
            "Take the first payment",
            has.payment,
            "Run the command below with your key, or make a link and pay it yourself.",
        )
        .at("Payment link", "/payments/new"),
        Step::new(
            "Have the first event accepted",
            has.delivery,
            "Your server answers it with 2xx.",
        )
        .at("Deliveries", DELIVERIES),
    ]
}

fn business_step(login: &Login, business: &Business) -> Step {
    let lead = match business.status() {
        KycStatus::Pending | KycStatus::InReview => "We are looking at it, and send you a message.",
        KycStatus::Rejected => "Something in the form must be changed.",
        _ => "A form of eleven fields. Nothing to upload.",
    };
    // Also while a renewal waits.
    let is_done = login.merchant.is_approved();
    Step::new("Tell us about your business", is_done, lead).at("Business", "/settings/business")
}

/// Which key a command needs. We do not have it, so it is named as on the page of keys.
fn which_key(key: Option<&MerchantKey>) -> Phrase {
    match key {
        Some(key) => phrase!(
            "Put your key {0} in the place of YOUR_KEY. We cannot show it again: if nobody has stored it, create another.",
            keys::name(key)
        ),
        None => "Create an API key, and put it in the place of YOUR_KEY.".into(),
    }
}

fn figures(
    balance: &[Money],
    health: Option<&EndpointHealth>,
    given_up: Option<String>,
) -> Vec<Figure> {
    let available = balance.iter().map(|money| Figure {
        name: "Available",
        value: shown(*money),
        since: Text::default(),
        address: format!("/balance?currency={}", money.currency().code()),
    });
    let mut figures: Vec<Figure> = available.collect();
    let share = |health: &EndpointHealth| {
        let share = u64::from(health.delivered) * 100;
        share.checked_div(u64::from(health.ended))
    };
    if let Some(health) = health
        && let Some(percent) = share(health)
    {
        let (day, _) = health.since.split_once('T').unwrap_or_default();
        figures.push(Figure {
            name: "Events accepted",
            value: format!("{percent} %"),
            since: phrase!("since {0}", moment(&health.since)).into(),
            address: format!("{DELIVERIES}?status=DELIVERED&from={day}"),
        });
    }
    if let Some(value) = given_up {
        figures.push(Figure {
            name: "Events given up",
            value,
            since: Text::default(),
            address: GIVEN_UP.to_owned(),
        });
    }
    figures
}

impl Dashboard {
    async fn has_delivered(&self, login: &Login) -> Result<bool, Error> {
        let request = ListMerchantDeliveriesRequest {
            merchant_id: login.merchant_id(),
            page_size: 1,
            status: DeliveryStatus::Delivered.into(),
            ..ListMerchantDeliveriesRequest::default()
        };
        let listed = self.webhooks.read(
            backend::DEADLINE,
            request,
            |mut webhooks, request| async move { webhooks.list_merchant_deliveries(request).await },
        );
        Ok(!listed.await?.deliveries.is_empty())
    }

    /// What the merchant may take out, in each currency.
    async fn available(&self, login: &Login) -> Result<Vec<Money>, Error> {
        let request = GetBalanceRequest {
            merchant_id: login.merchant_id(),
            with_suspense: false,
        };
        let balance = self.charges.read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_balance(request).await },
        );
        let available = balance.await?.available;
        let money = available.iter().map(Money::try_from);
        money.collect::<Result<_, _>>().map_err(Error::internal)
    }

    /// The command that takes a first payment.
    fn first_payment(&self) -> String {
        let api = &self.api_url;
        // Only simulated networks may be asked for somebody else's money.
        let number = match self.mode {
            Mode::Development => "0240000001",
            Mode::Production => "YOUR_NUMBER",
        };
        format!(
            "curl -s {api}/api/v1/payments/charge \\\n  \
             -H 'Authorization: Bearer YOUR_KEY' \\\n  \
             -H 'Content-Type: application/json' \\\n  \
             -d '{{\"amount\": 25.50, \"mobile_number\": \"{number}\", \"provider\": \"MTN\"}}'"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::{
        figures::{Bar, Rate, Volume},
        text::tests::{check_marked, shell, table},
    };

    #[test]
    fn the_overview_is_written_in_its_language() {
        let figure = || Figure {
            name: "Collected",
            value: "1".to_owned(),
            since: phrase!("since {0}", moment("2026-11-25T18:05:03.000Z")).into(),
            address: "/x".to_owned(),
        };
        let bar = Bar {
            left: 0,
            height: Some(1),
        };
        let rate = Rate {
            address: "/payments".to_owned(),
            network: "1",
            share: "2".to_owned(),
            bars: vec![bar],
        };
        let volume = Volume {
            address: "/payments".to_owned(),
            network: "1",
            total: "2".to_owned(),
            bars: Vec::new(),
        };
        let week = Week {
            figures: vec![figure()],
            rates: vec![rate],
            volumes: vec![volume],
            tables: vec![table()],
        };
        let step = |is_done| Step::new("Say where events go", is_done, "So that.").at("Go", "/x");
        let mut page = HomePage {
            shell: shell(),
            steps: vec![step(true), step(false)],
            lacks_totp: true,
            figures: vec![figure()],
            week: Some(week),
            weather: Some(table()),
            command: Some(("Put it there.".into(), "1".to_owned())),
            is_verified: false,
        };
        check_marked(&page);
        page.week = None;
        page.steps.clear();
        check_marked(&page);
    }
}
