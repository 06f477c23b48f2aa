//! The calls, and domain to proto; `grpc/parse.rs` converts the other way.

mod checkout;
mod operations;
mod parse;

use std::sync::Arc;

use chassis::{
    grpc::BatchedMethods,
    ids::{CustomerId, SessionId},
    page::PageAsked,
};
use proto::{
    batched::{CreateSession, GetSession, RecordTransaction},
    sessions::{
        CreateSessionRequest, CreateSessionResponse, Customer as ProtoCustomer, GetCustomerRequest,
        GetSessionRequest, ListCustomersRequest, ListCustomersResponse, ListSessionsRequest,
        ListSessionsResponse, Payer as ProtoPayer, RecordTransactionRequest,
        RecordTransactionResponse, Session as ProtoSession, SessionStatus as ProtoSessionStatus,
        Settlement as ProtoSettlement, Transaction as ProtoTransaction,
        TransactionStatus as ProtoTransactionStatus, Wallet as ProtoWallet,
        record_transaction_response::Outcome as ProtoOutcome, sessions_server::Sessions,
    },
};
use tonic::{Request, Response, Status};

use crate::{
    customer::{Customer, Payer},
    report::{ReportOutcome, ReportReply},
    service::Service,
    session::{Session, SessionStatus, ShownSession},
    transaction::{Settlement, Transaction, Wallet},
};

chassis::proto_list! {
    SessionStatus = ProtoSessionStatus { Pending, Processing, Completed, Failed, Expired }
}

/// The service, as it is called.
pub struct Grpc(pub Service);

impl Grpc {
    async fn create(&self, request: CreateSessionRequest) -> Result<CreateSessionResponse, Status> {
        let (new, key) = parse::new_session(request)?;
        let (session, replayed) = self.0.create_session(new, &key).await?;
        let session = ShownSession {
            status: session.status,
            session,
            transaction: None,
        };
        Ok(CreateSessionResponse {
            session: Some(session.into()),
            replayed,
        })
    }

    async fn get(&self, request: GetSessionRequest) -> Result<ProtoSession, Status> {
        let (id, merchant) = parse::wanted_session(&request)?;
        if merchant.is_none() {
            // By gateways of the version before. Once none runs any more, this is to be refused.
            metrics::counter!("sessions_read_without_merchant_total").increment(1);
        }
        Ok(self.0.get_session(id, merchant).await?.into())
    }

    async fn record(
        &self,
        request: RecordTransactionRequest,
    ) -> Result<RecordTransactionResponse, Status> {
        Ok(self.0.record(parse::report(request)?).await?.into())
    }

    /// What may be called by batches.
    pub fn batched(self: &Arc<Self>) -> BatchedMethods {
        let [creating, reading, recording] = [(); 3].map(|()| Arc::clone(self));
        BatchedMethods::default()
            .method::<CreateSession, _>(move |request| {
                let grpc = Arc::clone(&creating);
                async move { grpc.create(request).await }
            })
            .method::<GetSession, _>(move |request| {
                let grpc = Arc::clone(&reading);
                async move { grpc.get(request).await }
            })
            .method::<RecordTransaction, _>(move |request| {
                let grpc = Arc::clone(&recording);
                async move { grpc.record(request).await }
            })
    }
}

#[tonic::async_trait]
impl Sessions for Grpc {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        Ok(Response::new(self.create(request.into_inner()).await?))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<ProtoSession>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn record_transaction(
        &self,
        request: Request<RecordTransactionRequest>,
    ) -> Result<Response<RecordTransactionResponse>, Status> {
        Ok(Response::new(self.record(request.into_inner()).await?))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let request = request.into_inner();
        let asked = PageAsked {
            size: request.page_size,
            token: &request.page_token,
            from: &request.from,
            to: &request.to,
        };
        let asked = parse::page(asked, SessionId::uuid)?;
        let (wanted, one) = parse::wanted_sessions(request)?;
        let page = match one {
            Some(id) => self.0.list_session(id, &wanted, asked.span).await?,
            None => self.0.list_sessions(wanted, asked).await?,
        };
        Ok(Response::new(ListSessionsResponse {
            sessions: page.rows.into_iter().map(ProtoSession::from).collect(),
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
        }))
    }

