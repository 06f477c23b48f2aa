//! Converts proto to domain and back, for a merchant's figures.

use chassis::{money::Currency, page::PageAsked};
use proto::charges::{
    BalanceLine as ProtoBalanceLine, BalancePart, ChargeCount, ChargeStatus as ProtoChargeStatus,
    Figures as ProtoFigures, ListBalanceLinesRequest, ListBalanceLinesResponse,
    Provider as ProtoProvider, ReadFiguresRequest, merchant_figures_server::MerchantFigures,
};
use tonic::{Request, Response};

use super::{Grpc, GrpcResult, parse};
use crate::{
    balance_line::{BalanceLine, Part},
    figures::{DayCount, Figures},
    line_id::LineId,
};

#[tonic::async_trait]
impl MerchantFigures for Grpc {
    async fn read_figures(&self, request: Request<ReadFiguresRequest>) -> GrpcResult<ProtoFigures> {
        let merchant_id = parse::merchant_id(&request.get_ref().merchant_id)?;
        let figures = self.0.read_figures(merchant_id).await?;
        Ok(Response::new(figures.into()))
    }

    async fn list_balance_lines(
        &self,
        request: Request<ListBalanceLinesRequest>,
    ) -> GrpcResult<ListBalanceLinesResponse> {
        let request = request.into_inner();
        let merchant_id = parse::merchant_id(&request.merchant_id)?;
        let part = match request.part() {
            BalancePart::Unspecified | BalancePart::Available => Part::Available,
            BalancePart::Reserved => Part::Reserved,
        };
        let currency = match request.currency.as_str() {
            "" => Currency::GHS,
            code => code
                .parse()
                .map_err(|_| parse::invalid("currency", "must be a currency such as GHS"))?,
        };
        let asked = PageAsked {
            size: request.page_size,
            token: &request.page_token,
            from: &request.from,
            to: &request.to,
        };
        let asked = asked.parse(|id: LineId| id);
        let asked = asked.map_err(|fault| parse::invalid(fault.field, fault.message))?;
        let listing = self
            .0
            .list_balance_lines(merchant_id, (part, currency), asked);
        let (lines, next) = listing.await?;
        Ok(Response::new(ListBalanceLinesResponse {
            lines: lines.into_iter().map(Into::into).collect(),
            next_page_token: next.map_or_else(String::new, |next| next.to_string()),
        }))
    }
}

impl From<BalanceLine> for ProtoBalanceLine {
    fn from(line: BalanceLine) -> Self {
        Self {
            at: line.at.to_string(),
            posting: line.posting,
            amount: Some(line.amount.into()),
            balance: line.balance.map(Into::into),
            reference: line.reference,
        }
    }
}

impl From<Figures> for ProtoFigures {
    fn from(figures: Figures) -> Self {
        Self {
            days: figures.days.iter().map(ToString::to_string).collect(),
            counts: figures.counts.into_iter().map(Into::into).collect(),
            waiting: u64::try_from(figures.waiting).unwrap_or_default(),
        }
    }
}

impl From<DayCount> for ChargeCount {
    fn from(count: DayCount) -> Self {
        Self {
            day: count.day.to_string(),
            provider: ProtoProvider::from(count.provider).into(),
            status: ProtoChargeStatus::from(count.status).into(),
            failure_reason: count.failure_reason,
            charges: u64::try_from(count.charges).unwrap_or_default(),
            amount: Some(count.amount.into()),
        }
    }
}
