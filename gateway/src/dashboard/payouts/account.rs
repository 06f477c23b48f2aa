//! `/payouts/account`: where payouts go. The merchant sets it: a form, a page with the name that the
//! network knows, and the account. The form carries when the account that it shows was set, so that
//! it changes no other.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::{get, post},
};
use chassis::{clock::Timestamp, grpc::Reason, phone::Phone};
use http::StatusCode;
use proto::{
    charges::{
        DestinationType, HolderToConfirm, ListPayoutAccountChangesRequest, PayoutAccount,
        PayoutAccountChange, Provider, SetOwnPayoutAccountRequest, SwitchDailySettlementRequest,
        set_own_payout_account_response::Outcome,
    },
    merchants::Action,
};
use uuid::Uuid;

use super::{ACCOUNT, NO_TOTP, PATH, SET, is_held, not_enabled};
use crate::{
    backend,
    dashboard::{
        Dashboard,
        enter::parameter,
        filters::{Filters, NOT_WHOLE, PAGE_SIZE},
        help::support_contact,
        login::{Confirmed, Login, Sent, SentConfirmed},
        money_out, networks,
        page::{
            Button, Cell, Control, DetailPage, Field, FormPage, MessagePage, Refusal, Section,
            Table, blame,
        },
        text::{Phrase, left_until, phrase},
    },
    error::{DisbursementRefusal, Error},
    pages::{amount::unbroken, form::FormFields, see},
};

const DAILY: &str = "/payouts/account/daily";

const AT_NETWORK: &str = "Name at the network";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(ACCOUNT, get(show))
        .route(SET, get(show_form).post(set))
        .route(DAILY, post(switch_daily))
}

fn banks() -> Phrase {
    phrase!(
        "To be paid to a bank account, write to {0} from your e-mail address: we set it, and you are mailed.",
        support_contact()
    )
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let done = match parameter(query.as_deref(), "done").as_str() {
        "set" => Some("Saved. Payouts go there from now on."),
        "on" => Some("Every day, what is available is paid out."),
        "off" => Some("Nothing is paid out until you ask for it."),
        _ => None,
    };
    let shell = login.shell(Section::Payouts, "Payout account").done(done);
    let mut filters = Filters::new(ACCOUNT, query.as_deref());
    let after = filters.after::<Uuid>();
    if filters.is_wrong() {
        let page = MessagePage::saying(shell, NOT_WHOLE).next("Newest", &filters.newest());
        return Ok(page.respond(StatusCode::BAD_REQUEST));
    }
    let (account, changes) = tokio::try_join!(
        dashboard.payout_account(&login),
        dashboard.account_changes(&login, after)
    )?;
    let Some(account) = account else {
        let line = "No payout account is set yet. It is the wallet that your money goes to.";
        let mut page = MessagePage::saying(shell, line).next("Set the payout account", SET);
        page.lines.push(banks());
        return Ok(page.respond(StatusCode::OK));
    };
    let mut page = DetailPage::new(shell);
    let held = is_held(&dashboard, &account);
    page.facts = facts(&account, held, dashboard.clock.now());
    let (label, is_on) = match account.daily_settlement {
        true => ("Stop the daily settlement", "off"),
        false => ("Pay out every day", "on"),
    };
    page.buttons = vec![Button {
        label,
        action: DAILY.to_owned(),
        hidden: vec![("daily", is_on.to_owned())],
    }];
    let (rows, next) = changes;
    page.table = Some(Table {
        caption: "What was set",
        columns: vec!["Set", "Account", "By", "Payouts waited until"],
        rows: rows.iter().map(|change| row(&login, change)).collect(),
    });
    page.pages = filters.pages(&next);
    page.links = vec![("All payouts", PATH.to_owned())];
    Ok(page.respond(StatusCode::OK))
}

