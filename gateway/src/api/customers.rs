//! `/api/v1/customers`: a merchant's customer directory (spec §2.4). Additive.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use chassis::ids::CustomerId;
use proto::sessions::{Customer, GetCustomerRequest, ListCustomersRequest};
use serde::Serialize;

use super::{
    fields,
    list::{Page, Parameters},
};
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// `CustomerShown` of the contract.
#[derive(Debug, Serialize)]
pub struct CustomerShown {
    customer_id: String,
    phone: Option<String>,
    email: Option<String>,
    name: Option<String>,
    created_at: String,
    last_payment_at: Option<String>,
    payments_count: u32,
}

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<CustomerShown>>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let (from, to) = parameters.span();
    let phone = parameters.phone();
    let email = parameters.optional("email", |text| {
        fields::email_address(text.trim().to_owned())
    });
    let request = ListCustomersRequest {
        merchant_id: merchant.id.to_string(),
        page_size: parameters.limit(),
        page_token: parameters.cursor::<CustomerId>(),
        from,
        to,
        phone: phone.map(|phone| phone.as_e164().to_owned()),
        email,
    };
    parameters.finish()?;
    let listed = edge
        .sessions
        .read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.list_customers(request).await },
        )
        .await?;
    let page = Page::new("customers", listed.customers, listed.next_page_token);
    Ok(Json(page))
}

pub async fn read(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    customer_id: Result<Path<String>, PathRejection>,
) -> Result<Json<CustomerShown>, Error> {
    let Path(customer_id) = customer_id.map_err(|_| Error::NotFound)?;
    let customer_id: CustomerId = customer_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetCustomerRequest {
        merchant_id: merchant.id.to_string(),
        customer_id: customer_id.to_string(),
    };
    let customer = edge
        .sessions
        .read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.get_customer(request).await },
        )
        .await?;
    Ok(Json(customer.try_into()?))
}

impl TryFrom<Customer> for CustomerShown {
    type Error = Error;

    fn try_from(customer: Customer) -> Result<Self, Error> {
        Ok(Self {
            customer_id: customer.customer_id,
            phone: customer.phone,
            email: customer.email,
            name: customer.name,
            created_at: customer.created_at,
            last_payment_at: customer.last_payment_at,
            payments_count: customer.payments_count,
        })
    }
}
