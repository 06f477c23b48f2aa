//! A small storm, on the tests' stores or on embedded ones.

use crate::{baselines::store_flags, targets::reported};

/// `reported` fails if the command does, which it does if a promise is broken.
#[test]
fn no_promise_is_broken_in_a_storm() {
    let stores = store_flags().into_iter().flatten();
    let stores: Vec<String> = stores.collect();
    let mut brief = vec!["--movements=200", "--clients=10", "--kill-every=1s"];
    brief.extend(stores.iter().map(String::as_str));
    let storm = reported(&["storm", "--within=2m"], &brief);
    assert!(storm["movements"].as_u64() >= Some(200), "{storm}");
    assert!(storm["posted"]["SETTLEMENT"].as_u64() > Some(0), "{storm}");
    assert!(storm["posted"]["RETURN"].as_u64() > Some(0), "{storm}");
    let killed = storm["kills"].as_object().unwrap();
    assert!(!killed.is_empty(), "{storm}");
}
