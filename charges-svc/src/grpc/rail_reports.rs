//! Converts proto to domain and back, for rails' reports.

use std::time::Duration;

use chassis::{clock::Timestamp, money::Money, page::TOKEN_FAULT};
use proto::charges::{
    CaseKind as ProtoCaseKind, Difference as ProtoDifference, Direction as ProtoDirection,
    FindUnreportedRequest, FindUnreportedResponse, MatchLinesRequest, MatchLinesResponse,
    ReportLine as ProtoLine, rail_reports_server::RailReports, report_line::Said as ProtoSaid,
};
use rails::RailName;
use tonic::{Request, Response};

use super::{Grpc, GrpcResult, parse};
use crate::{
    compare::{Coverage, Difference},
    error::Result,
    rail_report::{Direction, Period, RailReport, ReportLine, Said},
};

/// Most lines in one call.
const LINES_MAX: usize = 1_000;

/// Longest reference and id of a rail, in characters.
const TEXT_MAX: usize = 200;

/// More could make two days' reports one.
const MARGIN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

chassis::proto_list! {
    Direction = ProtoDirection { In, Out }
}

chassis::proto_list! {
    Said = ProtoSaid { Paid, Failed, Reversed }
}

#[tonic::async_trait]
impl RailReports for Grpc {
    async fn match_lines(
        &self,
        request: Request<MatchLinesRequest>,
    ) -> GrpcResult<MatchLinesResponse> {
        let request = request.into_inner();
        let report = parse_report(&request.rail, request.report)?;
        if !(1..=LINES_MAX).contains(&request.lines.len()) {
            let message = format!("must be 1 to {LINES_MAX}");
            return Err(parse::invalid("lines", message).into());
        }
        let lines = request.lines.into_iter().map(parse_line);
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let differences = self.0.match_lines(&report, &lines).await?;
        let matched = lines.len().saturating_sub(differences.len());
        Ok(Response::new(MatchLinesResponse {
            matched: u32::try_from(matched).unwrap_or(u32::MAX),
            differences: differences.into_iter().map(Into::into).collect(),
        }))
    }

    async fn find_unreported(
        &self,
        request: Request<FindUnreportedRequest>,
    ) -> GrpcResult<FindUnreportedResponse> {
        let request = request.into_inner();
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(
                token
                    .parse()
                    .map_err(|_| parse::invalid("page_token", TOKEN_FAULT))?,
            ),
        };
        let coverage = parse_coverage(request, self.0.clock.now())?;
        let page = self.0.find_unreported(&coverage, after).await?;
        Ok(Response::new(FindUnreportedResponse {
            differences: page.differences.into_iter().map(Into::into).collect(),
            undecided: page.undecided,
            next_page_token: page.next.map(|block| block.to_string()).unwrap_or_default(),
        }))
    }
}

fn parse_report(rail: &str, hash: String) -> Result<RailReport> {
    let rail: RailName = rail
        .parse()
        .map_err(|_| parse::invalid("rail", "must be the name of a rail"))?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash {
        return Err(parse::invalid("report", "must be a SHA-256 in hex"));
    }
    Ok(RailReport { rail, hash })
}

fn parse_line(line: ProtoLine) -> Result<ReportLine> {
    let short = |field, text: String| {
        let is_short = text.chars().count() <= TEXT_MAX && !text.chars().any(char::is_control);
        let refused = parse::invalid(field, "must be a short text without control characters");
        is_short.then_some(text).ok_or(refused)
    };
    let direction = Direction::try_from(line.direction())
        .map_err(|_| parse::invalid("lines.direction", "must be in or out"))?;
    let said = Said::try_from(line.said())
        .map_err(|_| parse::invalid("lines.said", "must be paid, failed or reversed"))?;
    let amount = line.amount.as_ref().map(Money::try_from);
    let amount = amount.and_then(std::result::Result::ok);
    let amount = amount
        .filter(|amount| amount.is_positive())
        .ok_or_else(|| parse::invalid("lines.amount", "must be positive, in a known currency"))?;
    let at = line.at.as_deref().map(|at| time("lines.at", at));
    Ok(ReportLine {
        number: line.number,
        reference: short("lines.reference", line.reference)?,
        rail_id: short("lines.rail_id", line.rail_id)?,
        direction,
        amount,
        said,
        at: at.transpose()?,
    })
}

fn parse_coverage(request: FindUnreportedRequest, now: Timestamp) -> Result<Coverage> {
    let directions = request
        .directions()
        .map(|direction| {
            Direction::try_from(direction)
                .map_err(|_| parse::invalid("directions", "must be in or out"))
        })
        .collect::<Result<Vec<_>>>()?;
    if directions.is_empty() || directions.len() > Direction::ALL.len() {
        return Err(parse::invalid("directions", "must be in, out or both"));
    }
    let period = Period {
        from: time("from", &request.from)?,
        to: time("to", &request.to)?,
    };
    if period.from >= period.to {
        return Err(parse::invalid("to", "must be later than the beginning"));
    }
    if period.to > now {
        return Err(parse::invalid("to", "must not be in the future"));
    }
    let margin = Duration::from_secs(request.margin_seconds.into());
    if margin > MARGIN_MAX {
        return Err(parse::invalid("margin_seconds", "must be at most a day"));
    }
    Ok(Coverage {
        report: parse_report(&request.rail, request.report)?,
        directions,
        period,
        margin,
    })
}

fn time(field: &'static str, text: &str) -> Result<Timestamp> {
    text.parse()
        .map_err(|_| parse::invalid(field, "must be a time such as 2026-01-31T09:00:00.000Z"))
}

impl From<Difference> for ProtoDifference {
    fn from(difference: Difference) -> Self {
        Self {
            kind: ProtoCaseKind::from(difference.kind).into(),
            number: difference.number,
            reference: difference.reference,
            detail: difference.detail,
            case_opened: difference.case_opened,
        }
    }
}
