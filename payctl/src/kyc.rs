//! `payctl kyc`: operators' reviews of businesses.

use chassis::{grpc, limits::PAGE_SIZE_MAX};
use clap::{ArgGroup, Args, Subcommand};
use proto::merchants::{
    Business, BusinessDecision, BusinessForm, DecideBusinessRequest, FieldReason, KycStatus,
    ListBusinessesRequest, ReviewedBusiness, ShowBusinessRequest,
    business_reviews_client::BusinessReviewsClient,
};
use serde_json::{Map, Value, json};

use crate::{
    merchant::{a_kyc_status, merchant_json},
    services::{Failure, Services, refusal},
};

#[derive(Debug, Subcommand)]
pub enum KycCommand {
    /// Lists the businesses that wait for a decision, longest first.
    List {
        /// Lists those with this status instead.
        #[arg(long, value_parser = a_kyc_status(), ignore_case = true)]
        status: Option<KycStatus>,
        /// Most businesses to list.
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// Shows what a merchant told about its business, and every decision on it.
    Show {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Decides on what a merchant told, and mails it to the merchant.
    Decide(Decide),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("verdict").required(true).args(["approve", "reject", "review", "expire"])))]
pub struct Decide {
    /// The merchant's id.
    merchant_id: String,
    /// The version that was looked at, as `kyc show` names it.
    #[arg(long)]
    version: u32,
    /// Lets the merchant take payments.
    #[arg(long)]
    approve: bool,
    /// The last day of the approval, YYYY-MM-DD. Without it, 730 days from today.
    #[arg(long, value_name = "DAY", conflicts_with_all = ["reject", "review", "expire"])]
    expires_on: Option<String>,
    /// Does not: what is wrong with a field, and what to send. Once for each field.
    #[arg(long, value_name = "FIELD=REASON", value_parser = field_reason)]
    reject: Vec<FieldReason>,
    /// Locks it against changes while it is looked at.
    #[arg(long)]
    review: bool,
    /// Ends an approval today.
    #[arg(long)]
    expire: bool,
    /// Who decides.
    #[arg(long, value_name = "NAME")]
    by: String,
    /// For other operators: the merchant does not see it.
    #[arg(long, default_value = "")]
    note: String,
}

fn field_reason(text: &str) -> Result<FieldReason, &'static str> {
    let (field, reason) = text.split_once('=').ok_or("must be FIELD=REASON")?;
    Ok(FieldReason {
        field: field.trim().to_owned(),
        reason: reason.trim().to_owned(),
    })
}

pub async fn run(services: &Services, command: KycCommand) -> Result<Value, Failure> {
    let mut reviews = BusinessReviewsClient::new(services.merchants()?);
    match command {
        KycCommand::List { status, limit } => {
            let listed = list(&mut reviews, status.unwrap_or_default(), limit).await?;
            Ok(listed.into_iter().map(listed_json).collect())
        }
        KycCommand::Show { merchant_id } => {
            let answer = reviews.show_business(ShowBusinessRequest { merchant_id });
            let shown = answer.await.map_err(refusal)?.into_inner();
            let decisions = shown.decisions.iter().map(decision_json).collect();
            let mut json = reviewed_json(shown);
            json["decisions"] = decisions;
            Ok(json)
        }
        KycCommand::Decide(decide) => {
            let answer = reviews.decide_business(decide_request(decide)).await;
            Ok(reviewed_json(answer.map_err(refusal)?.into_inner()))
        }
    }
}

async fn list(
    reviews: &mut BusinessReviewsClient<grpc::Channel>,
    status: KycStatus,
    limit: usize,
) -> Result<Vec<ReviewedBusiness>, Failure> {
    let mut listed = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListBusinessesRequest {
            status: status.into(),
            page_size: PAGE_SIZE_MAX,
            page_token,
        };
        let page = reviews.list_businesses(request).await.map_err(refusal)?;
        let page = page.into_inner();
        listed.extend(page.businesses);
        page_token = page.next_page_token;
        if page_token.is_empty() || listed.len() >= limit {
            listed.truncate(limit);
            return Ok(listed);
        }
    }
}

fn decide_request(decide: Decide) -> DecideBusinessRequest {
    // clap takes exactly one of them.
    let status = match &decide {
        Decide { approve: true, .. } => KycStatus::Approved,
        Decide { review: true, .. } => KycStatus::InReview,
        Decide { expire: true, .. } => KycStatus::Expired,
        Decide { .. } => KycStatus::Rejected,
    };
    DecideBusinessRequest {
        merchant_id: decide.merchant_id,
        version: decide.version,
        status: status.into(),
        reasons: decide.reject,
        expires_on: decide.expires_on,
        decided_by: decide.by,
        note: decide.note,
    }
}

/// Without what the merchant told: a list is no place for it.
fn listed_json(listed: ReviewedBusiness) -> Value {
    let business = listed.business.unwrap_or_default();
    let merchant = listed.merchant.unwrap_or_default();
    json!({
        "merchant_id": merchant.merchant_id,
        "name": merchant.name,
        "kyc_status": merchant.kyc_status().code(),
        "status": business.status().code(),
        "version": listed.version,
        "submitted_at": business.submitted_at,
        "decided_at": business.decided_at,
        "decided_by": or_null(listed.decided_by),
        "expires_on": business.expires_on,
    })
}

fn reviewed_json(reviewed: ReviewedBusiness) -> Value {
    let mut business = business_json(reviewed.business.unwrap_or_default());
    business["version"] = reviewed.version.into();
    business["decided_by"] = or_null(reviewed.decided_by);
    business["note"] = or_null(reviewed.note);
    json!({
        "merchant": merchant_json(reviewed.merchant.unwrap_or_default()),
        "business": business,
    })
}

fn business_json(business: Business) -> Value {
    json!({
        "status": business.status().code(),
        "form": business.form.map(form_json),
        "submitted_at": business.submitted_at,
        "decided_at": business.decided_at,
        "expires_on": business.expires_on,
        "reasons": reasons_json(&business.reasons),
    })
}

fn form_json(form: BusinessForm) -> Value {
    json!({
        "kind": form.kind().code(),
        "registered_name": form.registered_name,
        "registration_number": form.registration_number,
        "tin": form.tin,
        "activity": form.activity,
        "website": form.website,
        "digital_address": form.digital_address,
        "town": form.town,
        "owner_name": form.owner_name,
        "owner_ghana_card": form.owner_ghana_card,
        "owner_phone": form.owner_phone,
    })
}

fn decision_json(decision: &BusinessDecision) -> Value {
    json!({
        "version": decision.version,
        "status": decision.status().code(),
        "reasons": reasons_json(&decision.reasons),
        "expires_on": decision.expires_on,
        "decided_by": decision.decided_by,
        "note": or_null(decision.note.clone()),
        "decided_at": decision.decided_at,
    })
}

fn reasons_json(reasons: &[FieldReason]) -> Value {
    let by_field = reasons.iter();
    let by_field = by_field.map(|given| (given.field.clone(), given.reason.clone().into()));
    Value::Object(by_field.collect::<Map<_, _>>())
}

fn or_null(text: String) -> Value {
    match text.as_str() {
        "" => Value::Null,
        _ => text.into(),
    }
}
