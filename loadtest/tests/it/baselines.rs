//! Each bare path answers. Those with a store need `TEST_DATABASE_URL` and `TEST_REDIS_URL`.

use crate::targets::{check, reported};

#[test]
fn paths_without_a_store_answer() {
    for path in ["a", "c", "g"] {
        check(&["baseline", path]);
    }
}

/// The URLs of the tests' stores, where there are some.
#[expect(
    clippy::disallowed_methods,
    reason = "a test has no settings but the environment"
)]
pub fn stores() -> Option<(String, String)> {
    let database = std::env::var("TEST_DATABASE_URL").ok()?;
    Some((database, std::env::var("TEST_REDIS_URL").ok()?))
}

/// The flags that name them.
pub fn store_flags() -> Option<[String; 2]> {
    let (database, redis) = stores()?;
    Some([
        format!("--database-url={database}"),
        format!("--redis-url={redis}"),
    ])
}

#[test]
fn paths_with_a_store_answer() {
    let Some([database, redis]) = store_flags() else {
        return;
    };
    for path in ["b", "d", "e", "f", "h", "i", "incr", "insert"] {
        check(&["baseline", path, &database, &redis]);
    }
}

#[test]
fn a_comparison_has_each_row_that_is_asked_for() {
    let Some([database, redis]) = store_flags() else {
        return;
    };
    let brief = ["--rounds=2", "--duration=1s", "--warm-up=0s"];
    let rows = reported(&["compare", "--rows=8,10", &database, &redis], &brief);
    let rows = rows.as_array().unwrap();
    // limitador may be installed or not.
    let bare = rows.iter();
    let bare = bare.filter(|row| row["beside"]["name"] != "limitador");
    let numbers = bare.map(|row| &row["number"]);
    assert_eq!(numbers.collect::<Vec<_>>(), [8, 10, 10]);
    assert_eq!(rows[0]["beside"]["name"], "tonic + INCR");
}

#[test]
fn growth_is_measured_on_tables_of_each_size() {
    let Some([database, redis]) = store_flags() else {
        return;
    };
    // Few at once: each must end within the second.
    let brief = [
        "--rounds=1",
        "--duration=1s",
        "--warm-up=0s",
        "--settling=0s",
        "--in-flight=2",
    ];
    let sizes = "--rows=3000,6000";
    let grown = reported(&["growth", sizes, &database, &redis], &brief);
    let curve = grown["curve"].as_array().unwrap();
    let rows = curve.iter().map(|point| &point["rows"]);
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [3000, 6000, 3000, 6000, 3000, 6000]
    );
    assert!(!grown["settings"].as_array().unwrap().is_empty());
}
