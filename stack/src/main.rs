//! `cargo run`: starts the local stack, and with `--demo` takes one payment of each kind.

use std::{fs, future::pending, io, path::Path, process::ExitCode};

use anyhow::Context as _;
use chassis::{config, shutdown::Shutdown, telemetry};
use stack::{Stack, Story, config::Config, demo};

fn main() -> ExitCode {
    config::main(run)
}

async fn run(config: Config) -> anyhow::Result<()> {
    let _telemetry = telemetry::start("stack", &config.telemetry)?;
    let stop = Shutdown::on_signals();
    if let Some(file) = &config.ready_file {
        remove_if_present(file).context("the old ready file cannot be removed")?;
    }
    let mut stack = Stack::start(&config).await?;
    stack
        .let_in()
        .await
        .context("nobody is let into the dashboard")?;
    // Before anybody can make something happen.
    let story = Story::begin(&stack.ready, stack.clock.clone()).await?;
    if let Some(file) = &config.ready_file {
        stack
            .ready
            .write(file)
            .context("the ready file cannot be written")?;
    }
    if config.demo {
        let result = demo::run(&stack.ready).await;
        stack.stop().await?;
        return result;
    }
    stack.ready.print();
    let telling = async {
        story.tell().await;
        // Nobody reads it any more, but the services go on.
        pending().await
    };
    tokio::select! {
        () = stop.wait() => stack.stop().await,
        error = stack.failed() => Err(error),
        () = telling => Ok(()),
    }
}

/// Removes a file that may not exist.
fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
