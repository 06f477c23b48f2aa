//! `payctl charge`, `payctl cases`, `payctl case` and `payctl balance`.

use chassis::money::Money;
use clap::{ArgGroup, Args, Subcommand};
use proto::charges::{
    Case, Charge, CloseCaseRequest, GetBalanceRequest, ListCasesRequest, Posting, RailEvidence,
    ResolveChargeRequest, ShowChargeRequest, ShowChargeResponse,
    charge_operations_client::ChargeOperationsClient, close_case_request::Action,
    resolve_charge_request::Outcome,
};
use serde_json::{Value, json};

use crate::services::{Failure, Services, refusal};

#[derive(Debug, Subcommand)]
pub enum ChargeCommand {
    /// Shows a charge with everything that its rail said, and its postings.
    Show {
        /// The charge's reference, TX-…-….
        reference: String,
    },
    /// Ends a charge on evidence from the rail.
    Resolve(Resolve),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("outcome").required(true).args(["settled", "failed"])))]
pub struct Resolve {
    /// The charge's reference, TX-…-….
    reference: String,
    /// The payer was debited exactly this charge.
    #[arg(long)]
    settled: bool,
    /// The payer was not debited, for this reason, such as `PAYER_TIMEOUT`.
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// What was seen at the rail, and where.
    #[arg(long)]
    evidence: String,
}

#[derive(Debug, Subcommand)]
pub enum CaseCommand {
    /// Closes a case. Says where money in suspense goes, and posts it.
    Close(Close),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("action").required(true).args(["refund", "refunded", "release"])))]
pub struct Close {
    /// The case's id.
    case_id: String,
    /// Sends money in suspense back to the payer; the case closes when it has arrived. For a payment
    /// that the network took back, takes it from the merchant's balance.
    #[arg(long)]
    refund: bool,
    /// Money in suspense is back with the payer already: how, and where that can be seen.
    #[arg(long, value_name = "EVIDENCE")]
    refunded: Option<String>,
    /// The money is the merchant's.
    #[arg(long)]
    release: bool,
    /// Releases for this reason, although another charge of the session credited the merchant or
    /// the network took the payment back.
    #[arg(long = "override", value_name = "REASON", conflicts_with_all = ["refund", "refunded"])]
    override_reason: Option<String>,
}

pub async fn run(services: &Services, command: ChargeCommand) -> Result<Value, Failure> {
    let mut operations = ChargeOperationsClient::new(services.charges()?);
    let answer = match command {
        ChargeCommand::Show { reference } => {
            operations
                .show_charge(ShowChargeRequest { reference })
                .await
        }
        ChargeCommand::Resolve(resolve) => {
            operations.resolve_charge(resolve_request(resolve)).await
        }
    };
    Ok(shown_json(answer.map_err(refusal)?.into_inner()))
}

pub async fn list_cases(services: &Services) -> Result<Value, Failure> {
    let mut operations = ChargeOperationsClient::new(services.charges()?);
    let answer = operations.list_cases(ListCasesRequest {}).await;
    let cases = answer.map_err(refusal)?.into_inner().cases;
    Ok(cases.into_iter().map(case_json).collect())
}

pub async fn run_case(services: &Services, command: CaseCommand) -> Result<Value, Failure> {
    let CaseCommand::Close(close) = command;
    let action = match (close.refund, &close.refunded) {
        (true, _) => Action::Refund,
        (false, Some(_)) => Action::Refunded,
        (false, None) => Action::Release,
    };
    let request = CloseCaseRequest {
        case_id: close.case_id,
        action: action.into(),
        override_reason: close.override_reason,
        evidence: close.refunded,
    };
    let mut operations = ChargeOperationsClient::new(services.charges()?);
    let answer = operations.close_case(request).await;
    Ok(case_json(answer.map_err(refusal)?.into_inner()))
}

pub async fn balance(services: &Services, merchant_id: String) -> Result<Value, Failure> {
    let mut charges = ChargeOperationsClient::new(services.charges()?);
    let answer = charges
        .get_balance(GetBalanceRequest {
            merchant_id,
            with_suspense: false,
        })
        .await;
    let balance = answer.map_err(refusal)?.into_inner();
    let shown = |of: Vec<proto::money::Money>| -> Value {
        of.into_iter()
            .map(|money| money_json(Some(money)))
            .collect()
    };
    Ok(json!({ "available": shown(balance.available), "reserved": shown(balance.reserved) }))
}

fn resolve_request(resolve: Resolve) -> ResolveChargeRequest {
    let outcome = match resolve.failed {
        Some(reason) => Outcome::FailedReason(reason),
        None => Outcome::Settled(resolve.settled),
    };
    ResolveChargeRequest {
        reference: resolve.reference,
        outcome: Some(outcome),
        evidence: resolve.evidence,
    }
}

/// `{"amount": "25.50", "currency": "GHS"}`; the amount as text, so that no reader rounds it.
pub fn money_json(money: Option<proto::money::Money>) -> Value {
    let Some(money) = money else {
        return Value::Null;
    };
    match Money::try_from(&money) {
        Ok(exact) => json!({
            "amount": exact.to_major().to_string(),
            "currency": money.currency,
        }),
        Err(_) => json!({ "minor_units": money.minor_units, "currency": money.currency }),
    }
}

fn shown_json(shown: ShowChargeResponse) -> Value {
    let evidence: Value = shown.evidence.into_iter().map(evidence_json).collect();
    let postings: Value = shown.postings.into_iter().map(posting_json).collect();
    json!({
        "charge": shown.charge.map(charge_json),
        "state": shown.state,
        "rail": shown.rail,
        "rail_reference": shown.rail_reference,
        "next_query_at": shown.next_query_at,
        "evidence": evidence,
        "postings": postings,
    })
}

fn charge_json(charge: Charge) -> Value {
    let provider = charge.provider().code();
    json!({
        "reference": charge.reference,
        "transaction_id": charge.transaction_id,
        "session_id": charge.session_id,
        "merchant_id": charge.merchant_id,
        "status": charge.status().code(),
        "amount": money_json(charge.amount),
        "provider": provider,
        "failure_reason": charge.failure_reason,
        "created_at": charge.created_at,
        "updated_at": charge.updated_at,
    })
}

pub fn evidence_json(evidence: RailEvidence) -> Value {
    json!({
        "at": evidence.at,
        "action": evidence.action,
        "outcome": evidence.outcome,
        "rail_text": evidence.rail_text,
        "times": evidence.times,
        "last_at": evidence.last_at,
    })
}

pub fn posting_json(posting: Posting) -> Value {
    json!({
        "at": posting.at,
        "kind": posting.kind,
        "account": posting.account,
        "amount": money_json(posting.amount),
    })
}

fn case_json(case: Case) -> Value {
    json!({
        "case_id": case.case_id,
        "kind": case.kind().code(),
        "reference": case.reference,
        "detail": case.detail,
        "suspense": money_json(case.suspense),
        "opened_at": case.opened_at,
        "closed_at": case.closed_at,
        "refund_id": case.refund_id,
    })
}
