//! `/settings/business`: what the merchant tells about its business, and what came of it.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use chassis::{
    clock::{Day, Timestamp},
    grpc::Reason,
};
use http::StatusCode;
use proto::merchants::{
    Business, BusinessForm, BusinessKind, GetBusinessRequest, KycStatus, SubmitBusinessRequest,
};

use super::{
    Dashboard,
    enter::parameter,
    login::{Login, Sent},
    page::{Control, Field, FormPage, MessagePage, Refusal, Section, blame},
    text::{Phrase, date, moment, phrase},
};
use crate::{
    backend,
    error::Error,
    pages::{form::FormFields, see},
};

const PATH: &str = "/settings/business";

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// How many days before its end an approval is said to end.
const WARNED_DAYS: u64 = 30;

const KINDS: [(&str, &str); 5] = [
    ("", "Choose one"),
    ("SOLE_PROPRIETOR", "Sole proprietor"),
    ("PARTNERSHIP", "Partnership"),
    ("COMPANY", "Company"),
    ("NGO", "Non-governmental organisation"),
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route(PATH, get(show).post(submit))
}

pub async fn load(dashboard: &Dashboard, login: &Login) -> Result<Business, Error> {
    let request = GetBusinessRequest {
        merchant_id: login.merchant_id(),
    };
    let found = dashboard.account.read(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.get_business(request).await },
    );
    found.await
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let business = load(&dashboard, &login).await?;
    let is_sent = parameter(query.as_deref(), "done") == "sent";
    let done = is_sent.then_some("Thank you. We look at it and send you a message.");
    Ok(page(&login, &business, dashboard.clock.now(), done))
}

/// The form, or what there is to know while it cannot be changed.
fn page(
    login: &Login,
    business: &Business,
    now: Timestamp,
    done: Option<&'static str>,
) -> Response {
    let shell = login.shell(Section::Settings, "Business").done(done);
    let status = business.status();
    let word = Phrase::from(kyc_word(status));
    let about = |at: &Option<String>| at.as_deref().map(moment).unwrap_or_default();
    let line = match status {
        KycStatus::Unspecified => {
            "We must know whom we pay. With this, payments can begin; it takes us one working day."
                .into()
        }
        KycStatus::Pending if login.merchant.is_approved() => {
            "Your renewal waits for review. The approval that you have goes on meanwhile.".into()
        }
        KycStatus::Pending => phrase!(
            "{0} since {1}. Until we begin, you can still change it.",
            word,
            about(&business.submitted_at)
        ),
        KycStatus::InReview => {
            let line = phrase!(
                "{0}: we are looking at what you sent on {1}. It cannot be changed meanwhile.",
                word,
                about(&business.submitted_at)
            );
            return MessagePage::saying(shell, line).next("Go to the overview", "/").respond(StatusCode::OK);
        }
        KycStatus::Approved => match &business.expires_on {
            Some(until) => phrase!("{0} until {1}.", word, date(until)),
            None => phrase!("{0}.", word),
        },
        KycStatus::Rejected => "We could not approve this. Beside each field is what to change.".into(),
        KycStatus::Expired => "The approval has ended, so the API refuses requests. Look through the form and send it again.".into(),
    };
    let form = business.form.clone().unwrap_or_default();
    let mut page = form_page(shell, |name| value(&form, name));
    page.lead = vec![line];
    if status == KycStatus::Approved {
        page.lead.extend(ends_soon(business, now));
        let renewal = "If something has changed, or the approval ends soon, change the form and send it again. Payments go on while we look at it.";
        page.lead.push(renewal.into());
    }
    for reason in &business.reasons {
        let field = page
            .fields
            .iter_mut()
            .find(|field| field.name == reason.field);
        if let Some(field) = field {
            field.error = Some(phrase!("{0}", &reason.reason));
        }
    }
    page.respond(StatusCode::OK)
}

/// What is said in the last month of an approval.
fn ends_soon(business: &Business, now: Timestamp) -> Option<Phrase> {
    let ends_at = business.expires_on.as_ref()?.parse::<Day>().ok()?.end();
    let days = ends_at.since(now).as_secs() / SECONDS_A_DAY;
    let ends = match days {
        0 => "It ends today".into(),
        1 => "It ends tomorrow".into(),
        days => phrase!("It ends in {0} days", days.to_string()),
    };
    (days < WARNED_DAYS).then(|| {
        phrase!(
            "{0}. After that, the API refuses requests until you are approved anew.",
            ends
        )
    })
}

