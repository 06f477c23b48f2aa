//! Stand-ins for the services behind the gateway, made from their contracts alone. Each call is
//! recorded, and answered as the test says.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use chassis::shutdown::Tasks;
use futures::{
    StreamExt as _,
    channel::mpsc,
    future::{BoxFuture, try_join_all},
    stream::{self, BoxStream},
};
use proto::{
    batch,
    charges::{
        self, WatchChargesResponse, charges_server::Charges, disbursements_server::Disbursements,
        statements_server::Statements,
    },
    merchants::{self, merchants_server::Merchants},
    ratelimit::{self, rate_limits_server::RateLimits},
    sessions::{self, checkout_sessions_server::CheckoutSessions, sessions_server::Sessions},
    webhooks::{self, merchant_events_server::MerchantEvents},
};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

mod batches;

type Answering<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, Result<A, Status>> + Send + Sync>;

/// One call of a contract.
pub struct Call<Q, A> {
    asked: Mutex<Vec<Q>>,
    answering: Mutex<Answering<Q, A>>,
}

impl<Q: Clone, A: 'static> Call<Q, A> {
    fn new(answer: impl Fn(Q) -> Result<A, Status> + Send + Sync + 'static) -> Self
    where
        A: Send,
    {
        let call = Self {
            asked: Mutex::default(),
            answering: Mutex::new(Arc::new(|_| {
                Box::pin(async { Err(Status::unimplemented("no answer was given")) })
            })),
        };
        call.answers(answer);
        call
    }

    /// Answers like this from now on.
    pub fn answers(&self, answer: impl Fn(Q) -> Result<A, Status> + Send + Sync + 'static)
    where
        A: Send,
    {
        self.answers_late(move |request| {
            let answer = answer(request);
            async { answer }
        });
    }

    pub fn answers_late<F>(&self, answer: impl Fn(Q) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<A, Status>> + Send + 'static,
    {
        *self.answering.lock().expect("no test panics with it") =
            Arc::new(move |request| Box::pin(answer(request)));
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Q> {
        self.asked.lock().expect("no test panics with it").clone()
    }

    /// The only request so far.
    #[track_caller]
    pub fn asked_once(&self) -> Q {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "asked once");
        asked.into_iter().next().expect("the one")
    }

    async fn run(&self, request: Request<Q>) -> Result<Response<A>, Status> {
        let request = request.into_inner();
        self.asked
            .lock()
            .expect("no test panics with it")
            .push(request.clone());
        let answering = self
            .answering
            .lock()
            .expect("no test panics with it")
            .clone();
        answering(request).await.map(Response::new)
    }
}

/// A refusal with the reason that a contract names.
pub fn refusal(code: Code, reason: &str) -> Status {
    refusal_with(code, reason, &[])
}

/// A refusal that says what there is.
pub fn refusal_with(code: Code, reason: &str, told: &[(&str, &str)]) -> Status {
    let told = told
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let details =
        ErrorDetails::with_error_info(reason, "payments", told.collect::<HashMap<_, _>>());
    Status::with_error_details(code, "words for operators only", details)
}

type Told = Result<WatchChargesResponse, Status>;

/// Watched charges, and the streams on which they are.
#[derive(Default)]
pub struct Watches {
    streams: Mutex<Vec<mpsc::UnboundedSender<Told>>>,
    begun: Mutex<Vec<charges::ChargeWatch>>,
    ended: Mutex<Vec<u64>>,
}

impl Watches {
    fn open(
        self: &Arc<Self>,
        mut requests: Streaming<charges::WatchChargesRequest>,
    ) -> mpsc::UnboundedReceiver<Told> {
        let (tell, told) = mpsc::unbounded();
        self.streams
            .lock()
            .expect("no test panics with it")
            .push(tell);
        let watches = self.clone();
        Tasks::new().spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let begun = &mut watches.begun.lock().expect("no test panics with it");
                begun.extend(request.begin);
                let ended = &mut watches.ended.lock().expect("no test panics with it");
                ended.extend(request.end);
            }
        });
        told
    }

    /// Every watch so far, on whichever stream.
    pub fn begun(&self) -> Vec<charges::ChargeWatch> {
        self.begun.lock().expect("no test panics with it").clone()
    }

    /// Every watch that was given up.
    pub fn ended(&self) -> Vec<u64> {
        self.ended.lock().expect("no test panics with it").clone()
    }

    /// Tells every watch so far of this charge, on the open streams.
    pub fn tell(&self, charge: &charges::Charge) {
        let told = self
            .begun()
            .into_iter()
            .map(|watch| charges::WatchedCharge {
                watch_id: watch.watch_id,
                charge: Some(charge.clone()),
            });
        let told: Vec<_> = told.collect();
        let streams = self.streams.lock().expect("no test panics with it");
        for stream in &*streams {
            let told = told.clone();
            stream
                .unbounded_send(Ok(WatchChargesResponse { told }))
                .ok();
        }
    }

    /// Breaks the streams that are open.
    pub fn cut(&self) {
        let mut streams = self.streams.lock().expect("no test panics with it");
        for stream in streams.drain(..) {
            stream.unbounded_send(Err(Status::unavailable("cut"))).ok();
        }
    }
}

