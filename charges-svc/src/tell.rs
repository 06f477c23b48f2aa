//! Tells the other services a charge's status: first sessions-svc and, only once that has
//! acknowledged, webhooks-svc; and merchants-svc what a merchant is to be mailed. Their proto types
//! stay in here.
//!
//! Promise: telling the same again changes nothing, and what is told of an ended charge is always
//! the same.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use chassis::{
    charge_status::ChargeStatus,
    grpc::{self, BatchedCalls, Channel, Reason},
    ids::{ChargeId, DisbursementId},
    phone::Phone,
    provider::Provider,
};
use db::{Db, outbox::Row};
use proto::{
    batched::{Publish, RecordTransaction},
    merchants::{NoticeKind, TellMerchantRequest, notices_client::NoticesClient},
    sessions::{
        AddWalletsRequest, DirectSession, ListTransactionsWithoutWalletRequest, Open, Payer,
        RecordTransactionRequest, SessionStatus, Settlement, Transaction, TransactionStatus,
        Update, Wallet, WalletOfTransaction, Withdraw, record_transaction_request::Step,
        record_transaction_response::Outcome, session_operations_client::SessionOperationsClient,
    },
    webhooks::{EventType, Payment, Payout, PublishRequest, Refund, publish_request},
};
use time::{format_description::BorrowedFormatItem, macros::format_description};
use tonic::{Request, Status as GrpcStatus};

use crate::{
    charge::{Charge, Facts, METHOD, ShownCharge, Void},
    disbursement::{Disbursement, Kind, State},
    error::Error,
    payout_account::AccountChange,
    store,
};

/// Longest wait for another service's answer.
pub const SERVICE_CALL_MAX: Duration = Duration::from_secs(5);

/// How long a new charge waits for its session.
const OPEN_MAX: Duration = Duration::from_secs(2);

/// The clients of the other services, and the database.
#[derive(Clone, Debug)]
pub struct Teller {
    db: Db,
    /// Of new charges. Apart from updates, because requests wait for them, and only [`OPEN_MAX`].
    opens: BatchedCalls<RecordTransaction>,
    updates: BatchedCalls<RecordTransaction>,
    session_operations: SessionOperationsClient<Channel>,
    publications: BatchedCalls<Publish>,
    notices: NoticesClient<Channel>,
}

/// Whether a session takes a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    Recorded,
    /// The session cannot be paid.
    Refused,
}

/// A page of transactions got their wallets.
#[derive(Clone, Debug)]
pub struct WalletsAdded {
    pub count: usize,
    /// The place after them, if there are more that lack one.
    pub next: Option<String>,
}

impl Teller {
    pub fn new(db: &Db, sessions: Channel, webhooks: Channel, merchants: Channel) -> Self {
        Self {
            db: db.clone(),
            opens: BatchedCalls::new(sessions.clone(), OPEN_MAX),
            updates: BatchedCalls::new(sessions.clone(), SERVICE_CALL_MAX),
            session_operations: SessionOperationsClient::new(sessions),
            publications: BatchedCalls::new(webhooks, SERVICE_CALL_MAX),
            notices: NoticesClient::new(merchants),
        }
    }

    /// Before the rail is called: creates the session of a direct charge, or claims that of a
    /// hosted one.
    pub async fn open(&self, charge: &Charge) -> Result<OpenOutcome, GrpcStatus> {
        let Ok(shown) = ShownCharge::try_from(charge.clone()) else {
            // No session takes a void charge.
            return Ok(OpenOutcome::Refused);
        };
        let open = Open {
            transaction: Some(transaction(&shown)),
        };
        let mut request = Request::new(record(charge, Step::Open(open)));
        request.set_timeout(OPEN_MAX);
        match self.opens.call(request).await?.into_inner().outcome() {
            Outcome::Recorded => Ok(OpenOutcome::Recorded),
            Outcome::Refused => Ok(OpenOutcome::Refused),
            Outcome::Unspecified => Err(GrpcStatus::internal("sessions-svc gave no outcome")),
        }
    }

