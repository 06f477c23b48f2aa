//! What a session's payer gets to see. The services are asked on every load, so that a reload, the
//! back button and a second device all show the same.

use std::time::Duration;

use chassis::{clock::Timestamp, grpc::Channel, ids::SessionId, money::Money, phone::Phone};
use proto::{
    charges::{ChargeStatus, GetHostedChargeRequest, HostedCharge},
    merchants::GetMerchantRequest,
    sessions::{
        GetSessionRequest, ReadSessionRequest, Session, SessionStatus,
        checkout_sessions_client::CheckoutSessionsClient,
    },
};
use tonic::{Code, Request};

use super::Checkout;
use crate::{backend, error::Error, merchant::Merchant};

/// After this long without an answer, the page says that there is nothing more to do.
const SLOW_AFTER: Duration = Duration::from_secs(120);

/// What the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    Form,
    Otp,
    Prompt,
    Slow,
    Success,
    Failed,
    Expired,
}

impl PageState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Otp => "otp",
            Self::Prompt => "prompt",
            Self::Slow => "slow",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}

/// A session and its newest charge.
#[derive(Debug)]
pub struct Situation {
    pub id: SessionId,
    pub session: Session,
    pub asked: Money,
    pub expires_at: Timestamp,
    pub hosted: Option<HostedCharge>,
    pub state: PageState,
}

impl Situation {
    /// # Errors
    /// [`Error::NotFound`] also for the session of a direct charge, which no payer was ever sent
    /// to.
    pub async fn load(checkout: &Checkout, id: SessionId) -> Result<Self, Error> {
        let session = find_session(checkout, id).await?;
        // A direct charge's session has a charge that is not hosted, so this says not found.
        let hosted = match session.transaction {
            Some(_) => Some(hosted_charge(checkout, id).await?),
            None => None,
        };
        let state = state(&session, hosted.as_ref(), checkout.clock.now())?;
        let asked = session.amount.clone().unwrap_or_default();
        Ok(Self {
            id,
            asked: Money::try_from(&asked).map_err(Error::internal)?,
            expires_at: session.expires_at.parse().map_err(Error::internal)?,
            session,
            hosted,
            state,
        })
    }

    /// The merchant whose session it is.
    pub async fn merchant(&self, checkout: &Checkout) -> Result<Merchant, Error> {
        let request = GetMerchantRequest {
            merchant_id: self.session.merchant_id.clone(),
        };
        let merchant = checkout
            .merchants
            .read(
                backend::DEADLINE,
                request,
                |mut merchants, request| async move { merchants.get_merchant(request).await },
            )
            .await?;
        merchant.try_into()
    }

    /// The number that the merchant sent, if mobile money can debit it. It is only shown masked.
    pub fn kept_number(&self) -> Option<Phone> {
        let phone = self.session.payer.as_ref()?.phone.as_deref()?;
        Phone::parse_ghana_mobile(phone).ok()
    }
}

async fn find_session(checkout: &Checkout, id: SessionId) -> Result<Session, Error> {
    let request = ReadSessionRequest {
        session_id: id.to_string(),
    };
    let send = |mut sessions: CheckoutSessionsClient<Channel>, request: Request<_>| {
        let mut previous = checkout.previous_sessions.clone();
        async move {
            let deadline = request.metadata().clone();
            match sessions.read_session(request).await {
                // The previous version of sessions-svc reads a payer's session for no merchant.
                Err(status) if status.code() == Code::Unimplemented => {
                    let mut request = Request::new(GetSessionRequest {
                        session_id: id.to_string(),
                        merchant_id: String::new(),
                    });
                    *request.metadata_mut() = deadline;
                    previous.get_session(request).await
                }
                answer => answer,
            }
        }
    };
    checkout
        .sessions
        .read(backend::DEADLINE, request, send)
        .await
}

async fn hosted_charge(checkout: &Checkout, id: SessionId) -> Result<HostedCharge, Error> {
    let request = GetHostedChargeRequest {
        session_id: id.to_string(),
    };
    checkout
        .charges
        .read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_hosted_charge(request).await },
        )
        .await
}

/// The charge knows more than the session, which is told a moment later.
fn state(
    session: &Session,
    hosted: Option<&HostedCharge>,
    now: Timestamp,
) -> Result<PageState, Error> {
    let charge = hosted.and_then(|hosted| hosted.charge.as_ref());
    let status = charge.map(proto::charges::Charge::status);
    Ok(match (status, session.status()) {
        (Some(ChargeStatus::Settled), _) | (_, SessionStatus::Completed) => PageState::Success,
        (Some(ChargeStatus::OtpRequired), _) => PageState::Otp,
        (Some(ChargeStatus::Initiated), _) => {
            let since = charge.map(|charge| charge.updated_at.parse::<Timestamp>());
            let since = since.transpose().map_err(Error::internal)?;
            let is_slow = since.is_some_and(|since| now.since(since) > SLOW_AFTER);
            if is_slow {
                PageState::Slow
            } else {
                PageState::Prompt
            }
        }
        (_, SessionStatus::Expired | SessionStatus::Failed) => PageState::Expired,
        (Some(ChargeStatus::Failed), _) => PageState::Failed,
        (None | Some(ChargeStatus::Unspecified), SessionStatus::Pending) => PageState::Form,
        (None | Some(ChargeStatus::Unspecified), _) => {
            return Err(Error::internal("a session that says nothing"));
        }
    })
}
