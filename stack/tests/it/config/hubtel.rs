//! Hubtel's settings, all of which are optional and none of which means anything alone.

use tempfile::TempDir;

use super::{CANARY, Settings, good, run, with};

const CREDENTIALS: [&str; 4] = [
    "HUBTEL_API_ID",
    "HUBTEL_API_KEY",
    "HUBTEL_POS_SALES_ID",
    "HUBTEL_PREPAID_DEPOSIT_ID",
];

/// What charges-svc and railsim both have.
pub fn account() -> [(&'static str, String); 4] {
    let [id, key, collects, pays] = CREDENTIALS;
    [
        (id, format!("{CANARY}7f9e")),
        (key, format!("{CANARY}6f9e8d7c6b5a4")),
        (collects, "2000001".to_owned()),
        (pays, "3000001".to_owned()),
    ]
}

/// Settings of charges-svc from before there was Hubtel.
fn without(folder: &TempDir) -> Settings {
    let settings = good("charges-svc", folder);
    let is_older = |(name, _): &(String, String)| !name.starts_with("HUBTEL_");
    settings.into_iter().filter(is_older).collect()
}

/// Checks that there is one complaint, about this variable.
async fn check_refused(settings: &Settings, variable: &str, wants: &str) {
    let ended = run("charges-svc", settings, &["config"]).await;
    let [line] = ended.refusals()[..] else {
        panic!("{variable}: {ended:?}");
    };
    let start = format!("charges-svc: {variable} (--");
    assert!(line.starts_with(&start) && line.contains(wants), "{line}");
}

async fn check_accepted(settings: &Settings) {
    let ended = run("charges-svc", settings, &["config"]).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

#[tokio::test]
async fn settings_from_before_hubtel_are_as_good_as_ever() {
    let folder = TempDir::new().unwrap();
    check_accepted(&without(&folder)).await;
}

#[tokio::test]
async fn a_route_to_hubtel_without_an_account_there_is_refused_at_the_start() {
    let folder = TempDir::new().unwrap();
    for variable in ["RAIL_MTN", "RAIL_TELECEL", "RAIL_AT"] {
        let routed = with(&without(&folder), variable, Some("hubtel"));
        check_refused(&routed, variable, "hubtel has none without HUBTEL_API_ID").await;
        let routed = with(&good("charges-svc", &folder), variable, Some("hubtel"));
        check_accepted(&routed).await;
    }
}

#[tokio::test]
async fn half_an_account_is_refused_and_one_that_only_collects_is_not() {
    let folder = TempDir::new().unwrap();
    let settings = good("charges-svc", &folder);
    for variable in &CREDENTIALS[..3] {
        check_refused(&with(&settings, variable, None), variable, "is not set").await;
        let routed = with(&settings, "RAIL_AT", Some("hubtel"));
        let ended = run("charges-svc", &with(&routed, variable, None), &["config"]).await;
        let wants = format!("hubtel has none without {variable}");
        let is_told = ended.refusals().iter().any(|line| line.contains(&wants));
        assert!(is_told, "{ended:?}");
    }
    check_accepted(&with(&settings, CREDENTIALS[3], None)).await;
    let same = with(&settings, CREDENTIALS[3], Some("2000001"));
    check_refused(&same, CREDENTIALS[3], "another account").await;
    let colon = with(&settings, CREDENTIALS[0], Some("a:b"));
    check_refused(&colon, CREDENTIALS[0], "no colon").await;
    // Hubtel takes no payment without an address to call back.
    let silent = with(&settings, "CALLBACK_BASE_URL", None);
    check_refused(&silent, "CALLBACK_BASE_URL", "is not set").await;
}
