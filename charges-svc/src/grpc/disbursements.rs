//! Converts proto to domain and back, for disbursements.

use chassis::{ids::DisbursementId, page::PageAsked};
use proto::charges::{
    CreatePayoutRequest, CreateRefundRequest, Destination as ProtoDestination,
    DestinationType as ProtoDestinationType, DisbursementStatus, DisbursementTimeline,
    GetPayoutRequest, GetRefundRequest, ListPayoutsRequest, ListPayoutsResponse,
    ListRefundsRequest, ListRefundsResponse, Payout, PayoutAccount, PayoutAnswer,
    ReadPayoutAccountRequest, Refund, RefundAnswer, disbursements_server::Disbursements,
};
use tonic::{Request, Response};

use super::{Grpc, GrpcResult, parse};
use crate::{
    disbursement::{Destination, DestinationType, Disbursement, Kind, State},
    error::Error,
    store::disbursements::WantedDisbursements,
};

chassis::proto_list! {
    State = DisbursementStatus { Pending, Processing, Completed, Failed }
}
chassis::proto_list! {
    DestinationType = ProtoDestinationType { MobileMoney, Bank }
}

#[tonic::async_trait]
impl Disbursements for Grpc {
    async fn create_payout(
        &self,
        request: Request<CreatePayoutRequest>,
    ) -> GrpcResult<PayoutAnswer> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let amount = parse::cedis("amount", request.amount.as_ref())?;
        let key = parse::idempotency_key(&request.idempotency_key)?;
        let asked_by = parse::asked_by(request.asked_by);
        let seen = request.seen.as_ref().map(parse::seen_terms).transpose()?;
        let reply = self
            .0
            .create_payout(merchant_id, amount, key, asked_by, seen)
            .await?;
        Ok(Response::new(PayoutAnswer {
            payout: Some(reply.disbursement.into()),
            replayed: reply.replayed,
        }))
    }

    async fn get_payout(&self, request: Request<GetPayoutRequest>) -> GrpcResult<Payout> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::PayoutNotFound)?;
        let found = self
            .0
            .get_disbursement(merchant_id, Kind::Payout, &request.payout_id);
        let found = found.await.map_err(|error| error.of(Kind::Payout))?;
        Ok(Response::new(found.into()))
    }

    async fn get_payout_timeline(
        &self,
        request: Request<GetPayoutRequest>,
    ) -> GrpcResult<DisbursementTimeline> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::PayoutNotFound)?;
        let timeline =
            self.0
                .get_disbursement_timeline(merchant_id, Kind::Payout, &request.payout_id);
        let timeline = timeline.await.map_err(|error| error.of(Kind::Payout))?;
        Ok(Response::new(timeline.into()))
    }

    async fn read_payout_account(
        &self,
        request: Request<ReadPayoutAccountRequest>,
    ) -> GrpcResult<PayoutAccount> {
        let merchant_id = parse::merchant_id(&request.get_ref().merchant_id)?;
        let account = self.0.get_payout_account(merchant_id).await?;
        Ok(Response::new(account.into()))
    }

    async fn list_payouts(
        &self,
        request: Request<ListPayoutsRequest>,
    ) -> GrpcResult<ListPayoutsResponse> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let asked = parse::page(
            PageAsked {
                size: request.page_size,
                token: &request.page_token,
                from: &request.from,
                to: &request.to,
            },
            DisbursementId::uuid,
        )?;
        let wanted = WantedDisbursements {
            merchant_id,
            kind: Kind::Payout,
            reference: None,
            session_id: None,
            state: state(request.status)?,
        };
        let page = self.0.list_disbursements(wanted, asked).await?;
        Ok(Response::new(ListPayoutsResponse {
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
            payouts: page.rows.into_iter().map(Into::into).collect(),
        }))
    }

    async fn create_refund(
        &self,
        request: Request<CreateRefundRequest>,
    ) -> GrpcResult<RefundAnswer> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::ChargeNotFound)?;
        let reference = parse::id(&request.reference, Error::ChargeNotFound)?;
        let amount = request.amount.as_ref();
        let amount = amount
            .map(|amount| parse::cedis("amount", Some(amount)))
            .transpose()?;
        let key = parse::idempotency_key(&request.idempotency_key)?;
        let asked_by = parse::asked_by(request.asked_by);
        let reply = self
            .0
            .create_refund(merchant_id, &reference, amount, key, asked_by)
            .await?;
        Ok(Response::new(RefundAnswer {
            refund: Some(reply.disbursement.into()),
            replayed: reply.replayed,
        }))
    }

    async fn get_refund(&self, request: Request<GetRefundRequest>) -> GrpcResult<Refund> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::RefundNotFound)?;
        let found = self
            .0
            .get_disbursement(merchant_id, Kind::Refund, &request.refund_id);
        let found = found.await.map_err(|error| error.of(Kind::Refund))?;
        Ok(Response::new(found.into()))
    }

    async fn get_refund_timeline(
        &self,
        request: Request<GetRefundRequest>,
    ) -> GrpcResult<DisbursementTimeline> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::RefundNotFound)?;
        let timeline =
            self.0
                .get_disbursement_timeline(merchant_id, Kind::Refund, &request.refund_id);
        let timeline = timeline.await.map_err(|error| error.of(Kind::Refund))?;
        Ok(Response::new(timeline.into()))
    }

    async fn list_refunds(
        &self,
        request: Request<ListRefundsRequest>,
    ) -> GrpcResult<ListRefundsResponse> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let asked = parse::page(
            PageAsked {
                size: request.page_size,
                token: &request.page_token,
                from: &request.from,
                to: &request.to,
            },
            DisbursementId::uuid,
        )?;
        let reference = Some(request.reference).filter(|text| !text.is_empty());
        let wanted = WantedDisbursements {
            merchant_id,
            kind: Kind::Refund,
            reference: parse::given("reference", reference.as_deref())?,
            session_id: parse::given("session_id", request.session_id.as_deref())?,
            state: state(request.status)?,
        };
        let page = self.0.list_disbursements(wanted, asked).await?;
        Ok(Response::new(ListRefundsResponse {
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
            refunds: page.rows.into_iter().map(Into::into).collect(),
        }))
    }
}

