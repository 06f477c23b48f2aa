//! What the paces measure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use loadtest::{
    engine::{Load, measure},
    plan::{Code, Outcome, Pace, Plan},
    thousandths::Thousandths,
    usage::Meter,
};

/// A server that stands still, once.
struct Stalling {
    from: Instant,
    until: Instant,
}

impl Stalling {
    /// From 0.3 s from now until 0.8 s from now.
    fn soon() -> Self {
        let now = Instant::now();
        Self {
            from: now + Duration::from_millis(300),
            until: now + Duration::from_millis(800),
        }
    }
}

impl Load for Stalling {
    async fn request(&self, _n: u64) -> Outcome {
        if (self.from..self.until).contains(&Instant::now()) {
            tokio::time::sleep_until(self.until.into()).await;
        }
        Ok(())
    }
}

fn plan(pace: Pace) -> Plan {
    Plan {
        name: "test".to_owned(),
        pace,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
    }
}

#[tokio::test]
async fn an_open_loop_shows_a_stall_in_every_request_that_should_have_started() {
    let load = Arc::new(Stalling::soon());
    let meter = Meter::new(Vec::new()).unwrap();
    let report = measure(load, &plan(Pace::Rate(200)), &meter).await.unwrap();
    assert_eq!(report.requests, 200);
    // Half of the requests fall into half a second of standing still.
    assert!(report.latency.p90 >= Thousandths(200_000), "{report}");
    assert!(report.latency.p99 >= Thousandths(300_000), "{report}");
}

/// Fails every third request.
struct Thirds;

impl Load for Thirds {
    async fn request(&self, n: u64) -> Outcome {
        match n % 3 {
            0 => Err(Code::Borrowed("503 OVERLOADED")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn failures_are_counted_by_code_and_apart_from_latency() {
    let meter = Meter::new(Vec::new()).unwrap();
    let report = measure(Arc::new(Thirds), &plan(Pace::Rate(300)), &meter)
        .await
        .unwrap();
    assert_eq!(report.requests, 200);
    assert_eq!(report.errors["503 OVERLOADED"].requests, 100);
    assert_eq!(report.errors.len(), 1);
}

/// Remembers the most requests that ran at once.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Load for Crowd {
    async fn request(&self, _n: u64) -> Outcome {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn a_closed_loop_keeps_as_many_in_flight_as_planned() {
    let meter = Meter::new(Vec::new()).unwrap();
    let load = Arc::new(Crowd::default());
    let report = measure(load.clone(), &plan(Pace::InFlight(7)), &meter)
        .await
        .unwrap();
    assert_eq!(load.most.load(Ordering::SeqCst), 7);
    assert!(report.requests > 7);
}
