//! An operator: goes through the open cases now and then, asks the networks' own staff what is in
//! their books, and decides.

use chassis::grpc::Channel;
use proto::charges::{
    Case, CaseKind, CloseCaseRequest, ListCasesRequest, ResolveChargeRequest, ShowChargeRequest,
    charge_operations_client::ChargeOperationsClient, close_case_request::Action,
    resolve_charge_request::Outcome,
};
use tonic::Code;

use super::Stage;
use crate::{
    choice::Choices,
    history::{Act, CaseDecision},
    rails::Payment,
    service::Service,
    time::{HOUR, MINUTE},
};

type Operations = ChargeOperationsClient<Channel>;

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
        let mut operations = ChargeOperationsClient::new(channel);
        let Ok(listed) = operations.list_cases(ListCasesRequest {}).await else {
            continue;
        };
        for case in listed.into_inner().cases {
            // A decision that is refused, or whose answer is lost, comes up again.
            decide_one(&stage, &mut operations, &mut choices, &case)
                .await
                .ok();
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
        // Those of disbursements, which no actor makes, among them.
        CaseKind::UnknownOutcome
        | CaseKind::FloatEmpty
        | CaseKind::NotSent
        | CaseKind::PaidLate
        | CaseKind::TakenBack
        | CaseKind::Unspecified => return Ok(()),
        CaseKind::LateMoney => release,
        CaseKind::Mismatch | CaseKind::Reversed | CaseKind::CreditedTwice => CaseDecision::Refund,
    };
    let is_override = decision == CaseDecision::Override;
    let mut request = CloseCaseRequest {
        case_id: case.case_id.clone(),
        override_reason: is_override.then(|| "both deliveries were made".to_owned()),
        ..Default::default()
    };
    let action = match decision {
        CaseDecision::Release | CaseDecision::Override => Action::Release,
        _ if case.suspense.is_some() => Action::Refunded,
        CaseDecision::Settled | CaseDecision::Failed | CaseDecision::Refund => Action::Refund,
    };
    if action == Action::Refunded {
        request.evidence = Some("sent back in the network's portal".to_owned());
    }
    request.set_action(action);
    let closed = operations.close_case(request).await;
    if may_be_done(&closed) {
        note(stage, &reference, decision);
    }
    closed.map(drop)
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
