//! The settings that processes share, as groups of flags. Every flag has an environment variable;
//! this and the services' own `config.rs` are the only places that read the environment.

mod print;
mod refusals;
mod start;

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};

pub use print::{flag, settable, variable};
pub use refusals::{Refusals, Refused};
pub use start::{REFUSED, Settings, check, main};

use crate::{grpc, telemetry};

/// What a process takes for granted: on a developer's machine most things go, in production
/// nothing that is only for trying out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    #[default]
    Development,
    Production,
}

/// What every process can be asked instead of serving.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Prints every setting with where it comes from, secrets masked, and ends: with 78 if the
    /// process would not start with them.
    Config,
    /// Asks the process that runs with the same ADMIN_LISTEN whether it is ready, and ends: with 0
    /// if it is, 1 if not.
    Healthcheck,
}

/// Reads a duration with its unit, such as `300ms`, `30s`, `24h` or `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text.trim())
}

/// Reads a switch. Nothing is off, as OpenTelemetry wants it.
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

    /// Address of `/healthz`, `/readyz` and `/metrics`; none if it is left out.
    #[arg(long, env = "ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,

    /// Does not describe the service to whoever asks (gRPC reflection). In production it never
    /// does.
    #[arg(long, env = "NO_REFLECTION", value_parser = switch)]
    pub no_reflection: bool,
}

impl Listen {
    /// Whether the service describes itself.
    pub fn reflection(&self, mode: Mode) -> bool {
        mode == Mode::Development && !self.no_reflection
    }
}

/// Which database a service keeps its records in. Its URLs, which may hold passwords, never print.
#[derive(Clone, Args)]
pub struct Database {
    /// `postgres://…`, or `sqlite://` and a file's path.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,

    /// The same database as the role that owns its tables, for `migrate` alone, which then grants the
    /// role of DATABASE_URL what serving takes; in production `migrate` wants it. A process that
    /// serves needs it not: where its role may make no tables, and always in production, it waits
    /// until `migrate` has run.
    #[arg(long, env = "MIGRATE_DATABASE_URL", hide_env_values = true)]
    pub migrate_database_url: Option<String>,

    /// Connections that this process opens at most.
    #[arg(long, env = "DATABASE_MAX_CONNECTIONS", default_value_t = 16)]
    pub database_max_connections: u32,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("database_max_connections", &self.database_max_connections)
            .finish_non_exhaustive()
    }
}

/// Certificates for mutual TLS between the services. All three or none.
#[derive(Clone, Debug, Default, Args)]
pub struct Tls {
    /// This process's certificate chain, a PEM file. With it, TLS_KEY and TLS_CA, the services
    /// speak TLS among themselves and call each other by https://; without them by http://, also in
    /// production, where network policies must then keep others out.
    #[arg(long, env = "TLS_CERT", requires_all = ["tls_key", "tls_ca"])]
    pub tls_cert: Option<PathBuf>,

    /// This process's private key, a PEM file.
    #[arg(long, env = "TLS_KEY", requires_all = ["tls_cert", "tls_ca"])]
    pub tls_key: Option<PathBuf>,

    /// The authority that signed every service's certificate, a PEM file.
    #[arg(long, env = "TLS_CA", requires_all = ["tls_cert", "tls_key"])]
    pub tls_ca: Option<PathBuf>,
}

impl Tls {
    pub fn check(&self, refusals: &mut Refusals) {
        let files = [
            ("TLS_CERT", &self.tls_cert),
            ("TLS_KEY", &self.tls_key),
            ("TLS_CA", &self.tls_ca),
        ];
        let mut all = true;
        for (variable, file) in files {
            let read = file.as_ref().map(std::fs::read).transpose();
            refusals.unless(read.is_ok(), variable, "a PEM file that can be read");
            all &= read.is_ok();
        }
        let fit = !all || grpc::check_tls(self).is_ok();
        refusals.unless(
            fit,
            "TLS_CERT",
            "a PEM certificate that TLS_KEY is the key of",
        );
    }

    /// The address of another service: http://, or https:// with certificates.
    pub fn check_url(&self, refusals: &mut Refusals, variable: &'static str, url: &str) {
        let wants = "http://name:port, or https://name:port with TLS_CERT, TLS_KEY and TLS_CA";
        // Whether the files are any good is said of them alone.
        let url = match self.tls_ca {
            Some(_) => url.replacen("https:", "http:", 1),
            None => url.to_owned(),
        };
        let is_good = grpc::check_url(&url, &Self::default()).is_ok();
        refusals.unless(is_good, variable, wants);
    }
}

/// What a process tells about itself.
#[derive(Clone, Debug, Args)]
pub struct Telemetry {
    /// What is logged, as tracing's filter: `info`, or `warn,charges_svc=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,

    /// Where spans are exported to by OTLP over gRPC; nowhere if it is left out.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otel_exporter_otlp_endpoint: Option<String>,

    /// As above, for traces alone; it wins.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    pub otel_exporter_otlp_traces_endpoint: Option<String>,

    /// Exports nothing, whatever the endpoints say.
    #[arg(long, env = "OTEL_SDK_DISABLED", value_parser = switch)]
    pub otel_sdk_disabled: bool,
}

impl Telemetry {
    pub fn check(&self, refusals: &mut Refusals) {
        let wants = "a filter such as info or warn,charges_svc=debug";
        refusals.unless(telemetry::is_filter(&self.log), "RUST_LOG", wants);
        let endpoints = [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                &self.otel_exporter_otlp_endpoint,
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                &self.otel_exporter_otlp_traces_endpoint,
            ),
        ];
        for (variable, endpoint) in endpoints {
            let endpoint = endpoint.as_deref().unwrap_or_default();
            let is_good = endpoint.is_empty() || telemetry::is_endpoint(endpoint);
            refusals.unless(
                is_good,
                variable,
                "an address such as http://collector:4317",
            );
        }
    }

    /// Where traces go, if anywhere.
    pub fn traces_endpoint(&self) -> Option<&str> {
        let endpoint = self
            .otel_exporter_otlp_traces_endpoint
            .as_deref()
            .or(self.otel_exporter_otlp_endpoint.as_deref());
        endpoint.filter(|endpoint| !self.otel_sdk_disabled && !endpoint.is_empty())
    }
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
        database: Database,
        #[command(flatten)]
        tls: Tls,
        #[command(flatten)]
        telemetry: Telemetry,
        #[arg(long, value_parser = duration, value_delimiter = ',', default_value = "1s,300ms")]
        schedule: Vec<Duration>,
    }

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        let required = ["test", "--database-url=postgres://me:hunter2@host/db"];
        Config::try_parse_from(required.into_iter().chain(flags.iter().copied()))
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
    fn the_databases_password_does_not_print() {
        let config = parse(&[]).unwrap();
        assert!(config.database.database_url.contains("hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
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
