//! A small storm, on the tests' stores or on embedded ones.

use crate::{baselines::store_flags, targets::reported};

/// `reported` fails if the command does, which it does if a promise is broken.
#[test]
fn no_promise_is_broken_in_a_storm() {
    let stores = store_flags().into_iter().flatten();
    let stores: Vec<String> = stores.collect();
    let mut brief = vec!["--movements=200", "--clients=10", "--kill-every=1s"];
    brief.extend(stores.iter().map(String::as_str));
    // Paystack repeats a webhook that met a killed gateway only after three minutes.
    let storm = reported(&["storm", "--within=10m"], &brief);
    assert!(storm["movements"].as_u64() >= Some(200), "{storm}");
    for kind in ["SETTLEMENT", "DISBURSEMENT", "RETURN"] {
        assert!(
            storm["posted"][kind].as_u64() > Some(0),
            "{kind} in {storm}"
        );
    }
    let ended = storm["ended"].as_object().unwrap().keys();
    let refunds = ["refund COMPLETED", "refund FAILED"];
    let refunds = ended.filter(|what| refunds.contains(&what.as_str()));
    assert!(refunds.count() > 0, "{storm}");
    let killed = storm["kills"].as_object().unwrap();
    assert!(!killed.is_empty(), "{storm}");
}