    /// The relay's handler, after a change: tells the charge's status, and the event if the change
    /// has one. `known` is the charge as the change left it; without it, the current one is read.
    pub async fn hand_on(self, row: Row, known: Option<Charge>) -> anyhow::Result<()> {
        if let Some(id) = row.subject.strip_prefix(DISBURSEMENT) {
            return self.tell_disbursement(id.parse()?, row.event_id).await;
        }
        let charge = match known {
            Some(charge) => charge,
            None => {
                let id: ChargeId = row.subject.parse()?;
                // The connection is not held while other services are called.
                let found = store::charges::find(&mut self.db.read().await?, id).await?;
                found.ok_or(Error::ChargeNotFound)?
            }
        };
        self.tell(&charge, row.event_id.as_deref()).await
    }

    /// Adds to a page of transactions that sessions-svc recorded without their wallets, after this
    /// place of its list; empty for the beginning.
    pub async fn add_wallets(&self, after: String) -> anyhow::Result<WalletsAdded> {
        let mut sessions = self.session_operations.clone();
        let request = ListTransactionsWithoutWalletRequest { page_token: after };
        let page = sessions.list_transactions_without_wallet(request).await;
        let page = page.context("sessions-svc did not list them")?.into_inner();
        let ids: Vec<ChargeId> = page
            .transactions
            .iter()
            .map(|place| place.transaction_id.parse())
            .collect::<Result<_, _>>()?;
        let mut conn = self.db.read().await?;
        let wallets = store::charges::wallets(&mut conn, &ids).await?;
        drop(conn);
        let wallets: HashMap<String, Wallet> = wallets
            .into_iter()
            .map(|(id, provider, phone)| (id.to_string(), wallet(provider, &phone)))
            .collect();
        let added = page.transactions.into_iter().filter_map(|place| {
            let wallet = wallets.get(&place.transaction_id)?.clone();
            Some(WalletOfTransaction {
                transaction: Some(place),
                wallet: Some(wallet),
            })
        });
        let request = AddWalletsRequest {
            wallets: added.collect(),
        };
        let count = request.wallets.len();
        if count > 0 {
            let added = sessions.add_wallets(request).await;
            added.context("sessions-svc did not add them")?;
        }
        Ok(WalletsAdded {
            count,
            next: Some(page.next_page_token).filter(|token| !token.is_empty()),
        })
    }

    /// Tells webhooks-svc that a disbursement has ended.
    async fn tell_disbursement(
        &self,
        id: DisbursementId,
        event_id: Option<String>,
    ) -> anyhow::Result<()> {
        let found = store::disbursements::find(&mut self.db.read().await?, id).await?;
        let ended = found.ok_or(Error::DisbursementNotFound)?;
        let Some(event) = event_id.and_then(|event_id| disbursement_event(ended, event_id)) else {
            return Ok(());
        };
        self.publish(event).await
    }

    /// Has merchants-svc mail what was set for a merchant, once however often it is told.
    pub async fn tell_account_change(&self, change: &AccountChange) -> anyhow::Result<()> {
        let request = TellMerchantRequest {
            notice_id: change.notice_id.to_string(),
            merchant_id: change.merchant_id.to_string(),
            kind: NoticeKind::PayoutAccountSet.into(),
            about: about(change),
            at: change.created_at.to_string(),
            person_id: change.person_id.map(|person_id| person_id.to_string()),
        };
        match self.notices.clone().tell_merchant(request).await {
            Ok(_) => Ok(()),
            Err(status) if is(&status, Reason::MerchantNotFound) => {
                tracing::warn!(merchant.id = %change.merchant_id, "nobody is there to be told");
                Ok(())
            }
            Err(status) => Err(status).context("merchants-svc was not told"),
        }
    }

    async fn tell(&self, charge: &Charge, event_id: Option<&str>) -> anyhow::Result<()> {
        let shown = ShownCharge::try_from(charge.clone());
        let step = match &shown {
            Ok(shown) => Step::Update(Update {
                transaction: Some(transaction(shown)),
                payer: Some(payer(&shown.facts)),
            }),
            Err(Void) => Step::Withdraw(Withdraw {}),
        };
        let request = Request::new(record(charge, step));
        let answer = match self.updates.call(request).await {
            Err(status) if shown.is_err() && is_anothers(&status) => return Ok(()),
            answer => answer.context("sessions-svc was not told")?,
        };
        let (Some(event_id), Ok(shown)) = (event_id, shown) else {
            return Ok(());
        };
        let event = event(&shown, event_id, answer.into_inner().session_status());
        self.publish(event).await
    }

