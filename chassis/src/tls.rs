//! TLS set-up: the process's provider, and checks of CA files.

use std::path::Path;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// What a CA file must be.
pub(crate) const AUTHORITY: &str = "a PEM file of certificates that can be read";

/// Whether the file holds a usable CA certificate.
pub(crate) fn is_authority(file: &Path) -> bool {
    let certificates = CertificateDer::pem_file_iter(file);
    let certificates = certificates.and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let mut roots = RootCertStore::empty();
    certificates.is_ok_and(|found| roots.add_parsable_certificates(found).0 > 0)
}

/// Makes ring the process's TLS provider, once.
pub(crate) fn install() {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::trace!("the TLS provider is installed already");
    }
}
