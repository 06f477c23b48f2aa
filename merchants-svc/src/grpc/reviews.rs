//! Operators' reviews of businesses: proto to domain and back.

use chassis::{
    clock::{Day, Timestamp},
    ids::MerchantId,
    page::{self, Place, TOKEN_FAULT},
};
use proto::merchants::{
    BusinessDecision, DecideBusinessRequest, FieldReason as ProtoFieldReason,
    KycStatus as ProtoKycStatus, ListBusinessesRequest, ListBusinessesResponse, ReviewedBusiness,
    ShowBusinessRequest, business_reviews_server::BusinessReviews,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    Grpc,
    account::{shown_business, shown_reasons},
    invalid, parse_id, parse_kyc_status,
};
use crate::{
    business::{self, Decision, FieldReason, NewDecision, Reasons, Submitted, Verdict},
    business_form::Field,
    error::Error,
    merchant::KycStatus,
    store::businesses::Wanted,
};

const DECIDED_BY_CHARACTERS_MAX: usize = 100;
const NOTE_CHARACTERS_MAX: usize = 500;
const REASON_CHARACTERS_MAX: usize = 300;

#[tonic::async_trait]
impl BusinessReviews for Grpc {
    async fn list_businesses(
        &self,
        request: Request<ListBusinessesRequest>,
    ) -> Result<Response<ListBusinessesResponse>, Status> {
        let request = request.into_inner();
        let wanted = match parse_kyc_status("status", request.status)? {
            None => Wanted::Waiting,
            Some(status) => Wanted::Of(status),
        };
        let size =
            page::size(request.page_size).map_err(|fault| invalid(fault.field, fault.message))?;
        let after = parse_place(&request.page_token)?;
        let page = self.0.list_businesses(wanted, after, size).await?;
        let next = page.next.map(|place| place.to_string());
        Ok(Response::new(ListBusinessesResponse {
            businesses: page.rows.into_iter().map(reviewed).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn show_business(
        &self,
        request: Request<ShowBusinessRequest>,
    ) -> Result<Response<ReviewedBusiness>, Status> {
        let merchant_id = parse_id(&request.get_ref().merchant_id, Error::BusinessNotFound)?;
        let (submitted, decisions) = self.0.show_business(merchant_id).await?;
        Ok(Response::new(ReviewedBusiness {
            decisions: decisions.into_iter().map(BusinessDecision::from).collect(),
            ..reviewed(submitted)
        }))
    }

    async fn decide_business(
        &self,
        request: Request<DecideBusinessRequest>,
    ) -> Result<Response<ReviewedBusiness>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_id(&request.merchant_id, Error::BusinessNotFound)?;
        let decision = parse_decision(request, self.0.clock.now())?;
        let decided = self.0.decide_business(merchant_id, decision).await?;
        Ok(Response::new(reviewed(decided)))
    }
}

fn parse_place(token: &str) -> Result<Place<Uuid>, Error> {
    if token.is_empty() {
        return Ok(Place {
            at: Timestamp::EPOCH,
            id: Uuid::nil(),
        });
    }
    let place: Result<Place<MerchantId>, _> = token.parse();
    let place = place.map_err(|_| invalid("page_token", TOKEN_FAULT))?;
    Ok(place.map(MerchantId::uuid))
}

fn parse_decision(request: DecideBusinessRequest, now: Timestamp) -> Result<NewDecision, Error> {
    let status = parse_kyc_status("status", request.status)?;
    let verdict = match status {
        Some(KycStatus::InReview) => Verdict::Review,
        Some(KycStatus::Approved) => Verdict::Approve {
            expires_on: parse_last_day(request.expires_on.as_deref(), now)?,
        },
        Some(KycStatus::Rejected) => Verdict::Reject(parse_reasons(request.reasons.clone())?),
        Some(KycStatus::Expired) => Verdict::Expire,
        Some(KycStatus::Pending) | None => {
            return Err(invalid(
                "status",
                "must be IN_REVIEW, APPROVED, REJECTED or EXPIRED",
            ));
        }
    };
    if status != Some(KycStatus::Rejected) && !request.reasons.is_empty() {
        return Err(invalid("reasons", "must be empty unless it is REJECTED"));
    }
    if status != Some(KycStatus::Approved) && request.expires_on.is_some() {
        return Err(invalid(
            "expires_on",
            "must be absent unless it is APPROVED",
        ));
    }
    let decided_by = request.decided_by.trim();
    if decided_by.is_empty() {
        return Err(invalid("decided_by", "must say who decides"));
    }
    Ok(NewDecision {
        version: request.version.into(),
        verdict,
        decided_by: no_longer_than("decided_by", decided_by, DECIDED_BY_CHARACTERS_MAX)?,
        note: no_longer_than("note", request.note.trim(), NOTE_CHARACTERS_MAX)?,
    })
}

fn parse_last_day(text: Option<&str>, now: Timestamp) -> Result<Day, Error> {
    let Some(text) = text else {
        return Ok(business::usual_last_day(now));
    };
    let day: Result<Day, _> = text.parse();
    day.ok()
        .filter(|day| *day > Day::of(now))
        .ok_or_else(|| invalid("expires_on", "must be a day after today, YYYY-MM-DD"))
}

/// One for each field at most, in the form's order.
fn parse_reasons(given: Vec<ProtoFieldReason>) -> Result<Reasons, Error> {
    if given.is_empty() {
        return Err(invalid(
            "reasons",
            "must say what is wrong with at least one field",
        ));
    }
    let mut read = Vec::with_capacity(given.len());
    for ProtoFieldReason { field, reason } in given {
        let field: Field = field.parse().map_err(|_| {
            let names: Vec<&str> = Field::ALL.iter().map(|field| field.code()).collect();
            invalid(
                "reasons",
                format!("must be about fields of the form: {}", names.join(", ")),
            )
        })?;
        let reason = no_longer_than("reasons", reason.trim(), REASON_CHARACTERS_MAX)?;
        if reason.is_empty() {
            return Err(invalid(
                "reasons",
                "must say what is wrong and what to send",
            ));
        }
        if read.iter().any(|(named, _)| *named == field) {
            return Err(invalid("reasons", "must be one for each field"));
        }
        read.push((field, reason));
    }
    let in_order = Field::ALL.iter().filter_map(|field| {
        let (_, reason) = read.iter().find(|(named, _)| named == field)?;
        Some(FieldReason {
            field: field.code().to_owned(),
            reason: reason.clone(),
        })
    });
    Ok(Reasons(in_order.collect()))
}

fn no_longer_than(field: &'static str, text: &str, characters_max: usize) -> Result<String, Error> {
    let is_good = text.chars().count() <= characters_max && !text.chars().any(char::is_control);
    if !is_good {
        let message =
            format!("must be at most {characters_max} characters, without control characters");
        return Err(invalid(field, message));
    }
    Ok(text.to_owned())
}

fn reviewed(submitted: Submitted) -> ReviewedBusiness {
    let business = &submitted.business;
    ReviewedBusiness {
        version: shown_version(business.version),
        decided_by: business.decided_by.clone().unwrap_or_default(),
        note: business.note.clone().unwrap_or_default(),
        merchant: Some(submitted.merchant.clone().into()),
        business: Some(shown_business(submitted)),
        decisions: Vec::new(),
    }
}

impl From<Decision> for BusinessDecision {
    fn from(decision: Decision) -> Self {
        Self {
            version: shown_version(decision.version),
            status: ProtoKycStatus::from(decision.status).into(),
            reasons: shown_reasons(decision.reasons),
            expires_on: decision.expires_on.map(|day| day.to_string()),
            decided_by: decision.decided_by,
            note: decision.note,
            decided_at: decision.decided_at.to_string(),
        }
    }
}

/// Nobody submits so often.
fn shown_version(version: i64) -> u32 {
    u32::try_from(version).unwrap_or(u32::MAX)
}
