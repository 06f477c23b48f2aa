//! A sessions-svc that gives every charge the same answer, perhaps after its machine, which is
//! also ours, has stood still. It is a webhooks-svc, too, which takes every event, and a
//! merchants-svc, which takes every notice.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chassis::{grpc::BatchedMethods, testing::ServedService};
use futures::stream::BoxStream;
use proto::{
    batch::{
        CarryRequest, CarryResponse,
        batches_server::{Batches, BatchesServer},
    },
    batched::{Publish, RecordTransaction},
    merchants::{
        TellMerchantRequest, TellMerchantResponse,
        notices_server::{Notices, NoticesServer},
    },
    sessions::{
        AddWalletsRequest, AddWalletsResponse, CreateSessionRequest, CreateSessionResponse,
        Customer, GetCustomerRequest, GetSessionRequest, ListCustomersRequest,
        ListCustomersResponse, ListSessionsRequest, ListSessionsResponse,
        ListTransactionsWithoutWalletRequest, ListTransactionsWithoutWalletResponse,
        RecordTransactionRequest, RecordTransactionResponse, Session, TransactionPlace,
        WalletOfTransaction,
        record_transaction_request::Step,
        record_transaction_response::Outcome,
        session_operations_server::{SessionOperations, SessionOperationsServer},
        sessions_server::{Sessions, SessionsServer},
    },
    webhooks::{
        Delivery, Endpoint, GetDeliveryRequest, GetEndpointRequest, ListDeliveriesRequest,
        ListDeliveriesResponse, PublishRequest, PublishResponse, RedeliverRequest,
        RotateSecretRequest, SetEndpointEnabledRequest, SetEndpointRequest,
        webhooks_server::{Webhooks, WebhooksServer},
    },
};
use tonic::{Request, Response, Status, service::Routes};

#[derive(Clone)]
struct Neighbour {
    outcome: Outcome,
    stall: Duration,
    updates: Updates,
}

/// What it was told: how many changes of charges, and which events. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Updates {
    changes: Arc<AtomicUsize>,
    batches: Arc<AtomicUsize>,
    events: Arc<Mutex<Vec<PublishRequest>>>,
    notices: Arc<Mutex<Vec<TellMerchantRequest>>>,
    /// How many more notices it refuses to take.
    refusing: Arc<AtomicUsize>,
    /// The transactions that it says lack a wallet.
    lacking: Arc<Mutex<Vec<TransactionPlace>>>,
    wallets: Arc<Mutex<Vec<WalletOfTransaction>>>,
    /// The pages of those that it was asked for, and when.
    pages: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl Updates {
    pub fn count(&self) -> usize {
        self.changes.load(Ordering::SeqCst)
    }

    /// How many batches of calls have come.
    pub fn batches(&self) -> usize {
        self.batches.load(Ordering::SeqCst)
    }

    pub fn lack(&self, transactions: Vec<TransactionPlace>) {
        *self.lacking.lock().unwrap() = transactions;
    }

    /// The wallets that were added.
    pub fn wallets(&self) -> Vec<WalletOfTransaction> {
        self.wallets.lock().unwrap().clone()
    }

    pub fn pages(&self) -> Vec<(String, Instant)> {
        self.pages.lock().unwrap().clone()
    }

    /// Lets it fail for so many notices.
    pub fn refuse_notices(&self, count: usize) {
        self.refusing.store(count, Ordering::SeqCst);
    }

    pub fn notices(&self) -> Vec<TellMerchantRequest> {
        self.notices.lock().unwrap().clone()
    }

    pub fn events(&self) -> Vec<PublishRequest> {
        self.events.lock().unwrap().clone()
    }
}

pub async fn start(outcome: Outcome, stall: Duration, updates: Updates) -> ServedService {
    let neighbour = Neighbour {
        outcome,
        stall,
        updates,
    };
    let sessions = SessionsServer::new(neighbour.clone());
    let routes = Routes::new(sessions)
        .add_service(BatchesServer::new(neighbour.clone()))
        .add_service(SessionOperationsServer::new(neighbour.clone()))
        .add_service(NoticesServer::new(neighbour.clone()))
        .add_service(WebhooksServer::new(neighbour));
    ServedService::of(routes).await
}

impl Neighbour {
    fn batched(&self) -> BatchedMethods {
        let (recording, publishing) = (self.clone(), self.clone());
        BatchedMethods::default()
            .method::<RecordTransaction, _>(move |request| {
                let neighbour = recording.clone();
                async move {
                    let recorded = neighbour.record_transaction(Request::new(request)).await;
                    recorded.map(Response::into_inner)
                }
            })
            .method::<Publish, _>(move |request| {
                let neighbour = publishing.clone();
                async move {
                    let published = neighbour.publish(Request::new(request)).await;
                    published.map(Response::into_inner)
                }
            })
    }
}

