//! Converts proto to domain and back, and nothing else.

use std::sync::Arc;

use chassis::{grpc::BatchedMethods, ids::ChargeId, page::PageAsked};
use proto::{
    batched::GetCharge,
    charges::{
        Case as ProtoCase, CaseKind as ProtoCaseKind, Charge as ProtoCharge, ChargeAnswer,
        ChargeStatus as ProtoChargeStatus, ChargeTimeline, CheckWalletRequest, CheckWalletResponse,
        CloseCaseRequest, CreateChargeRequest, GetBalanceRequest, GetBalanceResponse,
        GetChargeRequest, GetChargeTimelineRequest, GetHostedChargeRequest, HostedCharge,
        ListCasesRequest, ListCasesResponse, ListChargesRequest, ListChargesResponse,
        ListRailsRequest, ListRailsResponse, ListedCharge, Posting as ProtoPosting,
        Provider as ProtoProvider, Rail as ProtoRail, RailEvidence, ReceiveCallbackRequest,
        ReceiveCallbackResponse, ResolveChargeRequest, ShowChargeRequest, ShowChargeResponse,
        SubmitOtpRequest, WalletState, WatchChargesRequest,
        charge_operations_server::ChargeOperations, charges_server::Charges,
        resolve_charge_request,
    },
};
use rails::{RailName, WalletOutcome};
use tonic::{Request, Response, Status as GrpcStatus, Streaming};

use crate::{
    case::{Case, CaseKind},
    charge::{Event, METHOD, ShownCharge},
    error::Error,
    operate::ChargeFile,
    otp::Otp,
    service::{ChargeReply, Service},
    store::{evidence::Evidence, postings::LedgerLine},
};

mod disbursements;
mod figures;
mod parse;
mod payout_accounts;
mod rail_reports;
mod statements;
mod timeline;
mod treasury;
mod watch;

type GrpcResult<T> = Result<Response<T>, GrpcStatus>;

chassis::proto_list! {
    CaseKind = ProtoCaseKind {
        UnknownOutcome, Mismatch, LateMoney, Reversed, CreditedTwice, FloatEmpty, NotSent,
        PaidLate, TakenBack, ReportUnknown, ReportDiffers, ReportContradicts, ReportTwice,
        ReportLacks,
    }
}

/// The methods of both services.
#[derive(Clone)]
pub struct Grpc(pub Arc<Service>);

impl Grpc {
    async fn read(&self, request: GetChargeRequest) -> Result<ProtoCharge, GrpcStatus> {
        let merchant_id = parse::id(&request.merchant_id, Error::ChargeNotFound)?;
        let reference = parse::id(&request.reference, Error::ChargeNotFound)?;
        Ok(self.0.get_charge(merchant_id, reference).await?.into())
    }

    /// What may be called by batches.
    pub fn batched(&self) -> BatchedMethods {
        let grpc = self.clone();
        BatchedMethods::default().method::<GetCharge, _>(move |request| {
            let grpc = grpc.clone();
            async move { grpc.read(request).await }
        })
    }
}

#[tonic::async_trait]
impl Charges for Grpc {
    async fn create_charge(
        &self,
        request: Request<CreateChargeRequest>,
    ) -> GrpcResult<ChargeAnswer> {
        let request = request.into_inner();
        let key = parse::idempotency_key(&request.idempotency_key)?;
        let told = self
            .0
            .create_charge(parse::new_charge(request)?, key)
            .await?;
        Ok(Response::new(told.into()))
    }

