//! One process of a service: its own runtime on its own thread, whose time is paused and stepped
//! by the world. Dropping the runtime, wherever its tasks wait, is the crash.

use std::{net::SocketAddr, sync::mpsc, thread, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Timestamp},
    error_chain::chain,
    shutdown::Shutdown,
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, RuntimeMetrics},
    sync::{mpsc as commands, oneshot},
};

/// How a replica's host clock differs from the world's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skew {
    pub ahead_ms: i64,
    /// Microseconds that it gains in a second.
    pub drift_ppm: i64,
}

/// A running replica.
pub struct Replica {
    pub addresses: Vec<SocketAddr>,
    pub clock: Clock,
    metrics: RuntimeMetrics,
    commands: commands::UnboundedSender<Command>,
    thread: Option<thread::JoinHandle<anyhow::Result<()>>>,
}

enum Command {
    Advance(Duration, mpsc::SyncSender<()>),
    Crash,
}

/// What a replica is started with.
pub struct Start {
    pub name: String,
    pub now: Timestamp,
    pub skew: Skew,
    /// Number of sockets that it listens on.
    pub sockets: usize,
    /// Its place in the world, and whom to tell if it ends by itself.
    pub place: usize,
    pub ended: commands::UnboundedSender<usize>,
}

/// What a service gets to run with: its sockets, its clock, and the signal to stop.
pub struct Host {
    pub listeners: Vec<TcpListener>,
    pub clock: Clock,
    pub shutdown: Shutdown,
}

struct StartedReplica {
    addresses: Vec<SocketAddr>,
    clock: Clock,
    metrics: RuntimeMetrics,
}

impl Replica {
    /// Starts `serve` on a thread of its own; returns once its sockets are bound.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made.
    pub async fn start<S, F>(start: Start, serve: S) -> anyhow::Result<Self>
    where
        S: FnOnce(Host) -> F + Send + 'static,
        F: Future<Output = anyhow::Result<()>>,
    {
        let (commands, orders) = commands::unbounded_channel();
        let (begun, has_begun) = oneshot::channel();
        let name = start.name.clone();
        let (place, told) = (start.place, start.ended.clone());
        let body = move || {
            let ended = run(start, begun, orders, serve);
            if let Err(error) = &ended {
                tracing::warn!(
                    error = %chain(error.as_ref()),
                    place,
                    "a replica ended by itself"
                );
                // Once the world has ended there is nobody to tell.
                told.send(place).ok();
            }
            ended
        };
        let thread = thread::Builder::new().name(name).spawn(body)?;
        let begun: StartedReplica = has_begun.await.context("the replica did not begin")?;
        Ok(Self {
            addresses: begun.addresses,
            clock: begun.clock,
            metrics: begun.metrics,
            commands,
            thread: Some(thread),
        })
    }

    /// Steps this replica's time. The receiver hears when it has.
    pub fn advance(&self, by: Duration) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::sync_channel(1);
        // A dead replica takes no steps, and its end of the channel is dropped.
        self.commands.send(Command::Advance(by, done)).ok();
        is_done
    }

    /// A count that stays the same while nothing happens, or `None` if something is running.
    pub fn rests(&self) -> Option<u64> {
        if self
            .thread
            .as_ref()
            .is_none_or(thread::JoinHandle::is_finished)
        {
            return Some(0);
        }
        parked(&self.metrics)
    }

    /// Ends it wherever it is, as SIGKILL would. Cut its links first, so that nobody sees what it
    /// still does.
    ///
    /// # Errors
    /// The service had ended by itself before, with this error.
    pub async fn crash(mut self) -> anyhow::Result<()> {
        self.commands.send(Command::Crash).ok();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.unwrap_or_else(|_| anyhow::bail!("the replica panicked"))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.commands.send(Command::Crash).ok();
    }
}

/// A count that stays the same while a single-threaded runtime rests, or `None` if it is working.
pub fn parked(metrics: &RuntimeMetrics) -> Option<u64> {
    let count = metrics.worker_park_unpark_count(0);
    // Odd means parked (tokio, `worker_park_unpark_count`).
    (count % 2 == 1).then_some(count)
}

fn run<S, F>(
    start: Start,
    begun: oneshot::Sender<StartedReplica>,
    mut orders: commands::UnboundedReceiver<Command>,
    serve: S,
) -> anyhow::Result<()>
where
    S: FnOnce(Host) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    // An idle paused runtime moves its own time forward unless a blocking task is running.
    let (release, held) = mpsc::channel::<()>();
    runtime.spawn_blocking(move || held.recv().is_ok());
    let ended = runtime.block_on(async {
        let mut listeners = Vec::new();
        for _ in 0..start.sockets {
            listeners.push(TcpListener::bind("127.0.0.1:0").await?);
        }
        let addresses = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<Result<_, _>>()?;
        let clock = Clock::simulated(start.now, start.skew.ahead_ms, start.skew.drift_ppm);
        let metrics = tokio::runtime::Handle::current().metrics();
        let told = StartedReplica {
            addresses,
            clock: clock.clone(),
            metrics,
        };
        if begun.send(told).is_err() {
            return Ok(());
        }
        let host = Host {
            listeners,
            clock,
            shutdown: Shutdown::new(),
        };
        let served = serve(host);
        tokio::pin!(served);
        loop {
            tokio::select! {
                ended = &mut served => return ended,
                order = orders.recv() => match order {
                    Some(Command::Advance(by, done)) => {
                        tokio::time::advance(by).await;
                        // The caller may have gone.
                        done.send(()).ok();
                    }
                    Some(Command::Crash) | None => return Ok(()),
                }
            }
        }
    });
    drop(release);
    runtime.shutdown_background();
    ended
}
