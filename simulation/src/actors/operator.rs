//! An operator: goes through the open cases now and then, asks the networks' own staff what is in
//! their books, and decides.

use chassis::grpc::{Channel, Reason};
use proto::charges::{
    Case, CaseKind, CloseCaseRequest, DisbursementStatus, ListCasesRequest, ResolveChargeRequest,
    ResolveDisbursementRequest, ShowChargeRequest, ShowDisbursementRequest,
    ShowDisbursementResponse, charge_operations_client::ChargeOperationsClient,
    close_case_request::Action, disbursement_operations_client::DisbursementOperationsClient,
    resolve_charge_request::Outcome, resolve_disbursement_request,
    show_disbursement_response::Disbursement,
};
use tonic::Code;

use super::{Stage, treasury};
use crate::{
    choice::Choices,
    history::{Act, CaseDecision},
    rails::{Payment, Rail, Transfer},
    service::Service,
    time::{HOUR, MINUTE},
};

type Operations = ChargeOperationsClient<Channel>;
type Disbursements = DisbursementOperationsClient<Channel>;

/// When the operator goes through the cases.
const ROUNDS: [u64; 6] = [
    2 * HOUR,
    25 * HOUR,
    49 * HOUR,
    74 * HOUR,
    98 * HOUR,
    101 * HOUR,
];

/// Decides cases until none is left that it can decide.
pub async fn decide(stage: Stage) {
    let mut choices = Choices::of(stage.world.seed, "operator");
    for round in ROUNDS {
        stage
            .world
            .time
            .sleep_until(round + choices.below(10 * MINUTE))
            .await;
        let Ok(channel) = stage.world.inside.channel(Service::Charges) else {
            continue;
        };
        let mut disbursements = DisbursementOperationsClient::new(channel.clone());
        let mut operations = ChargeOperationsClient::new(channel);
        let Ok(listed) = operations.list_cases(ListCasesRequest {}).await else {
            continue;
        };
        for case in listed.into_inner().cases {
            // A decision that is refused, or whose answer is lost, comes up again.
            match is_of_disbursement(&case) {
                true => {
                    let clients = (&mut operations, &mut disbursements);
                    decide_disbursement(&stage, clients, &mut choices, &case)
                        .await
                        .ok()
                }
                false => decide_one(&stage, &mut operations, &mut choices, &case)
                    .await
                    .ok(),
            };
        }
    }
}

async fn decide_one(
    stage: &Stage,
    operations: &mut Operations,
    choices: &mut Choices,
    case: &Case,
) -> Result<(), tonic::Status> {
    let reference = case.reference.clone();
    let shown = operations.show_charge(ShowChargeRequest {
        reference: reference.clone(),
    });
    let shown = shown.await?.into_inner();
    let is_open = !matches!(shown.state.as_str(), "SETTLED" | "FAILED");
    let book = stage.world.rails.book();
    let payment = book
        .iter()
        .find(|payment| payment.reference == shown.rail_reference);
    if is_open {
        let Some(outcome) = outcome(stage, payment, case, &shown) else {
            return Ok(());
        };
        let decision = match outcome {
            Outcome::Settled(_) => CaseDecision::Settled,
            Outcome::FailedReason(_) => CaseDecision::Failed,
        };
        let resolved = operations
            .resolve_charge(ResolveChargeRequest {
                reference: reference.clone(),
                outcome: Some(outcome),
                evidence: "the network's own book".to_owned(),
            })
            .await;
        if may_be_done(&resolved) {
            note(stage, &reference, decision);
        }
        resolved?;
    }
    let release = choices.weighted(&[
        (45, CaseDecision::Refund),
        (50, CaseDecision::Release),
        (5, CaseDecision::Override),
    ]);
    let decision = match case.kind() {
        CaseKind::LateMoney => release,
        // Of what was credited twice only what is there is taken back; the rest waits.
        CaseKind::Mismatch | CaseKind::Reversed | CaseKind::CreditedTwice => CaseDecision::Refund,
        // The first closes itself once the outcome is known, and nobody compares a report here.
        CaseKind::UnknownOutcome
        | CaseKind::FloatEmpty
        | CaseKind::NotSent
        | CaseKind::PaidLate
        | CaseKind::TakenBack
        | CaseKind::ReportUnknown
        | CaseKind::ReportDiffers
        | CaseKind::ReportContradicts
        | CaseKind::ReportTwice
        | CaseKind::ReportLacks
        | CaseKind::Unspecified => return Ok(()),
    };
    let closed = close(operations, case, decision).await;
    let closed = match closed {
        // What the rail took back need not be sent.
        Err(refusal) if is_reversed_already(&refusal) => {
            let mut request = CloseCaseRequest {
                case_id: case.case_id.clone(),
                evidence: Some("the network took it back".to_owned()),
                ..Default::default()
            };
            request.set_action(Action::Refunded);
            operations.close_case(request).await.map(drop)
        }
        closed => closed,
    };
    if may_be_done(&closed) {
        note(stage, &reference, decision);
    }
    closed
}

/// Closes a case as decided. A refund of suspense is sent first.
async fn close(
    operations: &mut Operations,
    case: &Case,
    decision: CaseDecision,
) -> Result<(), tonic::Status> {
    let is_override = decision == CaseDecision::Override;
    let mut request = CloseCaseRequest {
        case_id: case.case_id.clone(),
        override_reason: is_override.then(|| "both deliveries were made".to_owned()),
        ..Default::default()
    };
    request.set_action(match decision {
        CaseDecision::Release | CaseDecision::Override => Action::Release,
        CaseDecision::Settled | CaseDecision::Failed | CaseDecision::Refund => Action::Refund,
    });
    operations.close_case(request).await.map(drop)
}