fn facts(account: &PayoutAccount, is_held: bool, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let switch = |is_on| match is_on {
        true => Cell::state("On", "good"),
        false => Cell::state("Off", "idle"),
    };
    let destination = money_out::destination(account.destination.as_ref());
    let mut facts = vec![
        ("Account", destination.action("Change", SET)),
        ("Name", Cell::text(&account.holder_name)),
    ];
    if let Some(name) = &account.rail_holder_name {
        let label = match is_bank(account) {
            true => "Name at the bank",
            false => AT_NETWORK,
        };
        facts.push((label, Cell::text(name)));
    }
    if is_held {
        let left = left_until(now, &account.held_until);
        facts.push(("Payouts wait for", Cell::of(left)));
    }
    facts.extend([
        ("Payouts on request", switch(account.payouts_on_request)),
        ("Daily settlement", switch(account.daily_settlement)),
        ("Last change", Cell::time(&account.updated_at)),
    ]);
    facts
}

fn is_bank(account: &PayoutAccount) -> bool {
    let destination = account.destination.as_ref();
    destination.is_some_and(|to| to.r#type() == DestinationType::Bank)
}

fn row(login: &Login, change: &PayoutAccountChange) -> Vec<Cell> {
    let by = match change.person_id.as_str() {
        "" => Cell::phrase("An operator"),
        id if id == login.person_id => Cell::phrase("You"),
        _ => Cell::phrase("Somebody of your business"),
    };
    let waited = match change.held_until > change.changed_at {
        true => Cell::time(&change.held_until),
        false => Cell::phrase("Not at all"),
    };
    vec![
        Cell::time(&change.changed_at),
        Cell::text(&unbroken(&change.account)),
        by,
        waited,
    ]
}

impl Dashboard {
    /// What was set, newest first, from this place on, and the place after it.
    async fn account_changes(
        &self,
        login: &Login,
        after: String,
    ) -> Result<(Vec<PayoutAccountChange>, String), Error> {
        let request = ListPayoutAccountChangesRequest {
            merchant_id: login.merchant_id(),
            page_size: PAGE_SIZE,
            page_token: after,
        };
        let listed =
            self.payout_accounts.read(
                backend::DEADLINE,
                request,
                |mut accounts, request| async move {
                    accounts.list_payout_account_changes(request).await
                },
            );
        let listed = listed.await?;
        Ok((listed.changes, listed.next_page_token))
    }
}

fn fields() -> Vec<Field> {
    vec![
        Field::new("provider", "Network", Control::Choice(&networks::CHOICES)),
        Field::new("account", "Number", Control::Input("tel")).hint("For example 024 123 4567."),
        Field::text("holder_name", "Name of its holder").hint("As the network knows it."),
    ]
}

/// What somebody typed, and in the second step the name that they were shown.
pub fn sent_fields() -> Vec<Field> {
    let mut fields = fields();
    fields.push(Field::text("confirmed_name", AT_NETWORK));
    fields
}

/// What was typed, and which account was seen then.
#[derive(Clone, Debug, Default)]
struct Typed {
    provider: String,
    account: String,
    holder_name: String,
    updated_at: String,
}

impl Typed {
    fn read(fields: &FormFields) -> Self {
        let get = |name| fields.get(name).to_owned();
        Self {
            provider: get("provider"),
            account: get("account"),
            holder_name: get("holder_name"),
            updated_at: get("updated_at"),
        }
    }

    fn form(&self, login: &Login) -> FormPage {
        let shell = login.shell(Section::Payouts, "Set the payout account");
        let mut page = FormPage::new(shell, SET, "Go on");
        let lead = match self.updated_at.as_str() {
            "" => "The wallet that your money goes to. Next, we ask the network whose it is.",
            _ => "Next, we ask the network whose it is. After a change, payouts wait for a while.",
        };
        page.lead = vec![lead.into(), banks()];
        page.hidden = vec![("updated_at", self.updated_at.clone())];
        page.fields = fields();
        page.links = vec![("Leave it as it is", ACCOUNT)];
        page.filled(|name| match name {
            "provider" => self.provider.clone(),
            "account" => self.account.clone(),
            _ => self.holder_name.clone(),
        })
    }

    /// Shows what the network tells, and asks.
    fn confirmation(&self, login: &Login, holder: &HolderToConfirm) -> FormPage {
        let shell = login.shell(Section::Payouts, "Is this you?");
        let mut page = FormPage::new(shell, SET, "Yes, pay out to this wallet");
        page.is_grave = true;
        let wallet = format!("{} {}", self.provider, unbroken(&self.account));
        let told = holder.rail_holder_name.as_deref();
        let asked = match told {
            Some(name) if holder.is_same => {
                phrase!("The network says whose wallet {0} is: {1}", wallet, name)
            }
            Some(name) => phrase!(
                "You typed {0}, but the network says whose wallet {1} is: {2}",
                &self.holder_name,
                wallet,
                name
            ),
            None => phrase!(
                "The network does not tell whose wallet {0} is. Read the number once more, digit by digit.",
                wallet
            ),
        };
        page.lead = vec![
            asked,
            "What was paid to somebody else's wallet cannot be called back.".into(),
        ];
        if !self.updated_at.is_empty() {
            let held = "Payouts then wait for a while, also those that you have asked for already.";
            page.lead.push(held.into());
        }
        page.hidden = vec![
            ("step", "confirm".to_owned()),
            ("provider", self.provider.clone()),
            ("account", self.account.clone()),
            ("holder_name", self.holder_name.clone()),
            ("updated_at", self.updated_at.clone()),
            ("confirmed_name", told.unwrap_or_default().to_owned()),
        ];
        page.links = vec![("No, type it again", SET), ("Leave it as it is", ACCOUNT)];
        page
    }

    fn request(&self, login: &Login, confirmed_name: Option<&str>) -> SetOwnPayoutAccountRequest {
        SetOwnPayoutAccountRequest {
            merchant_id: login.merchant_id(),
            person_id: login.person_id.clone(),
            r#type: DestinationType::MobileMoney.into(),
            provider: Provider::from_code(&self.provider)
                .unwrap_or_default()
                .into(),
            bank_code: String::new(),
            account: self.account.clone(),
            holder_name: self.holder_name.clone(),
            updated_at: self.updated_at.clone(),
            confirmed_name: confirmed_name.map(str::to_owned),
        }
    }
}

/// The answer to a person without an authenticator: a stolen password alone directs no money.
pub(super) fn lacks_totp(login: &Login, then: &str) -> Option<Response> {
    (!login.has_totp).then(|| {
        let shell = login.shell(Section::Payouts, "Not possible yet");
        let address = format!("/settings/security/totp?then={then}");
        let page = MessagePage::saying(shell, NO_TOTP).next("Set up an authenticator", &address);
        page.respond(StatusCode::CONFLICT)
    })
}

async fn show_form(
    State(dashboard): State<Arc<Dashboard>>,
    Confirmed(login): Confirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money().or_else(|| lacks_totp(&login, SET)) {
        return Ok(refusal);
    }
    let account = dashboard.payout_account(&login).await?;
    let is_bank = account.as_ref().is_some_and(is_bank);
    let account = account.map(|account| Typed {
        provider: match is_bank {
            true => String::new(),
            false => account.destination.unwrap_or_default().provider,
        },
        holder_name: account.holder_name,
        updated_at: account.updated_at,
        ..Typed::default()
    });
    let typed = account.unwrap_or_default();
    let mut page = typed.form(&login);
    if is_bank {
        let line =
            "Your money goes to a bank account now. The wallet that you set takes its place.";
        page.lead.insert(0, line.into());
    }
    Ok(page.respond(StatusCode::OK))
}

/// The first step leads to the second, which confirms what the first was told.
async fn set(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money().or_else(|| lacks_totp(&login, SET)) {
        return Ok(refusal);
    }
    let typed = Typed::read(&fields);
    let Ok(phone) = Phone::parse_ghana_mobile(&typed.account) else {
        let error = "Give a Ghana mobile number, such as 024 123 4567.";
        return Ok(typed.form(&login).refuse_field("account", error));
    };
    if let Err(seconds) = dashboard.holder_looks.take(login.merchant.id) {
        let minutes = seconds.div_ceil(60);
        let notice = phrase!(
            "You have asked about many numbers. Wait {0} minutes and try again.",
            minutes.to_string()
        );
        let page = typed.form(&login);
        return Ok(page.refuse(StatusCode::TOO_MANY_REQUESTS, Some(notice)));
    }
    let confirmed_name = (fields.get("step") == "confirm").then(|| fields.get("confirmed_name"));
    if confirmed_name.is_some() {
        let object = format!("{} {}", typed.provider, phone.masked());
        dashboard
            .note(&login, Action::PayoutAccountChanged, &object)
            .await?;
    }
    let asked = dashboard.payout_accounts.keyed(
        backend::RAIL_DEADLINE,
        typed.request(&login, confirmed_name),
        |mut accounts, request| async move { accounts.set_own_payout_account(request).await },
    );
    match asked.await {
        Ok(answer) => match answer.outcome {
            Some(Outcome::Set(_)) => Ok(see(&format!("{ACCOUNT}?done=set"))),
            Some(Outcome::ToConfirm(holder)) => {
                let page = typed.confirmation(&login, &holder);
                Ok(match confirmed_name {
                    None => page.respond(StatusCode::OK),
                    Some(_) => {
                        let notice = "The network now tells another name. Look at it once more.";
                        page.refuse(StatusCode::CONFLICT, Some(notice.into()))
                    }
                })
            }
            None => Err(Error::internal("charges-svc gave no outcome").into()),
        },
        Err(Error::Validation(faults)) => {
            let mut page = typed.form(&login);
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::AtDashboard {
            reason: Reason::FormUsed,
            ..
        }) => {
            let shell = login.shell(Section::Payouts, "Nothing was done");
            let line =
                "The payout account was changed meanwhile. Look at it before you change it again.";
            let page = MessagePage::saying(shell, line);
            let page = page.next("Look at the payout account", ACCOUNT);
            Ok(page.respond(StatusCode::CONFLICT))
        }
        Err(error) => Err(error.into()),
    }
}

async fn switch_daily(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    if let Some(refusal) = login.moves_no_money() {
        return Ok(refusal);
    }
    let daily_settlement = fields.get("daily") == "on";
    if daily_settlement && let Some(refusal) = lacks_totp(&login, ACCOUNT) {
        return Ok(refusal);
    }
    let done = if daily_settlement { "on" } else { "off" };
    dashboard
        .note(&login, Action::DailySettlementSwitched, done)
        .await?;
    let request = SwitchDailySettlementRequest {
        merchant_id: login.merchant_id(),
        daily_settlement,
    };
    let switched = dashboard.payout_accounts.keyed(
        backend::DEADLINE,
        request,
        |mut accounts, request| async move { accounts.switch_daily_settlement(request).await },
    );
    match switched.await {
        Ok(_) => Ok(see(&format!("{ACCOUNT}?done={done}"))),
        Err(Error::NotFound) => Ok(see(ACCOUNT)),
        Err(Error::DisbursementRefused {
            why: DisbursementRefusal::PayoutsNotEnabled,
            ..
        }) => {
            let shell = login.shell(Section::Payouts, "Not possible yet");
            let page = MessagePage::saying(shell, not_enabled());
            let page = page.next("Look at the payout account", ACCOUNT);
            Ok(page.respond(StatusCode::CONFLICT))
        }
        Err(error) => Err(error.into()),
    }
}
