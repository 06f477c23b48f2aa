//! What a process logs, and where its traces go.

use std::{fs, path::PathBuf};

use anyhow::ensure;
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tracing_subscriber::EnvFilter;

use super::{Refusals, switch};
use crate::tls;

/// What a process tells about itself.
#[derive(Clone, Debug, Args)]
pub struct Telemetry {
    /// What is logged, as a tracing filter: `info`, or `warn,charges_svc=debug,rails=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,

    /// Address that spans are exported to, by OTLP over gRPC. Without it, none are.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otel_exporter_otlp_endpoint: Option<String>,

    /// Address for traces alone, which wins over OTEL_EXPORTER_OTLP_ENDPOINT.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    pub otel_exporter_otlp_traces_endpoint: Option<String>,

    /// Certificate of the authority that signed that of an https:// endpoint, a PEM file. Without
    /// it, the system's authorities are trusted.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    pub otel_exporter_otlp_certificate: Option<PathBuf>,

    /// Exports nothing, whatever the endpoints say.
    #[arg(long, env = "OTEL_SDK_DISABLED", value_parser = switch)]
    pub otel_sdk_disabled: bool,
}

impl Telemetry {
    pub fn check(&self, refusals: &mut Refusals) {
        let wants = "a filter such as info or warn,charges_svc=debug";
        refusals.unless(EnvFilter::try_new(&self.log).is_ok(), "RUST_LOG", wants);
        let authority = self.otel_exporter_otlp_certificate.as_deref();
        let is_authority = authority.is_none_or(tls::is_authority);
        refusals.unless(
            is_authority,
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            tls::AUTHORITY,
        );
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
            let check = || self.check_endpoint(endpoint);
            // If the CA file is bad, report only that.
            let is_good = endpoint.is_empty() || !is_authority || check().is_ok();
            let wants =
                "an address such as http://collector:4317, or https:// and authorities to trust";
            refusals.unless(is_good, variable, wants);
        }
    }

    /// # Errors
    /// Spans cannot be exported to `endpoint`: it is no http(s) address, or TLS to it cannot be
    /// set up.
    fn check_endpoint(&self, endpoint: &str) -> anyhow::Result<()> {
        let collector = Endpoint::from_shared(endpoint.to_owned())?;
        let scheme = collector.uri().scheme_str();
        ensure!(
            matches!(scheme, Some("http" | "https")),
            "it is not http(s)"
        );
        if let Some(tls) = self.collector_tls(endpoint)? {
            collector.tls_config(tls)?;
        }
        Ok(())
    }

    /// TLS to a collector at https://, trusting the configured CA or else the system's. `None` for
    /// other schemes.
    pub(crate) fn collector_tls(&self, endpoint: &str) -> anyhow::Result<Option<ClientTlsConfig>> {
        let uri: http::Uri = endpoint.parse()?;
        if uri.scheme_str() != Some("https") {
            return Ok(None);
        }
        tls::install();
        let tls = ClientTlsConfig::new();
        Ok(Some(match &self.otel_exporter_otlp_certificate {
            Some(file) => tls.ca_certificate(Certificate::from_pem(fs::read(file)?)),
            None => tls.with_native_roots(),
        }))
    }

    /// Where traces go, if anywhere.
    pub(crate) fn traces_endpoint(&self) -> Option<&str> {
        let endpoint = self
            .otel_exporter_otlp_traces_endpoint
            .as_deref()
            .or(self.otel_exporter_otlp_endpoint.as_deref());
        endpoint.filter(|endpoint| !self.otel_sdk_disabled && !endpoint.is_empty())
    }
}