    async fn list_customers(
        &self,
        request: Request<ListCustomersRequest>,
    ) -> Result<Response<ListCustomersResponse>, Status> {
        let request = request.into_inner();
        let asked = PageAsked {
            size: request.page_size,
            token: &request.page_token,
            from: &request.from,
            to: &request.to,
        };
        let asked = parse::page(asked, |id: CustomerId| id.to_string())?;
        let wanted = parse::wanted_customers(request)?;
        let page = self.0.list_customers(&wanted, &asked).await?;
        Ok(Response::new(ListCustomersResponse {
            customers: page.rows.into_iter().map(ProtoCustomer::from).collect(),
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
        }))
    }

    async fn get_customer(
        &self,
        request: Request<GetCustomerRequest>,
    ) -> Result<Response<ProtoCustomer>, Status> {
        let (merchant, id) = parse::wanted_customer(request.get_ref())?;
        Ok(Response::new(
            self.0.get_customer(merchant, &id).await?.into(),
        ))
    }
}

impl From<ShownSession> for ProtoSession {
    fn from(shown: ShownSession) -> Self {
        let ShownSession {
            session,
            status,
            transaction,
        } = shown;
        Self {
            session_id: session.session_id.to_string(),
            merchant_id: session.merchant_id.to_string(),
            amount: Some(session.amount().into()),
            transaction: transaction.map(|transaction| proto_transaction(transaction, &session)),
            description: session.description,
            redirect_url: session.redirect_url,
            status: ProtoSessionStatus::from(status).into(),
            created_at: session.created_at.to_string(),
            expires_at: session.expires_at.to_string(),
            payer: Some(session.payer.into()),
        }
    }
}

fn proto_transaction(transaction: Transaction, session: &Session) -> ProtoTransaction {
    ProtoTransaction {
        transaction_id: transaction.transaction_id.to_string(),
        tx_id_display: transaction.tx_id_display.to_string(),
        status: ProtoTransactionStatus::from(transaction.status).into(),
        method: transaction.method,
        amount: Some(session.amount().into()),
        failure_reason: transaction.failure_reason,
        failure_message: transaction.failure_message,
        settlement: transaction.settlement.map(ProtoSettlement::from),
        wallet: transaction.wallet.map(ProtoWallet::from),
        created_at: transaction.created_at.to_string(),
        updated_at: transaction.updated_at.to_string(),
    }
}

impl From<Wallet> for ProtoWallet {
    fn from(wallet: Wallet) -> Self {
        Self {
            provider: wallet.provider,
            last_four: wallet.last_four,
        }
    }
}

impl From<Settlement> for ProtoSettlement {
    fn from(settlement: Settlement) -> Self {
        Self {
            amount: Some(settlement.amount.into()),
            rate: settlement.rate,
        }
    }
}

impl From<Payer> for ProtoPayer {
    fn from(payer: Payer) -> Self {
        Self {
            phone: payer.phone.map(|phone| phone.as_e164().to_owned()),
            email: payer.email,
            name: payer.name,
        }
    }
}

impl From<ReportReply> for RecordTransactionResponse {
    fn from(recorded: ReportReply) -> Self {
        let outcome = match recorded.outcome {
            ReportOutcome::Recorded => ProtoOutcome::Recorded,
            ReportOutcome::Refused => ProtoOutcome::Refused,
        };
        let status = recorded
            .session_status
            .map(ProtoSessionStatus::from)
            .unwrap_or_default();
        Self {
            outcome: outcome.into(),
            session_status: status.into(),
        }
    }
}

impl From<Customer> for ProtoCustomer {
    fn from(customer: Customer) -> Self {
        Self {
            customer_id: customer.customer_id.to_string(),
            phone: customer.phone.map(|phone| phone.as_e164().to_owned()),
            email: customer.email,
            name: customer.name,
            created_at: customer.created_at.to_string(),
            last_payment_at: customer.last_payment_at.map(|at| at.to_string()),
            payments_count: u32::try_from(customer.payments_count).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for status in SessionStatus::ALL {
            let sent = ProtoSessionStatus::from(*status);
            assert_eq!(sent.code(), Some(status.code()));
        }
    }
}
