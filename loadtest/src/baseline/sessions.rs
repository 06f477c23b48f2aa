//! The bare service: one row for each call, and what a charge or a webhook adds to that.

use anyhow::{Context as _, Error, ensure};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::Full;
use proto::sessions::{
    CreateSessionRequest, CreateSessionResponse, Customer, GetCustomerRequest, GetSessionRequest,
    ListCustomersRequest, ListCustomersResponse, ListSessionsRequest, ListSessionsResponse,
    RecordTransactionRequest, RecordTransactionResponse, Session, sessions_server,
};
use serde_json::json;
use sha2::Sha256;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::store::Store;
use crate::{config::Hop, http::Client};

/// What posts are signed with.
const SECRET: &[u8] = b"a secret of the same length as merchants' secrets";

pub struct Sessions {
    store: Option<Store>,
    receiver: Option<Receiver>,
}

/// Whom every row is posted to, over connections that are kept; how often, and how often the row is
/// updated after that.
struct Receiver {
    client: Client,
    posts: u8,
    updates: u8,
}

impl Sessions {
    pub fn new(hop: &Hop, store: Option<Store>) -> anyhow::Result<Self> {
        let client = hop.post_url.as_deref().map(Client::new).transpose()?;
        Ok(Self {
            store,
            receiver: client.map(|client| Receiver {
                client,
                posts: hop.posts,
                updates: hop.updates,
            }),
        })
    }

    async fn create(&self, request: CreateSessionRequest) -> anyhow::Result<Session> {
        let Some(store) = &self.store else {
            return Ok(Session {
                session_id: Uuid::new_v4().to_string(),
                amount: request.amount,
                description: request.description,
                ..Session::default()
            });
        };
        let session = store.insert(request).await?;
        if let Some(receiver) = &self.receiver {
            for _ in 0..receiver.posts {
                receiver.post(&session).await?;
            }
            for _ in 0..receiver.updates {
                store.update(&session.session_id).await?;
            }
        }
        Ok(session)
    }

    async fn get(&self, request: GetSessionRequest) -> anyhow::Result<Session> {
        let store = self.store.as_ref().context("no database")?;
        store.find(&request.session_id).await
    }
}

impl Receiver {
    async fn post(&self, session: &Session) -> anyhow::Result<()> {
        let body = json!({
            "id": session.session_id,
            "type": "payment.success",
            "created_at": session.created_at,
            "data": {
                "session_id": session.session_id,
                "merchant_id": session.merchant_id,
                "description": session.description,
                "amount_minor": session.amount.as_ref().map(|amount| amount.minor_units),
                "currency": session.amount.as_ref().map(|amount| &amount.currency),
                "expires_at": session.expires_at,
            },
        });
        let body = serde_json::to_vec(&body)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET)?;
        mac.update(&body);
        let signature = hex::encode(mac.finalize().into_bytes());
        let post = ::http::Request::post("/")
            .header("Content-Type", "application/json")
            .header("X-Service-Signature", signature)
            .body(Full::new(body.into()))?;
        let answer = self.client.send(post).await.map_err(Error::msg)?;
        ensure!(answer.status.is_success(), "{}", answer.status);
        Ok(())
    }
}

fn failed(error: anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

#[tonic::async_trait]
impl sessions_server::Sessions for Sessions {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let session = self.create(request.into_inner()).await.map_err(failed)?;
        Ok(Response::new(CreateSessionResponse {
            session: Some(session),
            replayed: false,
        }))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<Session>, Status> {
        let session = self.get(request.into_inner()).await.map_err(failed)?;
        Ok(Response::new(session))
    }

    async fn record_transaction(
        &self,
        _: Request<RecordTransactionRequest>,
    ) -> Result<Response<RecordTransactionResponse>, Status> {
        Err(Status::unimplemented("not part of a bare path"))
    }

    async fn list_sessions(
        &self,
        _: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        Err(Status::unimplemented("not part of a bare path"))
    }

    async fn list_customers(
        &self,
        _: Request<ListCustomersRequest>,
    ) -> Result<Response<ListCustomersResponse>, Status> {
        Err(Status::unimplemented("not part of a bare path"))
    }

    async fn get_customer(
        &self,
        _: Request<GetCustomerRequest>,
    ) -> Result<Response<Customer>, Status> {
        Err(Status::unimplemented("not part of a bare path"))
    }
}
