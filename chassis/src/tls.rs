//! TLS set-up: the process's provider, checks of CA files, and when certificates are valid.

use std::path::Path;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, time::ASN1Time};

use crate::clock::Timestamp;

/// What a CA file must be.
pub(crate) const AUTHORITY: &str = "a PEM file of certificates that can be read";

/// Whether the file holds a usable CA certificate.
pub(crate) fn is_authority(file: &Path) -> bool {
    let certificates = CertificateDer::pem_file_iter(file);
    let certificates = certificates.and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let mut roots = RootCertStore::empty();
    certificates.is_ok_and(|found| roots.add_parsable_certificates(found).0 > 0)
}

/// Everybody would refuse the certificate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValidityError {
    #[error("it expired at {0}")]
    Expired(Timestamp),
    #[error("it is not valid before {0}")]
    TooEarly(Timestamp),
}

#[derive(Clone, Copy, Debug)]
struct Validity {
    from: Timestamp,
    until: Timestamp,
}

impl Validity {
    /// `None` if the certificate cannot be read.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let validity = certificate.validity();
        Some(Self {
            from: moment(validity.not_before)?,
            until: moment(validity.not_after)?,
        })
    }
}

fn moment(time: ASN1Time) -> Option<Timestamp> {
    let millis = time.timestamp().checked_mul(1_000)?;
    Timestamp::from_unix_millis(millis).ok()
}

/// Of each certificate in a PEM text, in their order.
fn validities(pem: &[u8]) -> impl Iterator<Item = Option<Validity>> {
    CertificateDer::pem_slice_iter(pem).map(|certificate| Validity::of(&certificate.ok()?))
}

/// Checks the first certificate of a chain, which is its owner's. Whoever uses one that cannot be
/// read refuses it by itself.
pub(crate) fn check_validity(chain: &[u8], now: Timestamp) -> Result<(), ValidityError> {
    match validities(chain).next().flatten() {
        Some(own) if own.until < now => Err(ValidityError::Expired(own.until)),
        Some(own) if now < own.from => Err(ValidityError::TooEarly(own.from)),
        _ => Ok(()),
    }
}

/// When the first of these certificates to expire does. One that cannot be read counts as expired, so
/// that somebody looks at it.
pub(crate) fn expiry(pem: &[u8]) -> Timestamp {
    let ends = validities(pem).map(|one| one.map_or(Timestamp::EPOCH, |one| one.until));
    ends.min().unwrap_or(Timestamp::EPOCH)
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that is valid from the beginning of one year to that of another.
    fn pem(from: i32, until: i32) -> String {
        let mut params = CertificateParams::new([]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    fn year(year: i32) -> Timestamp {
        format!("{year}-01-01T00:00:00.000Z").parse().unwrap()
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_moment_to_its_last() {
        let own = pem(2020, 2030);
        let check = |now| check_validity(own.as_bytes(), now);
        let second = std::time::Duration::from_secs(1);
        assert_eq!(check(year(2020)), Ok(()));
        assert_eq!(check(year(2030)), Ok(()));
        let early = Err(ValidityError::TooEarly(year(2020)));
        assert_eq!(check(year(2020) - second), early);
        let late = Err(ValidityError::Expired(year(2030)));
        assert_eq!(check(year(2030) + second), late);
    }

    #[test]
    fn only_the_first_of_a_chain_is_its_owners() {
        let chain = pem(2020, 2030) + &pem(2020, 2021);
        assert_eq!(check_validity(chain.as_bytes(), year(2025)), Ok(()));
    }

    #[test]
    fn several_certificates_expire_with_the_first_of_them() {
        let several = pem(2020, 2030) + &pem(2020, 2028) + &pem(2020, 9_999);
        assert_eq!(expiry(several.as_bytes()), year(2028));
        assert_eq!(expiry(pem(1970, 9_999).as_bytes()), year(9_999));
    }

    #[test]
    fn what_cannot_be_read_counts_as_expired() {
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let both = pem(2020, 2030) + garbage;
        assert_eq!(expiry(both.as_bytes()), Timestamp::EPOCH);
        assert_eq!(expiry(b""), Timestamp::EPOCH);
    }
}
