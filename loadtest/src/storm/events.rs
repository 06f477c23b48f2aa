//! The promise about events: each end of a charge, a payout or a refund has one, and the feed lists
//! all of them, numbered from 1 without gaps.

use std::collections::HashMap;

use super::{
    feed::{Numbered, Seen},
    store::Records,
    verdict::Verdict,
};

/// Holds what all feeds list against what has ended. `followed`: what readers saw of the same feeds
/// while processes were killed.
pub fn check(
    verdict: &mut Verdict,
    records: &Records,
    listed: &[Seen],
    followed: &[Seen],
    stored: u64,
) {
    let mut told: HashMap<String, Vec<String>> = HashMap::new();
    let mut count = 0_u64;
    for (listed, followed) in listed.iter().zip(followed) {
        verdict.gaps.extend(listed.gaps.iter().cloned());
        verdict.gaps.extend(followed.gaps.iter().cloned());
        if listed.events != followed.events {
            let (all, seen) = (listed.events.len(), followed.events.len());
            let what = format!("a reader saw {seen} events of {all}, or others");
            verdict.gaps.insert(what);
        }
        for event in &listed.events {
            count += 1;
            let (about, kind) = read(event);
            told.entry(about).or_default().push(kind);
        }
    }
    if stored != count {
        let what = format!("{stored} events are stored, and {count} are listed");
        verdict.gaps.insert(what);
    }
    for (about, kind) in ends(records) {
        match told.get(&about).map(Vec::as_slice) {
            Some([one]) if *one == kind => {}
            Some([one]) => {
                let what = format!("{about}: the event is {one}, and it is {kind}");
                verdict.lost.insert(what);
            }
            None | Some([]) => {
                verdict.lost.insert(format!("{about}: no {kind}"));
            }
            Some(many) => {
                verdict.doubled.insert(format!("{about}: {many:?}"));
            }
        }
    }
}

/// What has ended, with the event that tells it.
fn ends(records: &Records) -> impl Iterator<Item = (String, String)> {
    let charges = records.charges.iter().filter_map(|charge| {
        let kind = match charge.state.as_str() {
            "SETTLED" => "payment.success",
            "FAILED" => "payment.failed",
            _ => return None,
        };
        Some((charge.tx_id_display.clone(), kind.to_owned()))
    });
    let disbursements = records.disbursements.iter().filter_map(|one| {
        let outcome = match one.state.as_str() {
            "COMPLETED" => "success",
            "FAILED" => "failed",
            _ => return None,
        };
        let kind = format!("{}.{outcome}", one.kind.to_lowercase());
        Some((one.shown_id.clone(), kind))
    });
    charges.chain(disbursements)
}

/// What an event is about, and its type.
fn read(Numbered { event, .. }: &Numbered) -> (String, String) {
    let fields = ["payout_id", "refund_id", "tx_id_display"];
    let mut about = fields
        .iter()
        .filter_map(|field| event["data"][field].as_str());
    let about = about.next().unwrap_or_default().to_owned();
    let kind = event["type"].as_str().unwrap_or_default().to_owned();
    (about, kind)
}
