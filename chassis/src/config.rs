//! The settings that processes share, as groups of flags. Every flag has an environment variable;
//! this and the services' own `config.rs` are the only places that read the environment.

mod print;
mod refusals;
mod start;
mod telemetry;
mod tls;

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use clap::{Args, Subcommand, ValueEnum};

pub use print::{flag, settable, variable};
pub use refusals::{Refusals, SettingsError, is_name};
pub use start::{REFUSED, Settings, check, command, main};
pub use telemetry::Telemetry;
pub use tls::Tls;

use crate::http;

/// How strict a process is: production refuses settings that are only for development.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    #[default]
    Development,
    Production,
}

/// What every process can be asked instead of serving.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Prints every setting and where it comes from, secrets masked, and exits: with 0, or with 78
    /// if the process would not start with them.
    Config,
    /// Asks the process with the same ADMIN_LISTEN whether it is ready, and exits: with 0 if it is,
    /// or 1 if not.
    Healthcheck,
}

/// The longest duration that a setting may have: 100 years.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Reads a duration with its unit, such as `300ms`, `30s`, `24h` or `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = humantime::parse_duration(text.trim());
    let duration = duration.map_err(|_| "a time with its unit")?;
    let is_sane = duration <= DURATION_MAX;
    is_sane.then_some(duration).ok_or("at most 100 years")
}

/// Parses a switch. Empty means off, as OpenTelemetry specifies.
fn switch(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" | "" => Ok(false),
        _ => Err("true or false"),
    }
}

/// Where a gRPC service listens.
#[derive(Clone, Debug, Args)]
pub struct Listen {
    /// Address of the gRPC server.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:50051")]
    pub listen: SocketAddr,

    /// Address of `/healthz`, `/readyz` and `/metrics`. Without it, they are not served.
    #[arg(long, env = "ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,

    /// Switches off gRPC reflection, which describes the service to whoever asks. In production it
    /// is always off.
    #[arg(long, env = "NO_REFLECTION", value_parser = switch)]
    pub no_reflection: bool,
}

impl Listen {
    pub fn check(&self, refusals: &mut Refusals) {
        let addresses = [
            ("LISTEN", Some(self.listen)),
            ("ADMIN_LISTEN", self.admin_listen),
        ];
        check_listen(refusals, &addresses);
    }

    /// Whether the service offers gRPC reflection: never in production.
    pub fn reflection(&self, mode: Mode) -> bool {
        mode == Mode::Development && !self.no_reflection
    }
}

/// Where a gRPC service listens to operators.
#[derive(Clone, Debug, Args)]
pub struct OperatorsListen {
    /// Address of the gRPC server for operators (`payctl`), who may do what no merchant may. Without
    /// it, nothing of theirs is served.
    #[arg(long, env = "OPERATORS_LISTEN")]
    pub operators_listen: Option<SocketAddr>,
}

impl OperatorsListen {
    /// Refuses also an address that is taken by `other`.
    pub fn check(&self, other: &Listen, refusals: &mut Refusals) {
        let Some(address) = self.operators_listen else {
            return;
        };
        let variable = "OPERATORS_LISTEN";
        refusals.unless(may_listen(address), variable, MAY_LISTEN);
        let others = [Some(other.listen), other.admin_listen];
        let mut others = others.into_iter().flatten();
        let is_own = !others.any(|other| is_taken_by(address, other));
        refusals.unless(is_own, variable, IS_OWN);
    }
}

const MAY_LISTEN: &str = "an address of this machine that the process may listen on";

const IS_OWN: &str = "an address that is no other's of this process";

/// Refuses addresses that this process cannot listen on, and those that collide with one another.
pub fn check_listen(refusals: &mut Refusals, addresses: &[(&'static str, Option<SocketAddr>)]) {
    let mut others: Vec<SocketAddr> = Vec::new();
    for (variable, address) in addresses {
        let Some(address) = *address else { continue };
        refusals.unless(may_listen(address), variable, MAY_LISTEN);
        let is_own = !others.iter().any(|other| is_taken_by(address, *other));
        refusals.unless(is_own, variable, IS_OWN);
        others.push(address);
    }
}

/// Whether the process may listen there. An address in use is fine: another instance may be
/// stopping. Binds port 0, so as not to take the real port from a process that is just starting. A
/// privileged port is tried itself, since not everybody may bind it.
fn may_listen(address: SocketAddr) -> bool {
    const PRIVILEGED_PORTS: u16 = 1024;
    let mut tried = address;
    if address.port() >= PRIVILEGED_PORTS {
        tried.set_port(0);
    }
    match TcpListener::bind(tried) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::AddrInUse,
    }
}

fn is_taken_by(address: SocketAddr, other: SocketAddr) -> bool {
    let is_any = address.ip().is_unspecified() || other.ip().is_unspecified();
    let is_same_host = is_any || address.ip() == other.ip();
    is_same_host && address.port() == other.port() && address.port() != 0
}

/// Refuses a system without usable CA certificates. For processes that call https:// addresses.
pub fn check_authorities(refusals: &mut Refusals) {
    let is_good = http::client(DURATION_MAX).is_ok();
    let wants =
        "a PEM file of the authorities to trust; not set, those of the system, or of SSL_CERT_DIR";
    refusals.unless(is_good, "SSL_CERT_FILE", wants);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Config {
        #[command(flatten)]
        listen: Listen,
        #[command(flatten)]
        tls: Tls,
        #[command(flatten)]
        telemetry: Telemetry,
        #[arg(long, value_parser = duration, value_delimiter = ',', default_value = "1s,300ms")]
        schedule: Vec<Duration>,
    }

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        Config::try_parse_from(["test"].iter().chain(flags))
    }

    #[test]
    fn durations_have_units_and_come_in_lists() {
        let config = parse(&[]).unwrap();
        assert_eq!(
            config.schedule,
            [Duration::from_secs(1), Duration::from_millis(300)]
        );
        let config = parse(&["--schedule=24h, 1h 30m"]).unwrap();
        assert_eq!(
            config.schedule,
            [Duration::from_hours(24), Duration::from_mins(90)]
        );
        for wrong in ["5", "-5s", "s", "1s,,2s", ""] {
            assert!(parse(&["--schedule", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn certificates_come_together_or_not_at_all() {
        assert!(parse(&["--tls-cert=a", "--tls-key=b", "--tls-ca=c"]).is_ok());
        assert!(parse(&["--tls-cert=a", "--tls-key=b"]).is_err());
        assert!(parse(&["--tls-ca=c"]).is_err());
    }

    #[test]
    fn spans_go_where_the_variables_say_unless_they_are_switched_off() {
        let endpoint = |flags: &[&str]| {
            let config = parse(flags).unwrap();
            config.telemetry.traces_endpoint().map(ToOwned::to_owned)
        };
        let general = "--otel-exporter-otlp-endpoint=http://all";
        let traces = "--otel-exporter-otlp-traces-endpoint=http://traces";
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&["--otel-exporter-otlp-endpoint="]), None);
        assert_eq!(endpoint(&[general]).as_deref(), Some("http://all"));
        assert_eq!(
            endpoint(&[general, traces]).as_deref(),
            Some("http://traces")
        );
        assert_eq!(endpoint(&[general, "--otel-sdk-disabled"]), None);
    }
}
