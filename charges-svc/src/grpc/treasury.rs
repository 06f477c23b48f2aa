//! Converts proto to domain and back, for what operators do with money that goes out.

use proto::charges::{
    GetPayoutAccountRequest, MoveFloatRequest, MoveFloatResponse, PayoutAccount, RailFloat,
    ResolveDisbursementRequest, SetPayoutAccountRequest, SetPayoutSwitchesRequest,
    ShowDisbursementRequest, ShowDisbursementResponse, ShowFloatRequest, ShowFloatResponse,
    disbursement_operations_server::DisbursementOperations, move_float_request,
    resolve_disbursement_request::Outcome, show_disbursement_response,
};
use tonic::{Request, Response};
use uuid::Uuid;

use super::{Grpc, GrpcResult, parse};
use crate::{
    disbursement::{Event, Kind},
    float_move::{Direction, FloatMove},
    treasury::{DisbursementFile, RailHoldings},
};

chassis::proto_list! {
    Direction = move_float_request::Direction {
        ClearingToFloat, HouseToFloat, FloatToHouse, ClearingToHouse,
    }
}

#[tonic::async_trait]
impl DisbursementOperations for Grpc {
    async fn set_payout_account(
        &self,
        request: Request<SetPayoutAccountRequest>,
    ) -> GrpcResult<PayoutAccount> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let is_confirmed = request.confirm_holder_name;
        let destination = parse::destination(request)?;
        let set = self
            .0
            .set_payout_account(merchant_id, destination, is_confirmed);
        Ok(Response::new(set.await?.into()))
    }

    async fn get_payout_account(
        &self,
        request: Request<GetPayoutAccountRequest>,
    ) -> GrpcResult<PayoutAccount> {
        let merchant_id = parse::merchant_id(&request.get_ref().merchant_id)?;
        Ok(Response::new(
            self.0.get_payout_account(merchant_id).await?.into(),
        ))
    }

    async fn set_payout_switches(
        &self,
        request: Request<SetPayoutSwitchesRequest>,
    ) -> GrpcResult<PayoutAccount> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let switches = (request.payouts_on_request, request.daily_settlement);
        let switched = self.0.switch_payouts(merchant_id, switches.0, switches.1);
        Ok(Response::new(switched.await?.into()))
    }

    async fn show_disbursement(
        &self,
        request: Request<ShowDisbursementRequest>,
    ) -> GrpcResult<ShowDisbursementResponse> {
        let file = self.0.show_disbursement(&request.get_ref().id).await?;
        Ok(Response::new(file.into()))
    }

    async fn resolve_disbursement(
        &self,
        request: Request<ResolveDisbursementRequest>,
    ) -> GrpcResult<ShowDisbursementResponse> {
        let request = request.into_inner();
        let event = match request.outcome {
            Some(Outcome::Completed(true)) => Event::Completed,
            Some(Outcome::FailedReason(reason)) => {
                Event::Failed(parse::disbursement_failure_reason(&reason)?)
            }
            Some(Outcome::Completed(false)) | None => {
                let message = "must be completed, or a reason for failed";
                return Err(parse::invalid("outcome", message).into());
            }
        };
        let evidence = parse::evidence(&request.evidence)?;
        let file = self
            .0
            .resolve_disbursement(&request.id, event, &evidence)
            .await?;
        Ok(Response::new(file.into()))
    }

    async fn show_float(&self, _: Request<ShowFloatRequest>) -> GrpcResult<ShowFloatResponse> {
        let rails = self.0.show_float().await?;
        Ok(Response::new(ShowFloatResponse {
            rails: rails.into_iter().map(Into::into).collect(),
        }))
    }

    async fn move_float(
        &self,
        request: Request<MoveFloatRequest>,
    ) -> GrpcResult<MoveFloatResponse> {
        let request = request.into_inner();
        let move_id = Uuid::parse_str(&request.move_id);
        let rail = request.rail.parse();
        let direction = Direction::try_from(request.direction());
        let moved = FloatMove {
            move_id: move_id.map_err(|_| parse::invalid("move_id", "must be a UUID"))?,
            rail: rail.map_err(|_| parse::invalid("rail", "must be a rail"))?,
            direction: direction
                .map_err(|_| parse::invalid("direction", "must be one of the directions"))?,
            amount: parse::cedis("amount", request.amount.as_ref())?,
            note: parse::note(&request.note)?,
        };
        self.0.move_float(&moved).await?;
        Ok(Response::new(MoveFloatResponse {}))
    }
}

impl From<DisbursementFile> for ShowDisbursementResponse {
    fn from(file: DisbursementFile) -> Self {
        let shown = file.disbursement;
        Self {
            rail: shown.rail.clone(),
            rail_reference: shown.rail_reference.to_string(),
            next_due_at: shown.next_due_at.map(|at| at.to_string()),
            disbursement: Some(match shown.kind {
                Kind::Payout => show_disbursement_response::Disbursement::Payout(shown.into()),
                Kind::Refund => show_disbursement_response::Disbursement::Refund(shown.into()),
            }),
            evidence: file.evidence.into_iter().map(Into::into).collect(),
            postings: file.postings.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<RailHoldings> for RailFloat {
    fn from(held: RailHoldings) -> Self {
        Self {
            rail: held.rail.code().to_owned(),
            clearing: Some(held.clearing.into()),
            float: Some(held.float.into()),
            rail_balance: held.rail_balance.map(Into::into),
        }
    }
}
