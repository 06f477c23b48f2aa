//! `/customers`: who has paid, and each one's payments.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use chassis::{
    ids::{ChargeId, CustomerId},
    phone::Phone,
};
use proto::{
    charges::{ListChargesRequest, SoughtPayer},
    sessions::{Customer, GetCustomerRequest, ListCustomersRequest, ListCustomersResponse},
};

use super::{
    Dashboard, export,
    filters::{Filters, Listed, PAGE_SIZE},
    login::Login,
    page::{Cell, Control, Field, Refusal, Section, TablePage},
    payments,
};
use crate::{api::fields, backend, error::Error, pages::amount::unbroken};

const PATH: &str = "/customers";

const EXPORT: &str = "/customers.csv";

const COLUMNS: [&str; 5] = ["Since", "Phone", "Name", "Last payment", "Payments"];

const EXPORT_COLUMNS: [&str; 7] = [
    "customer_id",
    "phone",
    "email",
    "name",
    "payments_count",
    "created_at",
    "last_payment_at",
];

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(PATH, get(show))
        .route(EXPORT, get(export_all))
        .route(&format!("{PATH}/{{customer_id}}"), get(show_one))
        .route(
            &format!("{PATH}/{{customer_id}}/payments.csv"),
            get(export_payments),
        )
}

/// Whom somebody looks for.
enum Sought {
    Phone(Phone),
    Email(String),
}

impl Sought {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.contains('@') {
            true => fields::email_address(text.to_owned())
                .map(Self::Email)
                .map_err(|_| "Give a whole e-mail address."),
            false => Phone::parse_any(text)
                .map(Self::Phone)
                .map_err(|_| "Give a whole phone number or e-mail address."),
        }
    }
}

fn wanted(filters: &mut Filters<'_>, login: &Login) -> ListCustomersRequest {
    let field =
        Field::new("q", "Look for", Control::Input("search")).hint("Phone number or e-mail");
    let sought = filters.read(field, Sought::parse);
    let (from, to) = filters.days();
    let mut request = ListCustomersRequest {
        merchant_id: login.merchant_id(),
        page_size: PAGE_SIZE,
        page_token: filters.after::<CustomerId>(),
        from,
        to,
        phone: None,
        email: None,
    };
    match sought {
        Some(Sought::Phone(phone)) => request.phone = Some(phone.as_e164().to_owned()),
        Some(Sought::Email(email)) => request.email = Some(email),
        None => {}
    }
    request
}

