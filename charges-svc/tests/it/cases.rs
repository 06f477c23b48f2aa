//! Cases, and what operators make of them.

use charges_svc::{
    case::{Case, CaseKind},
    charge::Charge,
    ledger, store,
};
use chassis::money::Money;
use db::Insert;
use proto::charges::{CloseCaseRequest, ShowChargeRequest, close_case_request::Action};
use tonic::Status;

use crate::world::World;

/// A case, with its money in suspense if there is any, as the reconciler opens it.
pub async fn given_case(
    world: &World,
    charge: &Charge,
    kind: CaseKind,
    money: Option<Money>,
) -> Case {
    let mut tx = world.db.begin().await.unwrap();
    let about = (charge.facts.transaction_id, &charge.facts.reference);
    let case = Case::new(about, kind, "as seen".to_owned(), money, world.clock.now());
    let opened = store::cases::open(&mut tx, &case).await.unwrap();
    assert_eq!(opened, Some(case.case_id));
    if kind == CaseKind::Mismatch {
        store::charges::mark_mismatched(&mut tx, charge.facts.transaction_id)
            .await
            .unwrap();
    }
    if let Some(money) = money {
        let posting = ledger::suspense(&charge.facts, money).unwrap();
        assert_eq!(
            store::postings::post(&mut tx, &posting, world.clock.now())
                .await
                .unwrap(),
            Insert::Inserted
        );
    }
    tx.commit().await.unwrap();
    case
}

pub async fn close(world: &mut World, case: &Case, action: Action) -> Result<(), Status> {
    let is_back = action == Action::Refunded;
    let request = CloseCaseRequest {
        case_id: case.case_id.to_string(),
        action: action.into(),
        override_reason: None,
        evidence: is_back.then(|| "refunded in the portal, R-1001".to_owned()),
    };
    world.operations.close_case(request).await.map(drop)
}

/// What was posted for a charge, as "kind account amount".
pub async fn posted(world: &mut World, charge: &Charge) -> Vec<String> {
    let request = ShowChargeRequest {
        reference: charge.facts.reference.to_string(),
    };
    let shown = world
        .operations
        .show_charge(request)
        .await
        .unwrap()
        .into_inner();
    let line = |posting: proto::charges::Posting| {
        let account = posting
            .account
            .replace(&charge.facts.merchant_id.to_string(), "M");
        format!(
            "{} {account} {}",
            posting.kind,
            posting.amount.unwrap().minor_units
        )
    };
    shown.postings.into_iter().map(line).collect()
}
