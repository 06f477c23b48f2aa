//! A process's metrics, for Prometheus.

use std::{sync::OnceLock, thread, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Buckets of every duration, in seconds: from a cached look-up to a rail that times out.
const SECONDS: [Seconds; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

#[expect(
    clippy::disallowed_types,
    reason = "a bucket of a histogram, not money"
)]
type Seconds = f64;

/// How often measured durations are sorted into their buckets, so that they do not pile up in
/// memory while nobody reads `/metrics`.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder, once. Several services may share one process and its metrics.
pub(crate) fn install() -> &'static PrometheusHandle {
    METRICS.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets(&SECONDS)
            .expect("there are buckets");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("something else counts in this process; /metrics stays empty");
        }
        let sorted = handle.clone();
        // A thread, because the process may have several runtimes, as tests do.
        thread::spawn(move || {
            loop {
                thread::sleep(UPKEEP_EVERY);
                sorted.run_upkeep();
            }
        });
        handle
    })
}

/// All metrics of the process, in Prometheus's text format.
pub fn render() -> String {
    let handle = install();
    handle.run_upkeep();
    handle.render()
}