/// The state that is wanted, if any is.
fn state(status: i32) -> Result<Option<State>, Error> {
    match DisbursementStatus::try_from(status) {
        Ok(DisbursementStatus::Unspecified) => Ok(None),
        status => {
            let state = status.ok().and_then(|status| State::try_from(status).ok());
            let fault = parse::invalid("status", "must be one of the statuses");
            state.map(Some).ok_or(fault)
        }
    }
}

impl From<Destination> for ProtoDestination {
    fn from(destination: Destination) -> Self {
        Self {
            r#type: ProtoDestinationType::from(destination.destination_type).into(),
            account_masked: destination.masked(),
            provider: destination.provider,
        }
    }
}

impl From<Disbursement> for Payout {
    fn from(payout: Disbursement) -> Self {
        let failure_message = payout.failure_message().map(str::to_owned);
        let (amount, fee) = (payout.amount(), payout.fee());
        let progress = payout.progress;
        Self {
            fee: Some(fee.into()),
            payout_id: payout.shown_id,
            merchant_id: payout.merchant_id.to_string(),
            amount: Some(amount.into()),
            method: payout.destination.destination_type.code().to_owned(),
            status: DisbursementStatus::from(progress.state).into(),
            destination: Some(payout.destination.into()),
            failure_reason: progress.failure_reason,
            failure_message,
            created_at: payout.created_at.to_string(),
            updated_at: progress.updated_at.to_string(),
            completed_at: progress.completed_at.map(|at| at.to_string()),
            reversed_at: progress.reversed_at.map(|at| at.to_string()),
            scheduled: payout.scheduled,
        }
    }
}

impl From<Disbursement> for Refund {
    fn from(refund: Disbursement) -> Self {
        let failure_message = refund.failure_message().map(str::to_owned);
        let amount = refund.amount();
        let tx_id_display = refund.tx_id_display().unwrap_or_default();
        let progress = refund.progress;
        let refunded = refund.refunded;
        Self {
            refund_id: refund.shown_id,
            merchant_id: refund.merchant_id.to_string(),
            reference: refunded.reference.unwrap_or_default(),
            tx_id_display,
            session_id: refunded
                .session_id
                .map(|id| id.to_string())
                .unwrap_or_default(),
            amount: Some(amount.into()),
            method: refund.destination.destination_type.code().to_owned(),
            status: DisbursementStatus::from(progress.state).into(),
            destination: Some(refund.destination.into()),
            failure_reason: progress.failure_reason,
            failure_message,
            created_at: refund.created_at.to_string(),
            updated_at: progress.updated_at.to_string(),
            completed_at: progress.completed_at.map(|at| at.to_string()),
            reversed_at: progress.reversed_at.map(|at| at.to_string()),
            from_suspense: refunded.case_id.is_some(),
        }
    }
}
