//! The settings that processes share, as groups of flags. Every flag has an environment variable;
//! this and the services' own `config.rs` are the only places that read the environment.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, builder::FalseyValueParser};

/// Reads a duration with its unit, such as `300ms`, `30s`, `24h` or `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text.trim())
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

    /// Does not describe the service to whoever asks (gRPC reflection); set it in production.
    #[arg(long, env = "NO_REFLECTION", value_parser = FalseyValueParser::new())]
    pub no_reflection: bool,
}

/// Which database a service keeps its records in. Its URL, which may hold a password, never prints.
#[derive(Clone, Args)]
pub struct Database {
    /// `postgres://…`, or `sqlite://` and a file's path.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,

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
    /// This process's certificate chain, a PEM file.
    #[arg(long, env = "TLS_CERT", requires_all = ["tls_key", "tls_ca"])]
    pub tls_cert: Option<PathBuf>,

    /// This process's private key, a PEM file.
    #[arg(long, env = "TLS_KEY", requires_all = ["tls_cert", "tls_ca"])]
    pub tls_key: Option<PathBuf>,

    /// The authority that signed every service's certificate, a PEM file.
    #[arg(long, env = "TLS_CA", requires_all = ["tls_cert", "tls_key"])]
    pub tls_ca: Option<PathBuf>,
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
    #[arg(long, env = "OTEL_SDK_DISABLED", value_parser = FalseyValueParser::new())]
    pub otel_sdk_disabled: bool,
}

impl Telemetry {
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
