//! The certificates for mutual TLS between the services.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, Server, ServerTlsConfig};

use super::Refusals;
use crate::{
    clock::{Clock, Timestamp},
    grpc::Caller,
    tls,
};

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

    /// Certificate of the authority that signed every service's certificate, a PEM file. All in it are
    /// trusted: two, while one authority replaces another.
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
        self.check_validity(refusals);
        let fit = !all || self.is_usable();
        refusals.unless(
            fit,
            "TLS_CERT",
            "a PEM certificate that TLS_KEY is the key of",
        );
    }

    /// Refuses a certificate that everybody else would refuse now.
    fn check_validity(&self, refusals: &mut Refusals) {
        let chain = self.tls_cert.as_ref().map(std::fs::read);
        if let Some(Ok(chain)) = chain
            && let Err(error) = tls::check_validity(&chain, now())
        {
            let wants = format!("a certificate that is valid now: {error}");
            refusals.unless(false, "TLS_CERT", &wants);
        }
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
        let files = self.read()?;
        Ok(files.inspect(Files::tell_expiry).map(Files::server))
    }

    /// A client's certificate and trusted CA; `None` without TLS.
    pub(crate) fn client(&self) -> anyhow::Result<Option<ClientTlsConfig>> {
        let files = self.read()?;
        Ok(files.inspect(Files::tell_expiry).map(Files::client))
    }

    /// Whether the files, if given, can be read, match each other and are valid now.
    pub(crate) fn is_usable(&self) -> bool {
        let is_usable = |files: Files| Server::builder().tls_config(files.server()).is_ok();
        self.read().is_ok_and(|files| files.is_none_or(is_usable))
    }

    /// What the files hold; `None` without TLS.
    fn read(&self) -> anyhow::Result<Option<Files>> {
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
        let chain = read("TLS_CERT", certificate)?;
        // Here too, for payctl, which reads its settings without a check.
        tls::check_validity(&chain, now())
            .with_context(|| format!("TLS_CERT={} is not valid now", certificate.display()))?;
        Ok(Some(Files {
            chain,
            key: read("TLS_KEY", key)?,
            authority: read("TLS_CA", authority)?,
        }))
    }
}

/// This process's certificate chain and key, and the CA of all services, as PEM.
struct Files {
    chain: Vec<u8>,
    key: Vec<u8>,
    authority: Vec<u8>,
}

impl Files {
    /// Tells when what was read expires: files may have been renewed since.
    fn tell_expiry(&self) {
        for (certificate, pem) in [("own", &self.chain), ("authority", &self.authority)] {
            let gauge = metrics::gauge!(
                "tls_certificate_expiry_timestamp_seconds",
                "certificate" => certificate,
            );
            gauge.set(tls::expiry(pem).since(Timestamp::EPOCH));
        }
    }

    fn server(self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(Identity::from_pem(self.chain, self.key))
            .client_ca_root(Certificate::from_pem(self.authority))
    }

    fn client(self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(Identity::from_pem(self.chain, self.key))
            .ca_certificate(Certificate::from_pem(self.authority))
    }
}

/// The host's time, by which those who are shown a certificate judge it too.
fn now() -> Timestamp {
    Clock::system().host_now()
}