fn form_page(shell: super::page::Shell, value: impl Fn(&str) -> String) -> FormPage {
    let mut page = FormPage::new(shell, PATH, "Send");
    page.fields = fields();
    page.filled(value)
}

pub fn fields() -> Vec<Field> {
    vec![
        Field::new("kind", "Kind of business", Control::Choice(&KINDS)),
        Field::text("registered_name", "Registered name").autocomplete("organization"),
        Field::text("registration_number", "Registration number")
            .hint("From the Registrar of Companies, for example BN123456789."),
        Field::text("tin", "Tax number (TIN)")
            .hint("For example C0001234567, or a Ghana Card number."),
        Field::new("activity", "What you sell", Control::Area),
        Field::new("website", "Website or page", Control::Input("url")).hint("If you have one."),
        Field::text("digital_address", "Digital address").hint("For example GA-144-1234."),
        Field::text("town", "Town").autocomplete("address-level2"),
        Field::text("owner_name", "Owner or director").autocomplete("name"),
        Field::text("owner_ghana_card", "Their Ghana Card number")
            .hint("For example GHA-123456789-0."),
        Field::new("owner_phone", "Their phone number", Control::Input("tel")).autocomplete("tel"),
    ]
}

fn value(form: &BusinessForm, name: &str) -> String {
    match name {
        "kind" => kind_code(form.kind()).to_owned(),
        "registered_name" => form.registered_name.clone(),
        "registration_number" => form.registration_number.clone(),
        "tin" => form.tin.clone(),
        "activity" => form.activity.clone(),
        "website" => form.website.clone(),
        "digital_address" => form.digital_address.clone(),
        "town" => form.town.clone(),
        "owner_name" => form.owner_name.clone(),
        "owner_ghana_card" => form.owner_ghana_card.clone(),
        "owner_phone" => form.owner_phone.clone(),
        _ => String::new(),
    }
}

fn kind_code(kind: BusinessKind) -> &'static str {
    match kind {
        BusinessKind::Unspecified => "",
        BusinessKind::SoleProprietor => "SOLE_PROPRIETOR",
        BusinessKind::Partnership => "PARTNERSHIP",
        BusinessKind::Company => "COMPANY",
        BusinessKind::Ngo => "NGO",
    }
}

fn read(fields: &FormFields) -> BusinessForm {
    let text = |name| fields.get(name).to_owned();
    let kinds = [
        BusinessKind::SoleProprietor,
        BusinessKind::Partnership,
        BusinessKind::Company,
        BusinessKind::Ngo,
    ];
    let kind = kinds
        .into_iter()
        .find(|kind| kind_code(*kind) == fields.get("kind"));
    BusinessForm {
        kind: kind.unwrap_or_default().into(),
        registered_name: text("registered_name"),
        registration_number: text("registration_number"),
        tin: text("tin"),
        activity: text("activity"),
        website: text("website"),
        digital_address: text("digital_address"),
        town: text("town"),
        owner_name: text("owner_name"),
        owner_ghana_card: text("owner_ghana_card"),
        owner_phone: text("owner_phone"),
    }
}

async fn submit(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let request = SubmitBusinessRequest {
        merchant_id: login.merchant_id(),
        person_id: login.person_id.clone(),
        form: Some(read(&fields)),
        origin: login.visitor.origin(),
    };
    let sent = dashboard.account.once(
        backend::DEADLINE,
        request,
        |mut account, request| async move { account.submit_business(request).await },
    );
    match sent.await {
        Ok(_) => Ok(see(&format!("{PATH}?done=sent"))),
        Err(Error::Validation(faults)) => {
            let shell = login.shell(Section::Settings, "Business");
            let mut page = form_page(shell, |name| fields.get(name).to_owned());
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(Error::AtDashboard {
            reason: Reason::BusinessInReview,
            ..
        }) => Ok(see(PATH)),
        Err(error) => Err(error.into()),
    }
}

/// A state as people read it.
fn kyc_word(status: KycStatus) -> &'static str {
    match status {
        KycStatus::Unspecified => "Not sent",
        KycStatus::Pending => "Waiting for review",
        KycStatus::InReview => "In review",
        KycStatus::Approved => "Approved",
        KycStatus::Rejected => "Sent back",
        KycStatus::Expired => "Expired",
    }
}