fn is_reversed_already(refusal: &tonic::Status) -> bool {
    chassis::grpc::reason(refusal).as_deref() == Some(Reason::RefundAfterReversal.code())
}

/// `PO-…` or `RF-…`.
fn is_of_disbursement(case: &Case) -> bool {
    ["PO-", "RF-"]
        .iter()
        .any(|prefix| case.reference.starts_with(prefix))
}

async fn decide_disbursement(
    stage: &Stage,
    (operations, disbursements): (&mut Operations, &mut Disbursements),
    choices: &mut Choices,
    case: &Case,
) -> Result<(), tonic::Status> {
    let id = case.reference.clone();
    let shown = disbursements.show_disbursement(ShowDisbursementRequest { id: id.clone() });
    let shown = shown.await?.into_inner();
    let transfers = stage.world.rails.transfers();
    let mut transfers = transfers.iter();
    let transfer = transfers.find(|transfer| transfer.reference == shown.rail_reference);
    if case.kind() == CaseKind::FloatEmpty {
        let mut rails = Rail::ALL.into_iter();
        if let Some(rail) = rails.find(|rail| rail.name() == shown.rail) {
            treasury::fill_up(stage, rail, choices).await;
        }
    }
    let (status, asked_minor) = how_it_stands(&shown);
    let is_open = matches!(
        status,
        DisbursementStatus::Pending | DisbursementStatus::Processing
    );
    if is_open {
        let is_for_us = matches!(case.kind(), CaseKind::UnknownOutcome | CaseKind::Mismatch);
        let outcome = proven(stage, transfer, asked_minor).filter(|_| is_for_us);
        let Some(outcome) = outcome else {
            return Ok(());
        };
        let decision = match outcome {
            resolve_disbursement_request::Outcome::Completed(_) => CaseDecision::Settled,
            resolve_disbursement_request::Outcome::FailedReason(_) => CaseDecision::Failed,
        };
        let resolved = disbursements
            .resolve_disbursement(ResolveDisbursementRequest {
                id: id.clone(),
                outcome: Some(outcome),
                evidence: "the network's own book".to_owned(),
            })
            .await;
        if may_be_done(&resolved) {
            note(stage, &id, decision);
        }
        resolved?;
    }
    let decision = match case.kind() {
        // Whoever was paid twice gives it back, or the house bears it.
        CaseKind::PaidLate => {
            choices.weighted(&[(50, CaseDecision::Refund), (50, CaseDecision::Release)])
        }
        _ => CaseDecision::Release,
    };
    let closed = close(operations, case, decision).await;
    if may_be_done(&closed) {
        note(stage, &id, decision);
    }
    closed
}

/// The status of a disbursement, and its amount in minor units.
fn how_it_stands(shown: &ShowDisbursementResponse) -> (DisbursementStatus, i64) {
    let (status, amount) = match &shown.disbursement {
        Some(Disbursement::Payout(payout)) => (payout.status(), &payout.amount),
        Some(Disbursement::Refund(refund)) => (refund.status(), &refund.amount),
        None => return (DisbursementStatus::Unspecified, 0),
    };
    let minor = amount.as_ref().map_or(0, |amount| amount.minor_units);
    (status, minor)
}

/// What the book proves of a disbursement, or `None` if it may still change.
fn proven(
    stage: &Stage,
    transfer: Option<&Transfer>,
    asked_minor: i64,
) -> Option<resolve_disbursement_request::Outcome> {
    use resolve_disbursement_request::Outcome;
    let failed = || Outcome::FailedReason("RAIL_ERROR".to_owned());
    let Some(transfer) = transfer else {
        return Some(failed());
    };
    if transfer.paid_minor() == asked_minor {
        return Some(Outcome::Completed(true));
    }
    let is_final = transfer.paid_minor() != 0 || !stage.world.rails.may_change(transfer);
    is_final.then(failed)
}

/// Whether it may have been done: a lost answer, or one about a lost commit, can hide that it was.
fn may_be_done<T>(answer: &Result<T, tonic::Status>) -> bool {
    let refusals = [
        Code::FailedPrecondition,
        Code::NotFound,
        Code::InvalidArgument,
    ];
    answer
        .as_ref()
        .err()
        .is_none_or(|refusal| !refusals.contains(&refusal.code()))
}

/// What the book proves, or `None` if nothing yet.
fn outcome(
    stage: &Stage,
    payment: Option<&Payment>,
    case: &Case,
    shown: &proto::charges::ShowChargeResponse,
) -> Option<Outcome> {
    let asked = shown
        .charge
        .as_ref()
        .and_then(|charge| charge.amount.as_ref())?;
    let failed = || Outcome::FailedReason("PAYER_TIMEOUT".to_owned());
    let Some(payment) = payment else {
        return Some(failed());
    };
    let debited: i64 = payment.debits.iter().map(|debit| debit.amount_minor).sum();
    if debited == asked.minor_units && case.kind() != CaseKind::Mismatch {
        return Some(Outcome::Settled(true));
    }
    // Nothing can change there any more, so "never debited" is the truth.
    (debited != 0 || stage.world.rails.is_settled()).then(failed)
}

fn note(stage: &Stage, reference: &str, what: CaseDecision) {
    stage.history.act(Act {
        at: stage.world.time.now(),
        reference: reference.to_owned(),
        what,
    });
}
