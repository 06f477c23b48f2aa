//! What the actors of a storm share: the merchants, the gateway, and what it has told them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ::http::{
    HeaderValue, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use chassis::shutdown::Shutdown;
use http_body_util::Full;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::choices::Choices;
use crate::{engine::turn, http::Client, shop::Shop};

/// Longest wait for an answer by somebody patient.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many times in a hundred a client goes away before it is answered, and after how many
/// milliseconds at most.
const IMPATIENT: u64 = 12;
const IMPATIENT_MS_MAX: u64 = 60;

/// Bounds of the wait before a request is repeated, in milliseconds.
const REPEAT_MS: (u64, u64) = (20, 300);

pub struct World {
    pub seed: u64,
    pub merchants: Vec<Merchant>,
    /// No further request is begun.
    pub calm: Shutdown,
    /// When nobody waits for an answer any more.
    pub deadline: Instant,
    gateways: Vec<Client>,
    told: Mutex<Told>,
}

pub struct Merchant {
    pub merchant_id: String,
    api_key: String,
    /// References that may be refunded, with the amounts in pesewas.
    charged: Mutex<Vec<(String, u64)>>,
}

/// What the gateway has told clients.
#[derive(Default)]
pub struct Told {
    pub charges: Vec<Acknowledged>,
    pub disbursements: Vec<Acknowledged>,
    /// Keys that were never answered.
    pub unanswered: u64,
    /// What contradicts another answer, or is no answer that is documented.
    pub contradictions: Vec<String>,
    /// By what was asked and what was answered.
    pub answers: BTreeMap<String, u64>,
    /// Requests whose answer did not arrive, each of which was repeated.
    pub lost_answers: u64,
}

/// Something that a merchant was told exists.
pub struct Acknowledged {
    pub merchant_id: String,
    /// A reference, `PO-…` or `RF-…`.
    pub id: String,
    /// In pesewas, if the request named one.
    pub amount_minor: Option<u64>,
}

/// A request with its key.
pub struct Ask<'a> {
    pub what: &'static str,
    pub merchant: &'a Merchant,
    pub path: String,
    pub body: String,
    pub key: String,
}

pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl World {
    pub fn new(
        seed: u64,
        shops: Vec<Shop>,
        gateways: &[String],
        deadline: Instant,
    ) -> anyhow::Result<Self> {
        let merchants = shops.into_iter().map(|shop| Merchant {
            merchant_id: shop.merchant_id,
            api_key: shop.api_key,
            charged: Mutex::default(),
        });
        let gateways = gateways.iter().map(|url| Client::new(url));
        Ok(Self {
            seed,
            merchants: merchants.collect(),
            calm: Shutdown::new(),
            deadline,
            gateways: gateways.collect::<anyhow::Result<_>>()?,
            told: Mutex::default(),
        })
    }

    pub fn told(&self) -> MutexGuard<'_, Told> {
        // No code panics while it holds the lock.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, with its key, until it has an answer that is no "later". `None` if it never
    /// got one. Some clients go away before they are answered, and come again. `chooser` tells apart
    /// who sends the same.
    pub async fn answered(&self, ask: &Ask<'_>, chooser: &str) -> Option<Answer> {
        let mut choices = Choices::of(self.seed, &format!("{chooser} {}", ask.key));
        while Instant::now() < self.deadline {
            let patience = match choices.chance(IMPATIENT) {
                true => Duration::from_millis(choices.between(1, IMPATIENT_MS_MAX)),
                false => PATIENCE,
            };
            match timeout(patience, self.send(ask, &mut choices)).await {
                Ok(Ok(answer)) if !answer.is_later() => {
                    self.count(ask.what, &answer);
                    return Some(answer);
                }
                Ok(Ok(later)) => self.count(ask.what, &later),
                Ok(Err(_)) | Err(_) => self.told().lost_answers += 1,
            }
            let (from, to) = REPEAT_MS;
            sleep(Duration::from_millis(choices.between(from, to))).await;
        }
        self.told().unanswered += 1;
        None
    }

    async fn send(&self, ask: &Ask<'_>, choices: &mut Choices) -> anyhow::Result<Answer> {
        let gateway = choices.one_of(&self.gateways).context("no gateway")?;
        let body = Bytes::from(ask.body.clone());
        let mut request = ask.merchant.request(Method::POST, &ask.path, body)?;
        let headers = request.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json);
        headers.insert("idempotency-key", ask.key.parse()?);
        sent(gateway, request).await
    }

    /// Reads something of a merchant's once, at one of the gateways, which take turns.
    pub async fn read(&self, merchant: &Merchant, path: &str, at: u64) -> anyhow::Result<Answer> {
        let request = merchant.request(Method::GET, path, Bytes::new())?;
        timeout(PATIENCE, sent(turn(&self.gateways, at), request)).await?
    }

    /// Calls back as a network does that does not sign what it calls.
    pub async fn call_back(&self, rail: &str, token: &str) -> anyhow::Result<()> {
        let mut request = Request::new(Full::new(Bytes::from_static(b"{}")));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("/rails/{rail}/{token}").parse()?;
        let gateway = self.gateways.first().context("no gateway")?;
        sent(gateway, request).await.map(drop)
    }

    fn count(&self, what: &str, answer: &Answer) {
        let kind = match answer.text("code") {
            Some(code) => format!("{what}: {} {code}", answer.status.as_u16()),
            None => format!("{what}: {}", answer.status.as_u16()),
        };
        *self.told().answers.entry(kind).or_default() += 1;
    }
}

async fn sent(gateway: &Client, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
    let answer = gateway.send(request).await;
    let answer = answer.map_err(|code| anyhow!("{code}"))?;
    Ok(Answer {
        status: answer.status,
        body: serde_json::from_slice(&answer.body).unwrap_or_default(),
    })
}

impl Merchant {
    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse()?;
        let key = format!("Bearer {}", self.api_key).parse()?;
        request.headers_mut().insert(AUTHORIZATION, key);
        Ok(request)
    }

    fn charged(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        // No code panics while it holds the lock.
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_charged(&self, reference: &str, amount_minor: u64) {
        self.charged().push((reference.to_owned(), amount_minor));
    }

    /// One of its charges, with the amount in pesewas.
    pub fn one_charged(&self, choices: &mut Choices) -> Option<(String, u64)> {
        choices.one_of(&self.charged()).cloned()
    }
}

impl Answer {
    /// Whether the same request, sent again, may be answered otherwise.
    fn is_later(&self) -> bool {
        let is_running = self.text("code") == Some("IDEMPOTENCY_IN_PROGRESS");
        let is_busy = matches!(self.status.as_u16(), 408 | 429);
        self.status.is_server_error() || is_running || is_busy
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.body.get(field)?.as_str()
    }
}
