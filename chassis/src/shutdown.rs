//! How a process stops: a signal that everything watches, and tasks that must end first.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Tells everything that holds a clone, once, that the process is stopping.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins on SIGTERM or SIGINT.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if signal handlers cannot be installed.
    pub fn on_signals() -> Self {
        use tokio::signal::unix::{SignalKind, signal};

        let shutdown = Self::new();
        let listen = |kind| signal(kind).expect("a process may handle its signals");
        let mut terminate = listen(SignalKind::terminate());
        let mut interrupt = listen(SignalKind::interrupt());
        let begin = shutdown.clone();
        spawn_detached(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            begin.begin();
        });
        shutdown
    }

    pub fn begin(&self) {
        self.0.cancel();
    }

    /// Runs one of the things that a process serves. If it fails, the process stops: the others are
    /// not cut off, but finish what they have in hand.
    pub async fn begin_on_failure<T>(
        &self,
        serving: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let served = serving.await;
        if served.is_err() {
            self.begin();
        }
        served
    }

    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Tasks that outlive the call that started them, and that the process waits for before it ends.
#[derive(Clone, Debug, Default)]
pub struct Tasks(TaskTracker);

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task in the span of the caller.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        use tracing::Instrument;
        self.0.spawn(task.in_current_span());
    }

    /// Starts a task that belongs to no caller's trace.
    pub fn spawn_apart(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Waits up to `deadline` until every task has ended. Tasks that are left end with the
    /// process, as in a crash.
    pub async fn drain(&self, deadline: Duration) {
        self.0.close();
        if tokio::time::timeout(deadline, self.0.wait()).await.is_err() {
            tracing::warn!(left = self.0.len(), "tasks did not end before the deadline");
        }
    }
}

/// Starts a task that lives as long as the process and holds nothing that could be lost.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that starts a task without a tracker"
)]
pub(crate) fn spawn_detached(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_fails_stops_the_others_in_order_and_is_told() {
        let shutdown = Shutdown::new();
        let failing = async { anyhow::bail!("its socket is gone") };
        let draining = async {
            shutdown.wait().await;
            anyhow::Ok("finished")
        };
        let (failed, drained) = tokio::join!(
            shutdown.begin_on_failure::<()>(failing),
            shutdown.begin_on_failure(draining),
        );
        assert!(failed.is_err());
        assert_eq!(drained.ok(), Some("finished"));
    }

    #[tokio::test]
    async fn what_ends_well_stops_nothing() {
        let shutdown = Shutdown::new();
        let ended = shutdown.begin_on_failure(async { anyhow::Ok(()) }).await;
        assert!(ended.is_ok() && !shutdown.has_begun());
    }
}
