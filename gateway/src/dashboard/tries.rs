//! Limits how often one client address may try to get in, whoever it claims to be, and how often a
//! merchant may ask whose wallet it is. merchants-svc limits the tries for one account.
//!
//! Fixed windows in this process: each replica of the gateway counts for itself. 0 is no limit.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use chassis::{clock::Clock, fixed_window::FixedWindow, ids::MerchantId};
use ipnet::IpNet;

use crate::{
    client_address::{network, site},
    error::Error,
};

/// Most addresses counted in one window; any more pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

const WINDOW: Duration = Duration::from_secs(10 * 60);

/// A site of IPv6 may try as often as so many of its networks.
const SITE_TIMES: NonZeroU32 = NonZeroU32::new(10).unwrap();

#[derive(Debug)]
pub struct Tries {
    most: Option<NonZeroU32>,
    window: FixedWindow<IpNet>,
}

impl Tries {
    pub fn new(most: u32, clock: Clock) -> Self {
        Self {
            most: NonZeroU32::new(most),
            window: FixedWindow::new(WINDOW, ADDRESSES_MAX, clock),
        }
    }

    /// Counts a try to sign up, log in, prove who one is, or set a password.
    ///
    /// # Errors
    /// [`Error::TooManyGuesses`], and nothing is counted.
    pub fn take(&self, address: IpAddr) -> Result<(), Error> {
        let network = IpNet::from(network(address));
        let (site, most) = match site(address) {
            Some(site) => (site, self.most.map(|most| most.saturating_mul(SITE_TIMES))),
            None => (network, None),
        };
        let admission = self.window.take([(network, self.most), (site, most)]);
        match admission.allowed {
            true => Ok(()),
            false => Err(Error::TooManyGuesses {
                retry_after_seconds: admission.reset_seconds,
            }),
        }
    }
}

/// Looks that a merchant has in [`LOOKS_WINDOW`]: a few numbers, each asked about twice. Nobody is to
/// find out by them whose numbers these are.
const LOOKS: Option<NonZeroU32> = NonZeroU32::new(10);

const LOOKS_WINDOW: Duration = Duration::from_secs(60 * 60);

/// Most merchants counted in one window; any more pass uncounted.
const MERCHANTS_MAX: usize = 100_000;

#[derive(Debug)]
pub struct HolderLooks(FixedWindow<MerchantId>);

impl HolderLooks {
    pub fn new(clock: Clock) -> Self {
        Self(FixedWindow::new(LOOKS_WINDOW, MERCHANTS_MAX, clock))
    }

    /// Counts a look. Returns after how many seconds there is another, if this one is too many.
    pub fn take(&self, merchant_id: MerchantId) -> Result<(), u32> {
        let admission = self.0.take([(merchant_id, LOOKS)]);
        match admission.allowed {
            true => Ok(()),
            false => Err(admission.reset_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_site_tries_ten_times_as_often_as_one_of_its_networks() {
        let now = "2026-11-29T09:00:00.000Z".parse().expect("a time");
        let tries = Tries::new(2, Clock::simulated(now, 0, -1_000_000));
        let address =
            |network: u16| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 1, network, 0, 0, 0, 1));
        for network in 0..10 {
            for is_taken in [true, true, false] {
                assert_eq!(tries.take(address(network)).is_ok(), is_taken, "{network}");
            }
        }
        assert!(tries.take(address(10)).is_err());
        let elsewhere = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1));
        assert!(tries.take(elsewhere).is_ok());
        for host in 0..30 {
            assert!(
                tries.take([192, 0, 2, host].into()).is_ok(),
                "IPv4 has no sites"
            );
        }
    }
}
