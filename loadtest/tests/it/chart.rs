//! The chart, as browsers read it.

use std::time::Duration;

use loadtest::{
    chart,
    plan::{Pace, Plan},
    report::Report,
    tally::Tally,
    usage::Usage,
};

fn report(name: &str, rate: u64) -> Report {
    let plan = Plan {
        name: name.to_owned(),
        pace: Pace::Rate(rate),
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
    };
    let mut tally = Tally::new().unwrap();
    for n in 1..=rate {
        tally.record(Duration::from_micros(n * 100), Ok(()));
    }
    Report::new(&plan, plan.duration, &tally, Usage::default())
}

/// Asserts that each element ends, in order.
fn check_well_formed(svg: &str) {
    let mut open = Vec::new();
    for element in svg.split('<').skip(1) {
        let (tag, _) = element.split_once('>').expect("an element ends");
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_chart_is_well_formed_and_has_a_point_for_each_rate() {
    let reports = [report("a < b & c", 300), report("a", 100), report("a", 200)];
    let svg = chart::draw(&reports);
    check_well_formed(&svg);
    let curves: Vec<&str> = svg
        .lines()
        .filter(|line| line.starts_with("<polyline"))
        .collect();
    assert_eq!(curves.len(), 3);
    for curve in curves {
        let points = curve.split('"').nth(1).unwrap();
        assert_eq!(points.split(' ').count(), 3, "{curve}");
    }
}

#[test]
fn a_chart_of_nothing_is_well_formed() {
    check_well_formed(&chart::draw(&[]));
}

#[test]
fn a_report_shows_the_figures_of_its_requests() {
    let report = report("a", 1_000);
    assert_eq!(report.requests, 1_000);
    assert_eq!(format!("{:.0}", report.rate), "1000");
    assert_eq!(format!("{:.0}", report.latency.p50), "50");
    assert_eq!(format!("{:.0}", report.latency.p99), "99");
    assert_eq!(format!("{:.0}", report.latency.max), "100");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["offered"], 1_000);
    assert!(json["latency"]["p99"].is_number());
}