impl Dashboard {
    async fn list_customers(
        &self,
        request: ListCustomersRequest,
    ) -> Result<ListCustomersResponse, Error> {
        let listed = self.sessions.read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.list_customers(request).await },
        );
        listed.await
    }

    /// The merchant's customer with this e-mail address. There is one at most.
    pub async fn customer_with(
        &self,
        login: &Login,
        email: String,
    ) -> Result<Option<Customer>, Error> {
        let request = ListCustomersRequest {
            merchant_id: login.merchant_id(),
            page_size: 1,
            email: Some(email),
            ..ListCustomersRequest::default()
        };
        Ok(self.list_customers(request).await?.customers.pop())
    }

    /// The customer of a page's address.
    async fn find_customer(
        &self,
        login: &Login,
        customer_id: Result<Path<String>, PathRejection>,
    ) -> Result<Customer, Error> {
        let Path(customer_id) = customer_id.map_err(|_| Error::NotFound)?;
        let customer_id: CustomerId = customer_id.parse().map_err(|_| Error::NotFound)?;
        let request = GetCustomerRequest {
            merchant_id: login.merchant_id(),
            customer_id: customer_id.to_string(),
        };
        let customer = self.sessions.read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.get_customer(request).await },
        );
        customer.await
    }
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = wanted(&mut filters, &login);
    let mut page = TablePage::new(login.shell(Section::Customers, "Customers"), &COLUMNS);
    page.empty = "No customer yet. Ask for a payment: whoever pays you is listed here.";
    let listing = async {
        let listed = dashboard.list_customers(request).await?;
        Ok(Listed {
            rows: listed.customers.iter().map(row).collect(),
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, EXPORT, listing).await
}

/// A number as a list shows it.
fn masked(phone: Option<&str>) -> String {
    let phone = phone.and_then(|phone| Phone::parse_any(phone).ok());
    phone.map(|phone| phone.masked()).unwrap_or_default()
}

fn row(customer: &Customer) -> Vec<Cell> {
    let address = format!("{PATH}/{}", customer.customer_id);
    let who = match masked(customer.phone.as_deref()) {
        phone if phone.is_empty() => customer.customer_id.clone(),
        phone => unbroken(&phone),
    };
    let email = customer.email.as_deref().unwrap_or_default();
    let last = customer.last_payment_at.as_deref();
    vec![
        Cell::time(&customer.created_at),
        Cell::text(&who).link(address),
        Cell::text(customer.name.as_deref().unwrap_or_default()).detail(email),
        last.map(Cell::time).unwrap_or_default(),
        Cell::amount(customer.payments_count.to_string()),
    ]
}

async fn show_one(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    customer_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let customer = dashboard.find_customer(&login, customer_id).await?;
    let shell = login.shell(Section::Customers, "Customer");
    let mut page = TablePage::new(shell, &payments::COLUMNS);
    page.caption = "Payments";
    let given = [
        ("Name", &customer.name),
        ("Phone", &customer.phone),
        ("E-mail", &customer.email),
    ];
    let given = given
        .into_iter()
        .filter_map(|(label, text)| Some((label, Cell::text(text.as_deref()?))));
    page.facts = given.collect();
    page.facts.extend([
        ("Since", Cell::time(&customer.created_at)),
        (
            "Settled payments",
            Cell::text(&customer.payments_count.to_string()),
        ),
        ("Customer", Cell::id(&customer.customer_id)),
    ]);
    if customer.email.is_some() {
        page.lead = vec![
            "Settled payments are counted of this customer alone. The list has every payment with this e-mail address or from this number, so it may hold others’.",
        ];
    }
    let path = format!("{PATH}/{}", customer.customer_id);
    let mut filters = Filters::new(&path, query.as_deref());
    let after = filters.after::<ChargeId>();
    page.empty = "No payment from this number or with this e-mail address.";
    let export = format!("{path}/payments.csv");
    let request = ListChargesRequest {
        page_size: PAGE_SIZE,
        page_token: after,
        ..payments_of(&login, customer)?
    };
    let listing = async {
        let listed = dashboard.list_charges(request).await?;
        let rows = listed.charges.iter().map(payments::row);
        Ok(Listed {
            rows: rows.collect::<Result<_, _>>()?,
            next_page_token: listed.next_page_token,
        })
    };
    filters.list(page, &export, listing).await
}

fn payments_of(login: &Login, customer: Customer) -> Result<ListChargesRequest, Error> {
    let mut request = ListChargesRequest {
        merchant_id: login.merchant_id(),
        ..ListChargesRequest::default()
    };
    match (customer.email, customer.phone) {
        (Some(email), phone) => {
            // For a charges-svc that does not know of payers yet.
            request.phone.clone_from(&phone);
            request.payer = Some(SoughtPayer { email, phone });
        }
        (None, Some(phone)) => request.phone = Some(phone),
        (None, None) => return Err(Error::internal("nothing identifies a customer")),
    }
    Ok(request)
}

async fn export_payments(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    customer_id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let customer = dashboard.find_customer(&login, customer_id).await?;
    let path = format!("{PATH}/{}", customer.customer_id);
    let filters = Filters::new(&path, None);
    let request = payments_of(&login, customer)?;
    payments::export_charges(&dashboard, login.merchant.id, filters, request).await
}

async fn export_all(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let mut filters = Filters::new(PATH, query.as_deref());
    let request = ListCustomersRequest {
        page_size: export::PAGE_SIZE,
        ..wanted(&mut filters, &login)
    };
    let reading = dashboard.clone();
    let read = move |page_token| {
        let (dashboard, request) = (reading.clone(), request.clone());
        async move {
            let request = ListCustomersRequest {
                page_token,
                ..request
            };
            let listed = dashboard.list_customers(request).await?;
            Ok(Listed {
                rows: listed.customers.into_iter().map(exported).collect(),
                next_page_token: listed.next_page_token,
            })
        }
    };
    let list = ("customers", filters);
    export::csv(&dashboard, login.merchant.id, list, &EXPORT_COLUMNS, read).await
}

fn exported(customer: Customer) -> Vec<String> {
    vec![
        customer.customer_id,
        masked(customer.phone.as_deref()),
        customer.email.unwrap_or_default(),
        customer.name.unwrap_or_default(),
        customer.payments_count.to_string(),
        customer.created_at,
        customer.last_payment_at.unwrap_or_default(),
    ]
}