pub type ChangeOutcome = fn(batch::Outcome) -> Option<batch::Outcome>;

pub fn unchanged(outcome: batch::Outcome) -> Option<batch::Outcome> {
    Some(outcome)
}

/// All services.
pub struct Services {
    /// Each call of a batch is answered as if it had come by itself; a test may then change the
    /// outcomes.
    pub carry: Call<batch::CarryRequest, ChangeOutcome>,
    pub authenticate: Call<merchants::AuthenticateRequest, merchants::Merchant>,
    pub check: Call<ratelimit::CheckRequest, ratelimit::CheckResponse>,
    pub create_session: Call<sessions::CreateSessionRequest, sessions::CreateSessionResponse>,
    pub get_session: Call<sessions::GetSessionRequest, sessions::Session>,
    pub read_session: Call<sessions::ReadSessionRequest, sessions::Session>,
    pub create_charge: Call<charges::CreateChargeRequest, charges::ChargeAnswer>,
    pub submit_otp: Call<charges::SubmitOtpRequest, charges::ChargeAnswer>,
    pub get_charge: Call<charges::GetChargeRequest, charges::Charge>,
    pub get_charge_timeline: Call<charges::GetChargeTimelineRequest, charges::ChargeTimeline>,
    pub check_wallet: Call<charges::CheckWalletRequest, charges::CheckWalletResponse>,
    pub watches: Arc<Watches>,
    pub list_rails: Call<charges::ListRailsRequest, charges::ListRailsResponse>,
    pub receive_callback: Call<charges::ReceiveCallbackRequest, charges::ReceiveCallbackResponse>,
    pub list_charges: Call<charges::ListChargesRequest, charges::ListChargesResponse>,
    pub list_sessions: Call<sessions::ListSessionsRequest, sessions::ListSessionsResponse>,
    pub list_customers: Call<sessions::ListCustomersRequest, sessions::ListCustomersResponse>,
    pub get_customer: Call<sessions::GetCustomerRequest, sessions::Customer>,
    pub get_balance: Call<charges::GetBalanceRequest, charges::GetBalanceResponse>,
    pub create_payout: Call<charges::CreatePayoutRequest, charges::PayoutAnswer>,
    pub get_payout: Call<charges::GetPayoutRequest, charges::Payout>,
    pub list_payouts: Call<charges::ListPayoutsRequest, charges::ListPayoutsResponse>,
    pub read_payout_account: Call<charges::ReadPayoutAccountRequest, charges::PayoutAccount>,
    pub create_refund: Call<charges::CreateRefundRequest, charges::RefundAnswer>,
    pub get_refund: Call<charges::GetRefundRequest, charges::Refund>,
    pub list_refunds: Call<charges::ListRefundsRequest, charges::ListRefundsResponse>,
    pub list_events: Call<webhooks::ListEventsRequest, webhooks::ListEventsResponse>,
    pub redeliver_event: Call<webhooks::RedeliverEventRequest, webhooks::RedeliverEventResponse>,
    pub get_event_deliveries:
        Call<webhooks::GetEventDeliveriesRequest, webhooks::GetEventDeliveriesResponse>,
    pub get_merchant_endpoint:
        Call<webhooks::GetMerchantEndpointRequest, webhooks::MerchantEndpoint>,
    pub test_endpoint: Call<webhooks::TestEndpointRequest, webhooks::TestEndpointResponse>,
    /// Answers with the statement's pieces.
    pub read_statement: Call<charges::ReadStatementRequest, Vec<Result<&'static str, Status>>>,
    pub list_statement_keys:
        Call<charges::ListStatementKeysRequest, charges::ListStatementKeysResponse>,
}

