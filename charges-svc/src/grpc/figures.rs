//! Converts proto to domain and back, for a merchant's figures.

use std::time::Duration;

use chassis::{money::Currency, page::PageAsked};
use proto::charges::{
    BalanceLine as ProtoBalanceLine, BalancePart, ChargeCount, ChargeStatus as ProtoChargeStatus,
    Figures as ProtoFigures, ListBalanceLinesRequest, ListBalanceLinesResponse,
    NetworkWeather as ProtoNetworkWeather, Provider as ProtoProvider, ReadFiguresRequest,
    ReadWeatherRequest, ReadWeatherResponse, Weather as ProtoWeather,
    merchant_figures_server::MerchantFigures,
};
use tonic::{Request, Response};

use super::{Grpc, GrpcResult, parse};
use crate::{
    balance_line::{BalanceLine, Part},
    figures::{DayCount, Figures},
    line_id::LineId,
    weather::{NetworkWeather, Weather},
};

chassis::proto_list! {
    Weather = ProtoWeather { TooFew, AsUsual, Slower, ManyFail }
}

#[tonic::async_trait]
impl MerchantFigures for Grpc {
    async fn read_figures(&self, request: Request<ReadFiguresRequest>) -> GrpcResult<ProtoFigures> {
        let merchant_id = parse::merchant_id(&request.get_ref().merchant_id)?;
        let figures = self.0.read_figures(merchant_id).await?;
        Ok(Response::new(figures.into()))
    }

    async fn read_weather(
        &self,
        _: Request<ReadWeatherRequest>,
    ) -> GrpcResult<ReadWeatherResponse> {
        let networks = self.0.read_weather().await?;
        Ok(Response::new(ReadWeatherResponse {
            networks: networks.into_iter().map(Into::into).collect(),
        }))
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
            BalancePart::Suspense => Part::Suspense,
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
            held_for: line.held_for,
            refund_id: line.refund_id,
        }
    }
}

impl From<NetworkWeather> for ProtoNetworkWeather {
    fn from(network: NetworkWeather) -> Self {
        let rates = network.rates;
        let whole = |duration: Duration, of: u64| {
            u32::try_from(duration.as_secs() / of).unwrap_or(u32::MAX)
        };
        let median = rates.and_then(|rates| rates.median);
        let oldest = rates.and_then(|rates| rates.oldest);
        Self {
            provider: ProtoProvider::from(network.provider).into(),
            weather: ProtoWeather::from(network.weather).into(),
            succeeded_percent: rates.and_then(|rates| rates.succeeded),
            median_seconds: median.map(|median| whole(median, 1)),
            waiting_percent: rates.map(|rates| rates.waiting),
            oldest_minutes: oldest.map(|oldest| whole(oldest, 60)),
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