    async fn publish(&self, event: PublishRequest) -> anyhow::Result<()> {
        let told = self.publications.call(Request::new(event)).await;
        told.context("webhooks-svc was not told")?;
        Ok(())
    }
}

/// In Ghana's time, which is UTC all year.
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[day padding:none] [month repr:long] [year], [hour]:[minute] GMT");

/// Which account was set, in place of which, and what that means for payouts.
fn about(change: &AccountChange) -> String {
    let mut about = change.account_after.clone().unwrap_or_default();
    if let Some(before) = &change.account_before {
        about += &format!(", instead of {before}");
    }
    let held_until = change.held_until.filter(|until| *until > change.created_at);
    let held_until = held_until.and_then(|until| until.datetime().format(MOMENT).ok());
    if let Some(until) = held_until {
        about += &format!("; payouts wait until {until}");
    }
    about
}

/// What an outbox row of a disbursement begins with. A charge's is its id alone.
const DISBURSEMENT: &str = "disbursement:";

/// The subject of a disbursement's outbox rows.
pub fn subject_of(id: DisbursementId) -> String {
    format!("{DISBURSEMENT}{id}")
}

/// The event of a disbursement that has ended.
fn disbursement_event(ended: Disbursement, event_id: String) -> Option<PublishRequest> {
    let is_paid = match ended.progress.state {
        State::Completed => true,
        State::Failed => false,
        State::Pending | State::Processing => return None,
    };
    let merchant_id = ended.merchant_id.to_string();
    // A reversal changes the record later, and no event.
    let progress = &ended.progress;
    let created_at = progress
        .completed_at
        .unwrap_or(progress.updated_at)
        .to_string();
    let (kind, data) = match ended.kind {
        Kind::Payout => {
            let kind = match is_paid {
                true => EventType::PayoutSuccess,
                false => EventType::PayoutFailed,
            };
            (kind, publish_request::Data::Payout(payout(ended)))
        }
        Kind::Refund => {
            let kind = match is_paid {
                true => EventType::RefundSuccess,
                false => EventType::RefundFailed,
            };
            (kind, publish_request::Data::Refund(refund(ended)))
        }
    };
    Some(PublishRequest {
        event_id,
        merchant_id,
        r#type: kind.into(),
        created_at,
        data: Some(data),
    })
}

fn payout(ended: Disbursement) -> Payout {
    let method = ended.destination.destination_type.code().to_owned();
    Payout {
        amount: Some(ended.amount().into()),
        method: method.clone(),
        status: ended.progress.state.code().to_owned(),
        destination_type: method,
        destination_account: ended.destination.masked(),
        destination_provider: ended.destination.provider,
        payout_id: ended.shown_id,
        failure_reason: ended.progress.failure_reason,
        created_at: ended.created_at.to_string(),
        completed_at: ended.progress.completed_at.map(|at| at.to_string()),
    }
}

fn refund(ended: Disbursement) -> Refund {
    Refund {
        reference: ended.refunded.reference.clone().unwrap_or_default(),
        tx_id_display: ended.tx_id_display().unwrap_or_default(),
        session_id: ended
            .refunded
            .session_id
            .map(|id| id.to_string())
            .unwrap_or_default(),
        amount: Some(ended.amount().into()),
        method: ended.destination.destination_type.code().to_owned(),
        status: ended.progress.state.code().to_owned(),
        failure_message: ended.failure_message().map(str::to_owned),
        failure_reason: ended.progress.failure_reason,
        refund_id: ended.shown_id,
        created_at: ended.created_at.to_string(),
        completed_at: ended.progress.completed_at.map(|at| at.to_string()),
        from_suspense: ended.refunded.case_id.is_some(),
    }
}

