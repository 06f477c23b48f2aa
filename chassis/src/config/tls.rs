//! The certificates for mutual TLS between the services.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, Server, ServerTlsConfig};

use super::Refusals;
use crate::{grpc::Caller, tls};

/// Certificates for mutual TLS between the services. All three or none.
#[derive(Clone, Debug, Default, Args)]
pub struct Tls {
    /// This process's certificate chain, a PEM file. Those that it calls know it by its name, such as
    /// gateway or payctl, among the certificate's DNS names. With it, TLS_KEY and TLS_CA, the services
    /// use mutual TLS and call each other at https://. Without them they use http://, in production
    /// too: then network policies must keep everyone else out.
    #[arg(long, env = "TLS_CERT", requires_all = ["tls_key", "tls_ca"])]
    pub tls_cert: Option<PathBuf>,

    /// This process's private key, a PEM file.
    #[arg(long, env = "TLS_KEY", requires_all = ["tls_cert", "tls_ca"])]
    pub tls_key: Option<PathBuf>,

    /// Certificate of the authority that signed every service's certificate, a PEM file.
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
        let authority = self.tls_ca.as_deref();
        let is_authority = authority.is_none_or(tls::is_authority);
        refusals.unless(is_authority, "TLS_CA", tls::AUTHORITY);
        all &= is_authority;
        let fit = !all || self.is_usable();
        refusals.unless(
            fit,
            "TLS_CERT",
            "a PEM certificate that TLS_KEY is the key of",
        );
    }

    /// Refuses a certificate by which nobody would know this process: they would all refuse its calls.
    pub fn check_caller(&self, caller: Caller, refusals: &mut Refusals) {
        let certificate = self.tls_cert.as_deref();
        let is_known = certificate.is_none_or(|file| caller.is_named_in(file));
        let wants = format!("a certificate with the DNS name {caller}");
        refusals.unless(is_known, "TLS_CERT", &wants);
    }

    /// Whether callers show certificates.
    pub(crate) fn is_mutual(&self) -> bool {
        self.tls_ca.is_some()
    }

    /// A server's certificate and trusted CA; `None` without TLS.
    pub(crate) fn server(&self) -> anyhow::Result<Option<ServerTlsConfig>> {
        let Some((identity, authority)) = self.read()? else {
            return Ok(None);
        };
        let config = ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(authority);
        Ok(Some(config))
    }

    /// A client's certificate and trusted CA; `None` without TLS.
    pub(crate) fn client(&self) -> anyhow::Result<Option<ClientTlsConfig>> {
        let Some((identity, authority)) = self.read()? else {
            return Ok(None);
        };
        let config = ClientTlsConfig::new()
            .identity(identity)
            .ca_certificate(authority);
        Ok(Some(config))
    }

    /// Whether the files, if given, can be read and match each other.
    pub(crate) fn is_usable(&self) -> bool {
        let server = |config| Server::builder().tls_config(config).is_ok();
        self.server().is_ok_and(|config| config.is_none_or(server))
    }

    /// This process's certificate and key, and the CA of all services; `None` without TLS.
    fn read(&self) -> anyhow::Result<Option<(Identity, Certificate)>> {
        let (Some(certificate), Some(key), Some(authority)) =
            (&self.tls_cert, &self.tls_key, &self.tls_ca)
        else {
            return Ok(None);
        };
        tls::install();
        let read = |variable: &str, file: &Path| {
            std::fs::read(file)
                .with_context(|| format!("{variable}={} cannot be read", file.display()))
        };
        let identity = Identity::from_pem(read("TLS_CERT", certificate)?, read("TLS_KEY", key)?);
        Ok(Some((
            identity,
            Certificate::from_pem(read("TLS_CA", authority)?),
        )))
    }
}