    async fn submit_otp(&self, request: Request<SubmitOtpRequest>) -> GrpcResult<ChargeAnswer> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::ChargeNotFound)?;
        let reference = parse::id(&request.reference, Error::ChargeNotFound)?;
        let otp = Otp(request.otp);
        Ok(Response::new(
            self.0
                .submit_otp(merchant_id, &reference, otp)
                .await?
                .into(),
        ))
    }

    async fn get_charge(&self, request: Request<GetChargeRequest>) -> GrpcResult<ProtoCharge> {
        Ok(Response::new(self.read(request.into_inner()).await?))
    }

    async fn get_charge_timeline(
        &self,
        request: Request<GetChargeTimelineRequest>,
    ) -> GrpcResult<ChargeTimeline> {
        let request = request.into_inner();
        let merchant_id = parse::id(&request.merchant_id, Error::ChargeNotFound)?;
        let reference = parse::id(&request.reference, Error::ChargeNotFound)?;
        let timeline = self.0.get_charge_timeline(merchant_id, reference).await?;
        Ok(Response::new(timeline.into()))
    }

    async fn check_wallet(
        &self,
        request: Request<CheckWalletRequest>,
    ) -> GrpcResult<CheckWalletResponse> {
        let (provider, phone) = parse::wallet(request.get_ref())?;
        let wallet = match self.0.check_wallet(provider, &phone).await {
            WalletOutcome::Active => WalletState::Active,
            WalletOutcome::NotActive => WalletState::NotActive,
            WalletOutcome::Unknown => WalletState::Unknown,
        };
        Ok(Response::new(CheckWalletResponse {
            wallet: wallet.into(),
        }))
    }

    type WatchChargesStream = watch::Answers;

    async fn watch_charges(
        &self,
        request: Request<Streaming<WatchChargesRequest>>,
    ) -> GrpcResult<watch::Answers> {
        let watching = self.0.watches.open();
        Ok(Response::new(watch::answers(
            watching,
            request.into_inner(),
        )))
    }

    async fn get_hosted_charge(
        &self,
        request: Request<GetHostedChargeRequest>,
    ) -> GrpcResult<HostedCharge> {
        let session_id = parse::id(&request.get_ref().session_id, Error::ChargeNotFound)?;
        let hosted = self.0.get_hosted_charge(session_id).await?;
        let charge = hosted.charge;
        let count = |tries| u32::try_from(tries).unwrap_or_default();
        Ok(Response::new(HostedCharge {
            payer_masked: charge.facts.phone.masked(),
            instruction: hosted.instruction,
            otp_tries: count(charge.otp_tries),
            otp_tries_left: count(charge.otp_tries_left()),
            otp_expires_at: charge.otp_expires_at.map(|at| at.to_string()),
            charge: Some(charge.into()),
        }))
    }

    async fn receive_callback(
        &self,
        request: Request<ReceiveCallbackRequest>,
    ) -> GrpcResult<ReceiveCallbackResponse> {
        let request = request.into_inner();
        let Ok(rail) = request.rail.parse() else {
            let refused = self.0.refuse_callback(&request.rail, &request.token);
            return Err(refused.await.into());
        };
        let callback = parse::callback(rail, request);
        self.0.receive_callback(rail, &callback).await?;
        Ok(Response::new(ReceiveCallbackResponse {}))
    }

    async fn list_rails(&self, _: Request<ListRailsRequest>) -> GrpcResult<ListRailsResponse> {
        let rails = RailName::ALL.iter().map(|rail| ProtoRail {
            name: rail.code().to_owned(),
            callback_headers: rail
                .terms()
                .callback_headers
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
        Ok(Response::new(ListRailsResponse {
            rails: rails.collect(),
        }))
    }

    async fn list_charges(
        &self,
        request: Request<ListChargesRequest>,
    ) -> GrpcResult<ListChargesResponse> {
        let request = request.into_inner();
        let wanted = parse::wanted_charges(&request)?;
        let asked = parse::page(
            PageAsked {
                size: request.page_size,
                token: &request.page_token,
                from: &request.from,
                to: &request.to,
            },
            ChargeId::uuid,
        )?;
        let page = self.0.list_charges(wanted, asked).await?;
        Ok(Response::new(ListChargesResponse {
            charges: page.rows.into_iter().map(Into::into).collect(),
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
        }))
    }

    async fn get_balance(
        &self,
        request: Request<GetBalanceRequest>,
    ) -> GrpcResult<GetBalanceResponse> {
        let request = request.get_ref();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let balances = self.0.get_balance(merchant_id, request.with_suspense);
        let balances = balances.await?;
        let payout_fee = self.0.get_payout_fee(merchant_id).await?;
        Ok(Response::new(GetBalanceResponse {
            payout_fee: payout_fee.map(Into::into),
            available: balances.available.into_iter().map(Into::into).collect(),
            reserved: balances.reserved.into_iter().map(Into::into).collect(),
            suspense: balances.suspense.into_iter().map(Into::into).collect(),
        }))
    }
}

#[tonic::async_trait]
impl ChargeOperations for Grpc {
    async fn get_balance(
        &self,
        request: Request<GetBalanceRequest>,
    ) -> GrpcResult<GetBalanceResponse> {
        Charges::get_balance(self, request).await
    }

    async fn show_charge(
        &self,
        request: Request<ShowChargeRequest>,
    ) -> GrpcResult<ShowChargeResponse> {
        let reference = parse::id(&request.get_ref().reference, Error::ChargeNotFound)?;
        Ok(Response::new(self.0.show_charge(&reference).await?.into()))
    }

    async fn resolve_charge(
        &self,
        request: Request<ResolveChargeRequest>,
    ) -> GrpcResult<ShowChargeResponse> {
        let request = request.into_inner();
        let reference = parse::id(&request.reference, Error::ChargeNotFound)?;
        let event = match request.outcome {
            Some(resolve_charge_request::Outcome::Settled(true)) => Event::Settled,
            Some(resolve_charge_request::Outcome::FailedReason(reason)) => {
                Event::Failed(parse::charge_failure_reason(&reason)?)
            }
            Some(resolve_charge_request::Outcome::Settled(false)) | None => {
                let message = "must be settled, or a reason for failed";
                return Err(parse::invalid("outcome", message).into());
            }
        };
        let evidence = parse::evidence(&request.evidence)?;
        let file = self.0.resolve_charge(&reference, event, &evidence).await?;
        Ok(Response::new(file.into()))
    }

    async fn list_cases(&self, _: Request<ListCasesRequest>) -> GrpcResult<ListCasesResponse> {
        let cases = self.0.list_cases().await?;
        Ok(Response::new(ListCasesResponse {
            cases: cases.into_iter().map(Into::into).collect(),
        }))
    }

    async fn close_case(&self, request: Request<CloseCaseRequest>) -> GrpcResult<ProtoCase> {
        let request = request.into_inner();
        let id = parse::id(&request.case_id, Error::CaseNotFound)?;
        let case = self.0.close_case(id, parse::decision(request)?).await?;
        Ok(Response::new(case.into()))
    }
}

impl From<ShownCharge> for ListedCharge {
    fn from(charge: ShownCharge) -> Self {
        Self {
            payer_masked: charge.facts.phone.masked(),
            charge: Some(charge.into()),
        }
    }
}

impl From<ShownCharge> for ProtoCharge {
    fn from(charge: ShownCharge) -> Self {
        let failure_message = charge.failure_message().map(str::to_owned);
        let facts = charge.facts;
        Self {
            reference: facts.reference.to_string(),
            transaction_id: facts.transaction_id.to_string(),
            tx_id_display: facts.tx_id_display.to_string(),
            session_id: facts.session_id.to_string(),
            merchant_id: facts.merchant_id.to_string(),
            status: ProtoChargeStatus::from(charge.status).into(),
            amount: Some(facts.amount().into()),
            provider: ProtoProvider::from(facts.provider).into(),
            method: METHOD.to_owned(),
            failure_reason: charge.failure_reason,
            failure_message,
            created_at: facts.created_at.to_string(),
            updated_at: charge.updated_at.to_string(),
            version: charge.version,
        }
    }
}

impl From<ChargeReply> for ChargeAnswer {
    fn from(told: ChargeReply) -> Self {
        Self {
            charge: Some(told.charge.into()),
            message: told.message,
            replayed: told.replayed,
        }
    }
}

impl From<ChargeFile> for ShowChargeResponse {
    fn from(file: ChargeFile) -> Self {
        let charge = file.charge;
        Self {
            state: file.state.code().to_owned(),
            rail: charge.facts.rail.clone(),
            rail_reference: charge.facts.rail_reference.to_string(),
            next_query_at: file.next_query_at.map(|at| at.to_string()),
            charge: Some(charge.into()),
            evidence: file.evidence.into_iter().map(Into::into).collect(),
            postings: file.postings.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Evidence> for RailEvidence {
    fn from(evidence: Evidence) -> Self {
        Self {
            at: evidence.first_at.to_string(),
            action: evidence.action,
            outcome: evidence.outcome,
            rail_text: Some(evidence.rail_text).filter(|text| !text.is_empty()),
            times: u32::try_from(evidence.times).unwrap_or(u32::MAX),
            last_at: evidence.last_at.to_string(),
        }
    }
}

impl From<LedgerLine> for ProtoPosting {
    fn from(written: LedgerLine) -> Self {
        let amount = written.amount();
        Self {
            at: written.posted_at.to_string(),
            kind: written.kind,
            account: written.account,
            amount: Some(amount.into()),
        }
    }
}

impl From<Case> for ProtoCase {
    fn from(case: Case) -> Self {
        let suspense = case.suspense();
        Self {
            case_id: case.case_id.to_string(),
            kind: ProtoCaseKind::from(case.kind).into(),
            reference: case.reference.to_string(),
            detail: case.detail,
            suspense: suspense.map(Into::into),
            opened_at: case.opened_at.to_string(),
            closed_at: case.closed_at.map(|at| at.to_string()),
            refund_id: case.refund_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for kind in CaseKind::ALL {
            assert_eq!(ProtoCaseKind::from(*kind).code(), Some(kind.code()));
        }
    }
}
