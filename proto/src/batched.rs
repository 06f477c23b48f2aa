//! The methods whose calls may travel together.

use prost::{DecodeError, Message, bytes::Bytes};
use tonic::{Code, Status};

use crate::{
    batch::{Call, Failure, Outcome, outcome},
    charges::{Charge, GetChargeRequest},
    sessions::{
        CreateSessionRequest, CreateSessionResponse, GetSessionRequest, RecordTransactionRequest,
        RecordTransactionResponse, Session,
    },
    webhooks::{PublishRequest, PublishResponse},
};

/// A unary method. Its requests and responses are small: 64 of them fit a message of gRPC's 4 MiB.
pub trait BatchedMethod: Send + Sync + 'static {
    /// With a slash before `package.Service/Method`.
    const PATH: &'static str;

    type Request: Message + Default + 'static;
    type Response: Message + Default + 'static;
}

macro_rules! batched {
    ($($name:ident = $path:literal, $request:ident -> $response:ident;)*) => {
        $(
            #[derive(Debug)]
            pub struct $name;

            impl BatchedMethod for $name {
                const PATH: &'static str = $path;

                type Request = $request;
                type Response = $response;
            }
        )*
    };
}

batched! {
    CreateSession = "/payments.sessions.v1.Sessions/CreateSession", CreateSessionRequest -> CreateSessionResponse;
    GetSession = "/payments.sessions.v1.Sessions/GetSession", GetSessionRequest -> Session;
    RecordTransaction = "/payments.sessions.v1.Sessions/RecordTransaction", RecordTransactionRequest -> RecordTransactionResponse;
    GetCharge = "/payments.charges.v1.Charges/GetCharge", GetChargeRequest -> Charge;
    Publish = "/payments.webhooks.v1.Webhooks/Publish", PublishRequest -> PublishResponse;
}

impl Call {
    /// Nobody's yet.
    pub fn new(request: &impl Message) -> Self {
        Self {
            request: request.encode_to_vec().into(),
            ..Self::default()
        }
    }

    /// # Errors
    /// It is not this method's request.
    pub fn read<Q: Message + Default>(self) -> Result<Q, DecodeError> {
        Q::decode(self.request)
    }
}

impl Outcome {
    /// Of the call at this place.
    pub fn new<A: Message>(call: u32, answer: Result<A, Status>) -> Self {
        let outcome = match answer {
            Ok(response) => outcome::Outcome::Response(response.encode_to_vec().into()),
            Err(status) => outcome::Outcome::Failure(Failure {
                code: status.code().into(),
                message: status.message().to_owned(),
                details: Bytes::copy_from_slice(status.details()),
            }),
        };
        Self {
            call,
            outcome: Some(outcome),
        }
    }

    /// `None` if this version does not understand it.
    pub fn read<A: Message + Default>(self) -> Option<Result<A, Status>> {
        match self.outcome? {
            outcome::Outcome::Response(response) => A::decode(response).ok().map(Ok),
            outcome::Outcome::Failure(Failure {
                code,
                message,
                details,
            }) => Some(Err(Status::with_details(
                Code::from(code),
                message,
                details,
            ))),
        }
    }
}
