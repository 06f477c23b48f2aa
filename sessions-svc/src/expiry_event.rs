//! Tells webhooks-svc that a session ended unpaid: payment.failed with SESSION_EXPIRED.
//!
//! The event's id and time were fixed when the session expired, and webhooks-svc accepts each id
//! once, so there is one event however often this runs.

use std::time::Duration;

use anyhow::Context as _;
use chassis::{charge_status::ChargeStatus, failure::FailureReason, grpc::Channel, ids::SessionId};
use db::{Db, outbox::Row};
use proto::webhooks::{
    EventType, Payment, PublishRequest, publish_request::Data, webhooks_client::WebhooksClient,
};

use crate::{
    session::{Session, SessionStatus},
    store,
};

/// Longest wait for webhooks-svc to take an event.
pub const PUBLISH_MAX: Duration = Duration::from_secs(5);

/// Publishes the event of one outbox row.
pub async fn publish(
    db: Db,
    webhooks: Channel,
    row: Row,
    expired: Option<Session>,
) -> anyhow::Result<()> {
    let event_id = row.event_id.context("an expiry has an event")?;
    let session = match expired {
        Some(session) => session,
        None => {
            let id: SessionId = row.subject.parse().context("the subject is no session")?;
            let found = store::find_session(&mut db.read().await?, id).await?;
            found.context("the session is gone")?
        }
    };
    WebhooksClient::new(webhooks)
        .publish(PublishRequest {
            event_id,
            merchant_id: session.merchant_id.to_string(),
            r#type: EventType::PaymentFailed.into(),
            created_at: row.created_at.to_string(),
            data: Some(Data::Payment(payment(&session))),
        })
        .await
        .context("webhooks-svc did not take the event")?;
    Ok(())
}

/// The payment as it was when the session expired, whatever has arrived since.
fn payment(session: &Session) -> Payment {
    let reason = FailureReason::SessionExpired;
    Payment {
        tx_id_display: None,
        session_id: session.session_id.to_string(),
        amount: Some(session.amount().into()),
        method: None,
        status: ChargeStatus::Failed.code().to_owned(),
        failure_reason: Some(reason.code().to_owned()),
        failure_message: Some(reason.message().to_owned()),
        session_status: SessionStatus::Expired.code().to_owned(),
        settled: None,
        rate: None,
    }
}