#[tonic::async_trait]
impl Batches for Neighbour {
    type CarryStream = BoxStream<'static, Result<CarryResponse, Status>>;

    async fn carry(
        &self,
        request: Request<CarryRequest>,
    ) -> Result<Response<Self::CarryStream>, Status> {
        self.updates.batches.fetch_add(1, Ordering::SeqCst);
        self.batched().carry(request).await
    }
}

#[tonic::async_trait]
impl Sessions for Neighbour {
    async fn record_transaction(
        &self,
        request: Request<RecordTransactionRequest>,
    ) -> Result<Response<RecordTransactionResponse>, Status> {
        match request.get_ref().step {
            // Blocks the thread, on which charges-svc also runs, so that nobody notices time
            // passing.
            Some(Step::Open(_)) => std::thread::sleep(self.stall),
            Some(Step::Update(_)) => {
                self.updates.changes.fetch_add(1, Ordering::SeqCst);
            }
            Some(Step::Withdraw(_)) | None => {}
        }
        Ok(Response::new(RecordTransactionResponse {
            outcome: self.outcome.into(),
            ..RecordTransactionResponse::default()
        }))
    }

    async fn create_session(
        &self,
        _: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        Err(not_asked())
    }

    async fn get_session(
        &self,
        _: Request<GetSessionRequest>,
    ) -> Result<Response<Session>, Status> {
        Err(not_asked())
    }

    async fn list_sessions(
        &self,
        _: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        Err(not_asked())
    }

    async fn list_customers(
        &self,
        _: Request<ListCustomersRequest>,
    ) -> Result<Response<ListCustomersResponse>, Status> {
        Err(not_asked())
    }

    async fn get_customer(
        &self,
        _: Request<GetCustomerRequest>,
    ) -> Result<Response<Customer>, Status> {
        Err(not_asked())
    }
}

#[tonic::async_trait]
impl SessionOperations for Neighbour {
    /// A page for each that it was given and has no wallet for.
    async fn list_transactions_without_wallet(
        &self,
        request: Request<ListTransactionsWithoutWalletRequest>,
    ) -> Result<Response<ListTransactionsWithoutWalletResponse>, Status> {
        let token = request.into_inner().page_token;
        let after: usize = token.parse().unwrap_or(0);
        self.updates
            .pages
            .lock()
            .unwrap()
            .push((token, Instant::now()));
        let lacking = self.updates.lacking.lock().unwrap();
        let next = (after + 1 < lacking.len()).then(|| (after + 1).to_string());
        Ok(Response::new(ListTransactionsWithoutWalletResponse {
            transactions: lacking.get(after).cloned().into_iter().collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn add_wallets(
        &self,
        request: Request<AddWalletsRequest>,
    ) -> Result<Response<AddWalletsResponse>, Status> {
        let added = request.into_inner().wallets;
        self.updates.wallets.lock().unwrap().extend(added);
        Ok(Response::new(AddWalletsResponse {}))
    }
}

#[tonic::async_trait]
impl Notices for Neighbour {
    async fn tell_merchant(
        &self,
        request: Request<TellMerchantRequest>,
    ) -> Result<Response<TellMerchantResponse>, Status> {
        let left = |left: usize| left.checked_sub(1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.updates.refusing.fetch_update(set, fetch, left).is_ok() {
            return Err(Status::unavailable("not at this moment"));
        }
        let mut notices = self.updates.notices.lock().unwrap();
        notices.push(request.into_inner());
        Ok(Response::new(TellMerchantResponse {}))
    }
}

#[tonic::async_trait]
impl Webhooks for Neighbour {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        self.updates
            .events
            .lock()
            .unwrap()
            .push(request.into_inner());
        Ok(Response::new(PublishResponse {}))
    }

    async fn set_endpoint(
        &self,
        _: Request<SetEndpointRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(not_asked())
    }

    async fn get_endpoint(
        &self,
        _: Request<GetEndpointRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(not_asked())
    }

    async fn rotate_secret(
        &self,
        _: Request<RotateSecretRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(not_asked())
    }

    async fn set_endpoint_enabled(
        &self,
        _: Request<SetEndpointEnabledRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(not_asked())
    }

    async fn list_deliveries(
        &self,
        _: Request<ListDeliveriesRequest>,
    ) -> Result<Response<ListDeliveriesResponse>, Status> {
        Err(not_asked())
    }

    async fn get_delivery(
        &self,
        _: Request<GetDeliveryRequest>,
    ) -> Result<Response<Delivery>, Status> {
        Err(not_asked())
    }

    async fn redeliver(&self, _: Request<RedeliverRequest>) -> Result<Response<Delivery>, Status> {
        Err(not_asked())
    }
}

fn not_asked() -> Status {
    Status::unimplemented("not asked by charges-svc")
}