impl Services {
    /// One verified merchant, room in every bucket, and nothing on record.
    pub fn new() -> Self {
        Self {
            carry: Call::new(|_| Ok(unchanged as ChangeOutcome)),
            authenticate: Call::new(|_| Ok(merchant())),
            check: Call::new(|_| Ok(allowed())),
            create_session: Call::new(|request| {
                Ok(sessions::CreateSessionResponse {
                    session: Some(session(request)),
                    replayed: false,
                })
            }),
            get_session: Call::new(|_| Err(refusal(Code::NotFound, "SESSION_NOT_FOUND"))),
            read_session: Call::new(|_| Err(refusal(Code::NotFound, "SESSION_NOT_FOUND"))),
            create_charge: Call::new(|request: charges::CreateChargeRequest| {
                Ok(charges::ChargeAnswer {
                    charge: Some(charge(charges::ChargeStatus::Initiated, request.amount)),
                    message: "Approve the payment on your phone.".to_owned(),
                    replayed: false,
                })
            }),
            submit_otp: Call::new(|_| Err(refusal(Code::NotFound, "CHARGE_NOT_FOUND"))),
            get_charge: Call::new(|_| Err(refusal(Code::NotFound, "CHARGE_NOT_FOUND"))),
            get_charge_timeline: Call::new(|_| Err(refusal(Code::NotFound, "CHARGE_NOT_FOUND"))),
            check_wallet: Call::new(|_| {
                Ok(charges::CheckWalletResponse {
                    wallet: charges::WalletState::Active.into(),
                })
            }),
            watches: Arc::default(),
            list_rails: Call::new(|_| Ok(rails())),
            receive_callback: Call::new(|_| Ok(charges::ReceiveCallbackResponse {})),
            list_charges: Call::new(|_| Ok(charges::ListChargesResponse::default())),
            list_sessions: Call::new(|_| Ok(sessions::ListSessionsResponse::default())),
            list_customers: Call::new(|_| Ok(sessions::ListCustomersResponse::default())),
            get_customer: Call::new(|_| Err(refusal(Code::NotFound, "CUSTOMER_NOT_FOUND"))),
            get_balance: Call::new(|_| Ok(charges::GetBalanceResponse::default())),
            create_payout: Call::new(|request: charges::CreatePayoutRequest| {
                Ok(charges::PayoutAnswer {
                    payout: Some(payout(request.amount)),
                    replayed: false,
                })
            }),
            get_payout: Call::new(|_| Err(refusal(Code::NotFound, "PAYOUT_NOT_FOUND"))),
            list_payouts: Call::new(|_| Ok(charges::ListPayoutsResponse::default())),
            read_payout_account: Call::new(|_| Ok(charges::PayoutAccount::default())),
            create_refund: Call::new(|request: charges::CreateRefundRequest| {
                Ok(charges::RefundAnswer {
                    refund: Some(refund(request.amount.or(money(2550, "GHS")))),
                    replayed: false,
                })
            }),
            get_refund: Call::new(|_| Err(refusal(Code::NotFound, "REFUND_NOT_FOUND"))),
            list_refunds: Call::new(|_| Ok(charges::ListRefundsResponse::default())),
            list_events: Call::new(|_| Ok(webhooks::ListEventsResponse::default())),
            redeliver_event: Call::new(|_| Err(refusal(Code::NotFound, "EVENT_NOT_FOUND"))),
            get_event_deliveries: Call::new(
                |_| Ok(webhooks::GetEventDeliveriesResponse::default()),
            ),
            get_merchant_endpoint: Call::new(|_| {
                Err(refusal(Code::NotFound, "ENDPOINT_NOT_FOUND"))
            }),
            test_endpoint: Call::new(|_| Err(refusal(Code::NotFound, "ENDPOINT_NOT_FOUND"))),
            read_statement: Call::new(|_| Err(refusal(Code::NotFound, "STATEMENT_NOT_FOUND"))),
            list_statement_keys: Call::new(|_| Ok(charges::ListStatementKeysResponse::default())),
        }
    }
}

