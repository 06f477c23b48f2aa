//! How a process starts and ends: it reads and checks its settings before anything else, and
//! reports each problem on one line.

use std::{
    any::TypeId,
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::{
    Arg, ArgMatches, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
    value_parser,
};
use ipnet::IpNet;
use reqwest::Url;
use tokio::runtime::{self, Runtime};

use super::{Mode, Refusals, SettingsError, print};
use crate::{admin, clock::Timestamp, money::Currency};

/// The exit code of a process that refuses its settings: EX_CONFIG of sysexits.h.
pub const REFUSED: u8 = 78;

/// The argument for the number of threads.
const WORKER_THREADS: &str = "worker_threads";

/// The settings of a process.
pub trait Settings: Parser {
    fn mode(&self) -> Mode;

    /// Refuses what cannot work or is not allowed in production. Reads files and tries this
    /// machine's addresses, but calls nothing over a network.
    fn check(&self, refusals: &mut Refusals);
}

/// What a process takes on its command line: its settings, and how many threads it runs on.
pub fn command<C: Settings>() -> clap::Command {
    let threads = Arg::new(WORKER_THREADS)
        .long("worker-threads")
        .env("TOKIO_WORKER_THREADS")
        .value_parser(value_parser!(NonZeroUsize))
        .help(
            "Threads that work on requests. Without it, half as many as the machine, or the \
             container's limit, has processors: handing work from thread to thread costs more \
             than a second one gains while the processors are shared with other processes",
        );
    C::command().arg(threads)
}

/// The entry point of every process: reads its settings from flags and environment, handles what
/// all processes share (`--help`, `config`, `healthcheck`), and otherwise calls `run`.
///
/// Problems go to stderr, one line each, and end the process: with [`REFUSED`] if its settings are
/// at fault, otherwise with 1.
pub fn main<C: Settings>(run: impl AsyncFnOnce(C) -> anyhow::Result<()>) -> ExitCode {
    let mut command = command::<C>();
    // Completes the arguments, so that they print.
    command.build();
    let name = command.get_name().to_owned();
    let (config, matches) = match read::<C>() {
        Ok(read) => read,
        Err(error) if !error.use_stderr() => {
            // Asked for, such as `--help`. If stdout is gone, nobody can be told.
            return error
                .print()
                .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        Err(error) => return ended(&name, Err(SettingsError(lines(&command, &error)).into())),
    };
    match runtime(&matches) {
        Ok(runtime) => runtime.block_on(start(&command, &name, config, &matches, run)),
        Err(error) => ended(&name, Err(error.into())),
    }
}

fn runtime(matches: &ArgMatches) -> io::Result<Runtime> {
    let wanted = matches.get_one(WORKER_THREADS).copied();
    let threads = wanted.map_or_else(|| processors() / 2, NonZeroUsize::get);
    runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .enable_all()
        .build()
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

async fn start<C: Settings>(
    command: &clap::Command,
    name: &str,
    config: C,
    matches: &ArgMatches,
    run: impl AsyncFnOnce(C) -> anyhow::Result<()>,
) -> ExitCode {
    let mut refusals = Refusals::new(config.mode());
    config.check(&mut refusals);
    let found = refusals.found().iter();
    let refused: Vec<String> = found
        .map(|refusal| print::refusal(command, matches, refusal))
        .collect();
    let asked = matches.subcommand_name();
    if asked == Some("config") {
        let text = print::settings(command, matches);
        // `print!` would panic if the reader has closed the pipe.
        if let Err(error) = io::stdout().write_all(text.as_bytes()) {
            return ended(name, Err(error.into()));
        }
    }
    if !refused.is_empty() {
        return ended(name, Err(SettingsError(refused).into()));
    }
    match asked {
        Some("config") => ExitCode::SUCCESS,
        Some("healthcheck") => ended(name, healthcheck(matches).await),
        _ => ended(name, run(config).await),
    }
}

/// Checks settings that did not pass through [`main`], such as those of the local stack.
///
/// # Errors
/// The process would refuse them.
pub fn check(config: &impl Settings) -> Result<(), SettingsError> {
    let mut refusals = Refusals::new(config.mode());
    config.check(&mut refusals);
    refusals.into_result()
}

fn read<C: Settings>() -> Result<(C, ArgMatches), clap::Error> {
    let matches = command::<C>().try_get_matches()?;
    Ok((C::from_arg_matches(&matches)?, matches))
}

async fn healthcheck(matches: &ArgMatches) -> anyhow::Result<()> {
    let address = matches.try_get_one::<SocketAddr>("admin_listen");
    let Some(address) = address.ok().flatten() else {
        let wants = "the address to ask, such as 127.0.0.1:9090";
        return Err(SettingsError::new(format!("ADMIN_LISTEN is not set; wants {wants}")).into());
    };
    println!("{}", admin::ask_ready(*address).await?);
    Ok(())
}

/// Reports what went wrong. Returns the exit code.
fn ended(name: &str, result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if let Some(SettingsError(lines)) = error.downcast_ref() {
        for line in lines {
            eprintln!("{name}: {line}");
        }
        return REFUSED.into();
    }
    let line = format!("{error:#}").replace(['\n', '\r'], " ");
    eprintln!("{name}: {line}");
    ExitCode::FAILURE
}

/// What clap refused, in our words.
fn lines(command: &clap::Command, error: &clap::Error) -> Vec<String> {
    let arg = |text: &String| command.get_arguments().find(|arg| arg.to_string() == *text);
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) {
                let line = |arg| format!("{} is not set; wants {}", print::name(arg), wants(arg));
                return missing.iter().filter_map(arg).map(line).collect();
            }
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let found = value(ContextKind::InvalidArg).and_then(arg);
            if let (Some(arg), Some(got)) = (found, value(ContextKind::InvalidValue)) {
                let got = print::masked(arg, got);
                let name = print::name(arg);
                return vec![format!("{name} got \"{got}\"; wants {}", wants(arg))];
            }
        }
        _ => {}
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    vec![format!("{first}; see --help")]
}

/// What a setting must be: what its type looks like, or else what the setting is for.
fn wants(arg: &Arg) -> String {
    let possible = arg.get_possible_values();
    let parser = arg.get_value_parser().type_id();
    let is = |id| parser == id;
    let words = if is(TypeId::of::<SocketAddr>()) {
        "an address with its port, such as 127.0.0.1:8080"
    } else if is(TypeId::of::<Duration>()) {
        "a time with its unit, such as 300ms, 30s or 24h"
    } else if is(TypeId::of::<bool>()) {
        "true or false"
    } else if is(TypeId::of::<u32>()) || is(TypeId::of::<usize>()) {
        "a whole number"
    } else if is(TypeId::of::<NonZeroUsize>()) {
        "a whole number, at least 1"
    } else if is(TypeId::of::<Url>()) {
        "a URL, such as https://pay.example.com"
    } else if is(TypeId::of::<IpNet>()) {
        "a network, such as 10.0.0.0/8"
    } else if is(TypeId::of::<PathBuf>()) {
        "a path"
    } else if is(TypeId::of::<Timestamp>()) {
        "a moment, such as 2026-11-01T00:00:00.000Z"
    } else if is(TypeId::of::<Currency>()) {
        "a currency's code, such as GHS"
    } else if !possible.is_empty() {
        let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
        return names.join(" or ");
    } else {
        return purpose(arg);
    };
    match arg.get_value_delimiter() {
        Some(',') => format!("{words}, or several with commas between them"),
        _ => words.to_owned(),
    }
}

/// A setting's help, fit to continue a sentence: its first letter is lowered unless it begins an
/// acronym.
fn purpose(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let mut letters = help.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), letters.as_str())
        }
        _ => help,
    }
}