/// Whether the session is another merchant's. It took no claim of ours, so there is none to
/// withdraw.
fn is_anothers(status: &GrpcStatus) -> bool {
    is(status, Reason::SessionMismatch)
}

fn is(status: &GrpcStatus, reason: Reason) -> bool {
    grpc::reason(status).as_deref() == Some(reason.code())
}

fn record(charge: &Charge, step: Step) -> RecordTransactionRequest {
    let direct = (!charge.facts.hosted).then(|| DirectSession {
        amount: Some(charge.facts.session_amount().into()),
        description: charge.facts.description.clone(),
        created_at: charge.facts.created_at.to_string(),
        payer: Some(payer(&charge.facts)),
    });
    RecordTransactionRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        session_id: charge.facts.session_id.to_string(),
        charge_number: small(charge.facts.charge_number),
        version: small(charge.progress.version),
        step: Some(step),
        direct,
    }
}

/// A session has few charges, and a charge few changes.
fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn payer(charge: &Facts) -> Payer {
    Payer {
        phone: Some(charge.phone.as_e164().to_owned()),
        email: charge.payer_email.clone(),
        name: charge.payer_name.clone(),
    }
}

fn transaction(charge: &ShownCharge) -> Transaction {
    Transaction {
        transaction_id: charge.facts.transaction_id.to_string(),
        tx_id_display: charge.facts.tx_id_display.to_string(),
        status: TransactionStatus::from(charge.status).into(),
        method: METHOD.to_owned(),
        amount: Some(charge.facts.session_amount().into()),
        failure_reason: charge.failure_reason.clone(),
        failure_message: charge.failure_message().map(str::to_owned),
        settlement: settlement(charge),
        created_at: charge.facts.created_at.to_string(),
        updated_at: charge.updated_at.to_string(),
        wallet: Some(wallet(charge.facts.provider, &charge.facts.phone)),
    }
}

fn wallet(provider: Provider, phone: &Phone) -> Wallet {
    Wallet {
        provider: provider.code().to_owned(),
        last_four: phone.last_four().to_owned(),
    }
}

/// What the payer was debited, if it settled and the session is in another currency.
fn settlement(charge: &ShownCharge) -> Option<Settlement> {
    let rate = charge
        .facts
        .rate
        .clone()
        .filter(|_| charge.status == ChargeStatus::Settled)?;
    Some(Settlement {
        amount: Some(charge.facts.amount().into()),
        rate,
    })
}

/// The event of a charge that has ended.
fn event(charge: &ShownCharge, event_id: &str, session: SessionStatus) -> PublishRequest {
    let is_settled = charge.status == ChargeStatus::Settled;
    let kind = if is_settled {
        EventType::PaymentSuccess
    } else {
        EventType::PaymentFailed
    };
    let settlement = settlement(charge);
    let session_status = session_status(charge, session);
    let payment = Payment {
        tx_id_display: Some(charge.facts.tx_id_display.to_string()),
        session_id: charge.facts.session_id.to_string(),
        amount: Some(charge.facts.session_amount().into()),
        method: Some(METHOD.to_owned()),
        status: charge.status.code().to_owned(),
        failure_reason: charge.failure_reason.clone(),
        failure_message: charge.failure_message().map(str::to_owned),
        session_status: session_status.code().unwrap_or_default().to_owned(),
        settled: settlement
            .as_ref()
            .and_then(|settlement| settlement.amount.clone()),
        rate: settlement.map(|settlement| settlement.rate),
    };
    PublishRequest {
        event_id: event_id.to_owned(),
        merchant_id: charge.facts.merchant_id.to_string(),
        r#type: kind.into(),
        created_at: charge.updated_at.to_string(),
        data: Some(publish_request::Data::Payment(payment)),
    }
}

/// What the session became by this charge's end. By now another of its charges may be in flight.
fn session_status(charge: &ShownCharge, session: SessionStatus) -> SessionStatus {
    match (charge.status, charge.facts.hosted, session) {
        (ChargeStatus::Settled, _, _) => SessionStatus::Completed,
        (_, false, _) => SessionStatus::Failed,
        (_, true, SessionStatus::Expired) => SessionStatus::Expired,
        (_, true, _) => SessionStatus::Pending,
    }
}