fn allowed() -> ratelimit::CheckResponse {
    ratelimit::CheckResponse {
        allowed: true,
        limit: 60,
        remaining: 59,
        reset_seconds: 42,
        window_seconds: 60,
    }
}

/// One rail whose callbacks are signed, and one whose callbacks are not.
pub fn rails() -> charges::ListRailsResponse {
    let rail = |name: &str, header: Option<&str>| charges::Rail {
        name: name.to_owned(),
        callback_headers: header.into_iter().map(ToOwned::to_owned).collect(),
    };
    charges::ListRailsResponse {
        rails: vec![
            rail("momo", None),
            rail("paystack", Some("x-paystack-signature")),
        ],
    }
}

pub fn merchant() -> merchants::Merchant {
    merchants::Merchant {
        merchant_id: "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e".to_owned(),
        name: "Kente Shop".to_owned(),
        email: "shop@example.com".to_owned(),
        email_verified: true,
        kyc_status: merchants::KycStatus::Approved.into(),
        accepting_payments: true,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        key_name: Some("Till 1".to_owned()),
    }
}

/// The session that sessions-svc would create from the request.
pub fn session(request: sessions::CreateSessionRequest) -> sessions::Session {
    sessions::Session {
        session_id: SESSION_ID.to_owned(),
        merchant_id: request.merchant_id,
        amount: request.amount,
        description: request.description,
        redirect_url: request.redirect_url,
        status: sessions::SessionStatus::Pending.into(),
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        expires_at: "2026-02-01T09:00:00.000Z".to_owned(),
        transaction: None,
        payer: request.payer,
    }
}

pub const SESSION_ID: &str = "7f8e3a52-30d1-4c0a-9d7e-0a1b2c3d4e5f";
pub const TRANSACTION_ID: &str = "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d70";
pub const REFERENCE: &str = "TX-0123456789-ABCDEF";

pub fn charge(
    status: charges::ChargeStatus,
    amount: Option<proto::money::Money>,
) -> charges::Charge {
    charges::Charge {
        reference: REFERENCE.to_owned(),
        transaction_id: TRANSACTION_ID.to_owned(),
        tx_id_display: "TX-0123456789".to_owned(),
        session_id: SESSION_ID.to_owned(),
        merchant_id: merchant().merchant_id,
        status: status.into(),
        amount,
        provider: charges::Provider::Mtn.into(),
        method: "MOBILE_MONEY".to_owned(),
        failure_reason: None,
        failure_message: None,
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        updated_at: "2026-01-31T09:00:01.250Z".to_owned(),
        version: 1,
    }
}

