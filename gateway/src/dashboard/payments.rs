//! `/payments`: a merchant's payments, newest first, and the same as a file.

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use chassis::{
    clock::Timestamp,
    failure::FailureReason,
    ids::{ChargeId, MerchantId, Reference, SessionId, TxIdDisplay},
    limits::WAITS_AFTER,
    money::Money,
    phone::Phone,
};
use proto::{
    charges::{
        Charge, ChargeStatus, ListChargesRequest, ListChargesResponse, ListedCharge, SoughtPayer,
    },
    money::Money as ProtoMoney,
};

use super::{
    Dashboard, export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::Login,
    networks,
    page::{Cell, Field, Refusal, Section, TablePage},
    text::Phrase,
};
use crate::{
    api::fields,
    backend,
    error::Error,
    pages::amount::{shown, unbroken},
};

pub const PATH: &str = "/payments";

const EXPORT: &str = "/payments.csv";

pub const COLUMNS: [&str; 5] = ["Created", "Reference", "Payer", "State", "Amount"];

const EXPORT_COLUMNS: [&str; 11] = [
    "reference",
    "tx_id_display",
    "session_id",
    "status",
    "provider",
    "payer",
    "amount",
    "currency",
    "failure_reason",
    "created_at",
    "updated_at",
];

/// A state of the filter alone: has not ended for longer than most need.
pub const WAITING: &str = "WAITING";

const STATUSES: [(&str, &str); 6] = [
    ("", "Any"),
    ("SETTLED", "Settled"),
    ("INITIATED", "Waiting for the payer"),
    (WAITING, "Waiting for over 5 minutes"),
    ("OTP_REQUIRED", "Waiting for a code"),
    ("FAILED", "Failed"),
];

/// The reasons for which payments fail, in the words that merchants are told.
static REASONS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let reasons = FailureReason::ALL.iter().copied();
    let reasons = reasons.filter(|reason| !reason.is_of_disbursements());
    let reasons = reasons.map(|reason| (reason.code(), reason.message()));
    [("", "Any")].into_iter().chain(reasons).collect()
});

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
}

/// What somebody looks for, as its form tells.
enum Sought {
    Reference(Reference),
    ShownToPayer(TxIdDisplay),
    Session(SessionId),
    Phone(Phone),
    Email(String),
}

impl Sought {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let upper = text.to_ascii_uppercase();
        let reference = upper.parse().map(Self::Reference).ok();
        let shown_to_payer = || upper.parse().map(Self::ShownToPayer).ok();
        let session = || text.to_ascii_lowercase().parse().map(Self::Session).ok();
        let phone = || Phone::parse_any(text).map(Self::Phone).ok();
        let email = || fields::email_address(text.to_owned()).map(Self::Email).ok();
        let found = reference.or_else(shown_to_payer).or_else(session);
        found.or_else(phone).or_else(email).ok_or(
            "Look for a whole reference (TX-…-… or TX-…), a session's id, a phone number or an e-mail address.",
        )
    }
}

/// Which payments are wanted, and the e-mail address that is sought. Whose number it is, sessions-svc knows.
type Wanted = (ListChargesRequest, Option<String>);

/// Reads the filters.
fn wanted(filters: &mut Filters<'_>, login: &Login, now: Timestamp) -> Wanted {
    let field = Field::new("q", "Look for", super::page::Control::Input("search"))
        .hint("Reference, session, phone or e-mail");
    let sought = filters.read(field, Sought::parse);
    let status = filters.choice("status", "State", &STATUSES, |code| match code {
        WAITING => Some((ChargeStatus::Unspecified, Some(now - WAITS_AFTER))),
        code => ChargeStatus::from_code(code).map(|status| (status, None)),
    });
    let (status, open_since) = status.unwrap_or_default();
    let provider = filters.network();
    let reason = filters.choice("reason", "Failed because", &REASONS, |code| {
        code.parse::<FailureReason>().ok()
    });
    let (from, to) = filters.days();
    let to = match open_since.map(|since| since.to_string()) {
        // Both are written alike, so that they sort by time.
        Some(since) if to.is_empty() || since < to => since,
        _ => to,
    };
    let [amount_from, amount_to] = filters.amounts();
    let mut request = ListChargesRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<ChargeId>(),
        from,
        to,
        status: status.into(),
        provider: provider.unwrap_or_default().into(),
        failure_reason: reason.map(|reason| reason.code().to_owned()),
        amount_from: amount_from.map(Into::into),
        amount_to: amount_to.map(Into::into),
        is_open: open_since.is_some(),
        ..ListChargesRequest::default()
    };
    let mut email = None;
    match sought {
        Some(Sought::Reference(reference)) => request.reference = Some(reference.to_string()),
        Some(Sought::ShownToPayer(id)) => request.tx_id_display = Some(id.to_string()),
        Some(Sought::Session(session_id)) => request.session_id = Some(session_id.to_string()),
        Some(Sought::Phone(phone)) => request.phone = Some(phone.as_e164().to_owned()),
        Some(Sought::Email(sought)) => email = Some(sought),
        None => {}
    }
    (request, email)
}

impl Dashboard {
    /// The request with the payer who has the e-mail address, and their number if it is known.
    async fn with_payer(
        &self,
        login: &Login,
        (mut request, email): Wanted,
    ) -> Result<ListChargesRequest, Error> {
        if let Some(email) = email {
            let customer = self.customer_with(login, email.clone()).await?;
            request.payer = Some(SoughtPayer {
                email,
                phone: customer.and_then(|customer| customer.phone),
            });
        }
        Ok(request)
    }

