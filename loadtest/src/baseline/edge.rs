//! The bare gateway: JSON in and out, with the calls in between that it is told of.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use proto::{
    money::Money,
    ratelimit::{Bucket, CheckAllRequest, CheckRequest, rate_limits_client::RateLimitsClient},
    sessions::{
        CreateSessionRequest, GetSessionRequest, Payer, Session, sessions_client::SessionsClient,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use tonic::transport::Channel;
use uuid::Uuid;

use super::store::Store;

/// The merchant of every request: nobody is authenticated.
const MERCHANT: Uuid = Uuid::from_u128(0x0192_8c5e_2b6d_7a4f_8c3e_5d1f_9a7b_2c4d);

const CURRENCY: &str = "GHS";

#[derive(Clone)]
pub struct Edge {
    pub limits: Option<RateLimitsClient<Channel>>,
    pub sessions: Option<SessionsClient<Channel>>,
    /// Only for an edge without services behind it.
    pub store: Option<Store>,
}

/// A session or a charge, as merchants ask for one.
#[derive(Debug, Deserialize)]
struct Order {
    amount: Number,
    currency: Option<String>,
    description: Option<String>,
    redirect_url: Option<String>,
    customer_email: Option<String>,
    customer_name: Option<String>,
    customer_phone: Option<String>,
    /// Only for a charge.
    mobile_number: Option<String>,
}

/// About as long as the gateway's answers.
#[derive(Debug, Serialize)]
struct Shown {
    session_id: String,
    /// By which a charge is read.
    reference: String,
    payment_url: String,
    status: &'static str,
    amount: Number,
    currency: String,
    description: Option<String>,
    created_at: String,
    expires_at: String,
}

/// A call that failed: 500 in its words.
struct Failure(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let message = format!("{:#}", self.0);
        (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
    }
}

impl Edge {
    /// The gateway's paths, so that both are measured by the same requests.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(|| async {}).post(receive))
            .route("/api/v1/payments/initiate", post(create))
            .route("/api/v1/payments/charge", post(charge))
            .route("/api/v1/payments/charge/{session_id}", get(show))
            .route("/api/v1/payments/{session_id}/status", get(show))
            .with_state(self)
    }

    async fn check(&self, bucket: Bucket) -> Result<(), tonic::Status> {
        if let Some(limits) = &self.limits {
            let check = CheckRequest {
                subject: MERCHANT.to_string(),
                bucket: bucket.into(),
            };
            let request = CheckAllRequest {
                checks: vec![check],
            };
            limits.clone().check_all(request).await?;
        }
        Ok(())
    }

    async fn create(&self, bucket: Bucket, order: Order) -> Result<Shown, Failure> {
        self.check(bucket).await?;
        let amount = order.amount.clone();
        let request = order.into_request();
        let created = match (&self.sessions, &self.store) {
            (Some(sessions), _) => {
                let created = sessions.clone().create_session(request).await?;
                created.into_inner().session.unwrap_or_default()
            }
            (None, Some(store)) => store.insert(request).await?,
            (None, None) => Session {
                session_id: Uuid::new_v4().to_string(),
                ..Session::default()
            },
        };
        Ok(Shown::new(created, amount))
    }
}

impl Order {
    fn into_request(self) -> CreateSessionRequest {
        CreateSessionRequest {
            merchant_id: MERCHANT.to_string(),
            amount: Some(Money {
                minor_units: self.amount.as_i64().unwrap_or(2_550),
                currency: self.currency.unwrap_or_else(|| CURRENCY.to_owned()),
            }),
            description: self.description,
            redirect_url: self.redirect_url,
            payer: Some(Payer {
                phone: self.customer_phone.or(self.mobile_number),
                email: self.customer_email,
                name: self.customer_name,
            }),
            idempotency_key: String::new(),
        }
    }
}

impl Shown {
    fn new(session: Session, amount: Number) -> Self {
        Self {
            payment_url: format!("https://pay.example.com/pay/{}", session.session_id),
            reference: session.session_id.clone(),
            session_id: session.session_id,
            status: "PENDING",
            amount,
            currency: session.amount.unwrap_or_default().currency,
            description: session.description,
            created_at: session.created_at,
            expires_at: session.expires_at,
        }
    }
}

async fn create(State(edge): State<Edge>, Json(order): Json<Order>) -> Result<Response, Failure> {
    let created = edge.create(Bucket::Payments, order).await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn charge(State(edge): State<Edge>, Json(order): Json<Order>) -> Result<Response, Failure> {
    let charged = edge.create(Bucket::Charge, order).await?;
    Ok((StatusCode::ACCEPTED, Json(charged)).into_response())
}

async fn show(State(edge): State<Edge>, Path(id): Path<String>) -> Result<Json<Shown>, Failure> {
    edge.check(Bucket::Payments).await?;
    let request = GetSessionRequest {
        session_id: id,
        merchant_id: MERCHANT.to_string(),
    };
    let session = match &edge.sessions {
        Some(sessions) => sessions.clone().get_session(request).await?.into_inner(),
        None => Session::default(),
    };
    let minor_units = session.amount.clone().unwrap_or_default().minor_units;
    Ok(Json(Shown::new(session, minor_units.into())))
}

/// A receiver, such as a rail or a merchant.
async fn receive(Json(_): Json<serde_json::Value>) -> StatusCode {
    StatusCode::ACCEPTED
}
