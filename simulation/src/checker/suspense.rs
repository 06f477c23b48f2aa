//! What disbursements have added to suspense.

use uuid::Uuid;

use super::Findings;
use crate::records::{Case, Disbursement};

/// The cases about a charge or a disbursement.
pub fn cases_of<'e>(
    found: &Findings<'e>,
    subject: Uuid,
) -> impl Iterator<Item = &'e Case> + use<'e> {
    let cases = found.evidence.records.cases.iter();
    cases.filter(move |case| case.transaction_id == subject)
}

/// What a disbursement, and the case about its late payment, have added to suspense.
pub fn in_suspense(found: &Findings<'_>, disbursement: &Disbursement) -> i64 {
    let late = cases_of(found, disbursement.disbursement_id).find(|case| case.kind == "PAID_LATE");
    let subjects = [
        Some(disbursement.disbursement_id),
        late.map(|case| case.case_id),
    ];
    let lines = found.evidence.records.postings.iter();
    let lines =
        lines.filter(|line| line.account == "suspense" && subjects.contains(&Some(line.subject)));
    lines.map(|line| line.amount_minor).sum()
}

/// What was paid late and nobody has determined yet who bears.
pub fn undecided(found: &Findings<'_>, disbursement: &Disbursement) -> i64 {
    let mut cases = cases_of(found, disbursement.disbursement_id);
    match cases.any(|case| case.kind == "PAID_LATE" && case.closed_at.is_none()) {
        true => disbursement.amount_minor,
        false => 0,
    }
}
