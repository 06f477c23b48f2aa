//! The merchants' API, with an answer other than the wanted one as a code.

use ::http::{
    HeaderValue, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use bytes::Bytes;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    engine::turn,
    http::{Answer, Client},
    payers::{Kind, Payers},
    plan::{Code, Outcome},
    shop::Shop,
};

pub struct Api {
    /// One for each gateway.
    clients: Vec<Client>,
    shops: Vec<Shop>,
    payers: Payers,
}

/// What the answers to both POSTs have.
#[derive(Deserialize)]
pub struct Created {
    pub session_id: String,
    pub reference: Option<String>,
}

/// A charge, as far as it is looked at.
#[derive(Deserialize)]
pub struct ShownCharge {
    pub status: String,
    pub updated_at: String,
}

/// An answer that is no success.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    code: String,
}

impl Api {
    /// Requests are sent to each of these gateways in turn.
    pub fn new(gateway_urls: &[String], shops: Vec<Shop>, payers: Kind) -> anyhow::Result<Self> {
        let clients = gateway_urls.iter().map(|url| Client::new(url));
        Ok(Self {
            clients: clients.collect::<anyhow::Result<_>>()?,
            shops,
            payers: Payers::new(payers),
        })
    }

    pub fn merchants(&self) -> u64 {
        u64::try_from(self.shops.len()).unwrap_or(u64::MAX)
    }

    /// Creates a session for the `n`th payer.
    pub async fn initiate(&self, n: u64) -> Result<Created, Code> {
        let mut body = json!({ "amount": 25.5, "currency": "GHS", "description": "Load test" });
        if let Some(phone) = self.payers.named(n) {
            body["customer_phone"] = phone.into();
        }
        self.post(n, "/api/v1/payments/initiate", &body, StatusCode::CREATED)
            .await
    }

    /// Debits the `n`th payer.
    pub async fn charge(&self, n: u64) -> Result<Created, Code> {
        let body = json!({
            "amount": 25.5,
            "mobile_number": self.payers.phone(n),
            "provider": "MTN",
        });
        self.post(n, "/api/v1/payments/charge", &body, StatusCode::ACCEPTED)
            .await
    }

    /// Reads a charge of the `n`th merchant.
    pub async fn shown(&self, n: u64, path: &str) -> Result<ShownCharge, Code> {
        let request = self.authorized(n, Method::GET, path, Bytes::new());
        let answer = turn(&self.clients, n).send(request?).await?;
        expect(&answer, StatusCode::OK)?;
        serde_json::from_slice(&answer.body).map_err(|_| Code::Borrowed("unreadable answer"))
    }

    /// Reads what the `n`th merchant has.
    pub async fn read(&self, n: u64, path: &str) -> Outcome {
        let request = self.authorized(n, Method::GET, path, Bytes::new());
        let answer = turn(&self.clients, n).send(request?).await?;
        expect(&answer, StatusCode::OK)
    }

    /// Asks for a path that does not exist.
    pub async fn ask_for_nothing(&self, n: u64) -> Outcome {
        let request = request(Method::GET, "/api/v1/nothing", Bytes::new());
        let answer = turn(&self.clients, n).send(request).await?;
        expect(&answer, StatusCode::NOT_FOUND)
    }

    async fn post(
        &self,
        n: u64,
        path: &str,
        body: &Value,
        wanted: StatusCode,
    ) -> Result<Created, Code> {
        let request = self.authorized(n, Method::POST, path, body.to_string().into());
        let answer = turn(&self.clients, n).send(request?).await?;
        expect(&answer, wanted)?;
        serde_json::from_slice(&answer.body).map_err(|_| Code::Borrowed("unreadable answer"))
    }

    /// A request of the `n`th merchant.
    fn authorized(
        &self,
        n: u64,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Code> {
        let key = format!("Bearer {}", turn(&self.shops, n).api_key);
        let key = key.parse().map_err(|_| Code::Borrowed("unusable key"))?;
        let mut request = request(method, path, body);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, key);
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json);
        Ok(request)
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    // Paths are made here, of ids.
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

fn expect(answer: &Answer, wanted: StatusCode) -> Outcome {
    if answer.status == wanted {
        return Ok(());
    }
    let refusal: Refusal = serde_json::from_slice(&answer.body).unwrap_or_default();
    let mut code = format!("{} {}", answer.status.as_u16(), refusal.code);
    // An overloaded server says when to come back.
    if answer.status == StatusCode::SERVICE_UNAVAILABLE && !answer.headers.contains_key(RETRY_AFTER)
    {
        code.push_str(" without Retry-After");
    }
    Err(Code::Owned(code))
}
