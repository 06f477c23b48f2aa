//! Whole runs, a few: `.ci/run` makes many on PostgreSQL.

use simulation::run;

/// What the environment names, for which a test has no configuration.
#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn server() -> Option<String> {
    std::env::var("TEST_DATABASE_URL")
        .ok()
        .filter(|url| !url.is_empty())
}

async fn keeps_every_promise(seed: u64) {
    let outcome = run(seed, server().as_deref())
        .await
        .expect("the world runs");
    assert!(
        outcome.violations.is_empty(),
        "seed {seed}: {:#?}",
        outcome.violations
    );
    assert!(outcome.charges > 0, "seed {seed} charged nobody");
}

#[tokio::test]
async fn one_seed_breaks_no_promise() {
    keeps_every_promise(1).await;
}

#[tokio::test]
async fn another_seed_breaks_no_promise() {
    keeps_every_promise(2).await;
}