pub fn money(minor_units: i64, currency: &str) -> Option<proto::money::Money> {
    Some(proto::money::Money {
        minor_units,
        currency: currency.to_owned(),
    })
}

pub const PAYOUT_ID: &str = "PO-0123456789";
pub const REFUND_ID: &str = "RF-0123456789";
pub const EVENT_ID: &str = "evt_01JD7Z5W8RK2M4N6P8Q0S2T4V6";

fn destination() -> Option<charges::Destination> {
    Some(charges::Destination {
        r#type: charges::DestinationType::MobileMoney.into(),
        provider: "MTN".to_owned(),
        account_masked: "024 ••• 4567".to_owned(),
    })
}

pub fn payout(amount: Option<proto::money::Money>) -> charges::Payout {
    charges::Payout {
        payout_id: PAYOUT_ID.to_owned(),
        merchant_id: merchant().merchant_id,
        amount,
        fee: money(100, "GHS"),
        method: "MOBILE_MONEY".to_owned(),
        status: charges::DisbursementStatus::Pending.into(),
        destination: destination(),
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        updated_at: "2026-01-31T09:00:00.000Z".to_owned(),
        ..charges::Payout::default()
    }
}

pub fn refund(amount: Option<proto::money::Money>) -> charges::Refund {
    charges::Refund {
        refund_id: REFUND_ID.to_owned(),
        merchant_id: merchant().merchant_id,
        reference: REFERENCE.to_owned(),
        tx_id_display: "TX-0123456789".to_owned(),
        session_id: SESSION_ID.to_owned(),
        amount,
        method: "MOBILE_MONEY".to_owned(),
        status: charges::DisbursementStatus::Pending.into(),
        destination: destination(),
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        updated_at: "2026-01-31T09:00:00.000Z".to_owned(),
        ..charges::Refund::default()
    }
}

/// The services in the form that a gRPC server needs.
#[derive(Clone)]
pub struct Served(pub Arc<Services>);

/// Serves a contract: the calls that tests answer, and those that the gateway never makes.
macro_rules! serve {
    ($contract:ident in $package:ident {
        $($answered:ident($request:ident) -> $answer:ident;)*
    } never {
        $($never:ident($unused:ident) -> $nothing:ident;)*
    } $(beside { $($stream:tt)* })?) => {
        #[tonic::async_trait]
        impl $contract for Served {
            $(async fn $answered(
                &self,
                request: Request<$package::$request>,
            ) -> Result<Response<$package::$answer>, Status> {
                self.0.$answered.run(request).await
            })*

            $(async fn $never(
                &self,
                _: Request<$package::$unused>,
            ) -> Result<Response<$package::$nothing>, Status> {
                Err(Status::unimplemented("not the gateway's to call"))
            })*

            $($($stream)*)?
        }
    };
}

serve!(Merchants in merchants {
    authenticate(AuthenticateRequest) -> Merchant;
} never {
    create_merchant(CreateMerchantRequest) -> Merchant;
    get_merchant(GetMerchantRequest) -> Merchant;
    update_merchant(UpdateMerchantRequest) -> Merchant;
    create_key(CreateKeyRequest) -> CreateKeyResponse;
    revoke_key(RevokeKeyRequest) -> ApiKey;
    list_keys(ListKeysRequest) -> ListKeysResponse;
});

serve!(RateLimits in ratelimit {
} never {
    check(CheckRequest) -> CheckResponse;
} beside {
    async fn check_all(
        &self,
        request: Request<ratelimit::CheckAllRequest>,
    ) -> Result<Response<ratelimit::CheckAllResponse>, Status> {
        let checks = request.into_inner().checks;
        let decisions = checks.into_iter().map(|check| self.0.check.run(Request::new(check)));
        let decisions = try_join_all(decisions).await?;
        let decisions = decisions.into_iter().map(Response::into_inner).collect();
        Ok(Response::new(ratelimit::CheckAllResponse { decisions }))
    }
});