    pub async fn list_charges(
        &self,
        request: ListChargesRequest,
    ) -> Result<ListChargesResponse, Error> {
        let listed = self.charges.read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.list_charges(request).await },
        );
        listed.await
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let wanted = wanted(&mut filters, &login, dashboard.clock.now());
    let mut page = TablePage::new(login.shell(Section::Payments, "Payments"), &COLUMNS);
    page.button = Some(("Ask for a payment", "/payments/new".to_owned()));
    page.facts = vec![(
        "Refunds",
        Cell::phrase("What went back to payers").link("/refunds".to_owned()),
    )];
    page.empty = "No payment yet. Ask for one by a link, or with the command on the overview.";
    let listing = async {
        let request = dashboard.with_payer(&login, wanted).await?;
        let listed = dashboard.list_charges(request).await?;
        let rows = listed.charges.iter().map(row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

pub fn row(listed: &ListedCharge) -> Result<Vec<Cell>, Error> {
    let charge = listed.charge.clone().unwrap_or_default();
    let reference = &charge.reference;
    let state = match &charge.failure_message {
        Some(message) => state(charge.status()).detail(Phrase::of_a_service(message.clone())),
        None => state(charge.status()),
    };
    let network = networks::name(charge.provider());
    Ok(vec![
        Cell::time(&charge.created_at),
        Cell::text(reference).link(format!("{PATH}/{reference}")),
        Cell::text(&unbroken(&listed.payer_masked)).detail(network),
        state,
        amount(charge.amount.as_ref())?,
    ])
}

/// How a payment stands: a word, and the class of its colour and shape.
pub fn state(status: ChargeStatus) -> Cell {
    match status {
        ChargeStatus::Unspecified => Cell::state("Not known here", "idle"),
        ChargeStatus::Initiated => Cell::state("Waiting for the payer", "wait"),
        ChargeStatus::OtpRequired => Cell::state("Waiting for a code", "wait"),
        ChargeStatus::Settled => Cell::state("Settled", "good"),
        ChargeStatus::Failed => Cell::state("Failed", "bad"),
    }
}

/// The amount of something that must have one.
pub fn money(amount: Option<&ProtoMoney>) -> Result<Money, Error> {
    let amount = amount.ok_or_else(|| Error::internal("an amount is missing"))?;
    Money::try_from(amount).map_err(Error::internal)
}

pub fn amount(amount: Option<&ProtoMoney>) -> Result<Cell, Error> {
    money(amount).map(|money| Cell::amount(shown(money)))
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let wanted = wanted(&mut filters, &login, dashboard.clock.now());
    let request = dashboard.with_payer(&login, wanted).await?;
    export_charges(&dashboard, login.merchant.id, filters, request).await
}

/// Answers with all charges that are wanted as a file.
pub async fn export_charges(
    dashboard: &Arc<Dashboard>,
    merchant_id: MerchantId,
    filters: Filters<'_>,
    request: ListChargesRequest,
) -> Result<Response, Refusal> {
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListChargesRequest {
                page_size: export::PAGE_SIZE,
                page_token,
                ..request
            };
            let listed = dashboard.list_charges(request).await?;
            let rows = listed.charges.iter().map(exported);
            Ok(Listed {
                rows: rows.collect::<Result<_, _>>()?,
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("payments", filters);
    export::csv(dashboard, merchant_id, list, &EXPORT_COLUMNS, read).await
}

fn exported(listed: &ListedCharge) -> Result<Vec<String>, Error> {
    let charge: Charge = listed.charge.clone().unwrap_or_default();
    let (status, provider) = (charge.status().code(), charge.provider().code());
    let [amount, currency] = export::amount(charge.amount.as_ref())?;
    Ok(vec![
        charge.reference,
        charge.tx_id_display,
        charge.session_id,
        status.unwrap_or_default().to_owned(),
        provider.unwrap_or_default().to_owned(),
        listed.payer_masked.clone(),
        amount,
        currency,
        charge.failure_reason.unwrap_or_default(),
        charge.created_at,
        charge.updated_at,
    ])
}

#[cfg(test)]
mod tests {
    use super::Sought;

    #[test]
    fn what_is_sought_is_known_by_its_form() {
        let is = |text: &str| match Sought::parse(text) {
            Ok(Sought::Reference(_)) => "reference",
            Ok(Sought::ShownToPayer(_)) => "shown to payer",
            Ok(Sought::Session(_)) => "session",
            Ok(Sought::Phone(_)) => "phone",
            Ok(Sought::Email(_)) => "e-mail",
            Err(_) => "nothing",
        };
        assert_eq!(is("TX-0123456789-ABCDEF"), "reference");
        assert_eq!(is("tx-0123456789-abcdef"), "reference");
        assert_eq!(is("tx-0123456789"), "shown to payer");
        assert_eq!(is("7C0E4D3E-5A0B-4A4F-9D53-0A1B2C3D4E5F"), "session");
        assert_eq!(is("0244000001"), "phone");
        assert_eq!(is("+233244000001"), "phone");
        assert_eq!(is("Ama@example.com"), "e-mail");
        assert_eq!(is("ama@"), "nothing");
        assert_eq!(is("<script>"), "nothing");
        assert_eq!(is("order 17"), "nothing");
    }
}