serve!(Sessions in sessions {
    create_session(CreateSessionRequest) -> CreateSessionResponse;
    get_session(GetSessionRequest) -> Session;
    list_sessions(ListSessionsRequest) -> ListSessionsResponse;
    list_customers(ListCustomersRequest) -> ListCustomersResponse;
    get_customer(GetCustomerRequest) -> Customer;
} never {
    record_transaction(RecordTransactionRequest) -> RecordTransactionResponse;
});

serve!(CheckoutSessions in sessions {
    read_session(ReadSessionRequest) -> Session;
} never {
});

serve!(Charges in charges {
    create_charge(CreateChargeRequest) -> ChargeAnswer;
    submit_otp(SubmitOtpRequest) -> ChargeAnswer;
    get_charge(GetChargeRequest) -> Charge;
    get_charge_timeline(GetChargeTimelineRequest) -> ChargeTimeline;
    check_wallet(CheckWalletRequest) -> CheckWalletResponse;
    list_rails(ListRailsRequest) -> ListRailsResponse;
    receive_callback(ReceiveCallbackRequest) -> ReceiveCallbackResponse;
    list_charges(ListChargesRequest) -> ListChargesResponse;
    get_balance(GetBalanceRequest) -> GetBalanceResponse;
} never {
    get_hosted_charge(GetHostedChargeRequest) -> HostedCharge;
} beside {
    type WatchChargesStream = mpsc::UnboundedReceiver<Told>;

    async fn watch_charges(
        &self,
        request: Request<Streaming<charges::WatchChargesRequest>>,
    ) -> Result<Response<Self::WatchChargesStream>, Status> {
        Ok(Response::new(self.0.watches.open(request.into_inner())))
    }
});

serve!(Disbursements in charges {
    create_payout(CreatePayoutRequest) -> PayoutAnswer;
    get_payout(GetPayoutRequest) -> Payout;
    list_payouts(ListPayoutsRequest) -> ListPayoutsResponse;
    read_payout_account(ReadPayoutAccountRequest) -> PayoutAccount;
    create_refund(CreateRefundRequest) -> RefundAnswer;
    get_refund(GetRefundRequest) -> Refund;
    list_refunds(ListRefundsRequest) -> ListRefundsResponse;
} never {
    get_payout_timeline(GetPayoutRequest) -> DisbursementTimeline;
    get_refund_timeline(GetRefundRequest) -> DisbursementTimeline;
});

serve!(MerchantEvents in webhooks {
    list_events(ListEventsRequest) -> ListEventsResponse;
    redeliver_event(RedeliverEventRequest) -> RedeliverEventResponse;
    get_event_deliveries(GetEventDeliveriesRequest) -> GetEventDeliveriesResponse;
    get_merchant_endpoint(GetMerchantEndpointRequest) -> MerchantEndpoint;
    test_endpoint(TestEndpointRequest) -> TestEndpointResponse;
} never {
});

#[tonic::async_trait]
impl Statements for Served {
    type ReadStatementStream = BoxStream<'static, Result<charges::StatementPiece, Status>>;

    async fn read_statement(
        &self,
        request: Request<charges::ReadStatementRequest>,
    ) -> Result<Response<Self::ReadStatementStream>, Status> {
        let pieces = self.0.read_statement.run(request).await?.into_inner();
        let pieces = stream::iter(pieces).map(|piece| {
            Ok(charges::StatementPiece {
                content: piece?.as_bytes().to_owned(),
            })
        });
        Ok(Response::new(pieces.boxed()))
    }

    async fn list_statement_keys(
        &self,
        request: Request<charges::ListStatementKeysRequest>,
    ) -> Result<Response<charges::ListStatementKeysResponse>, Status> {
        self.0.list_statement_keys.run(request).await
    }
}
