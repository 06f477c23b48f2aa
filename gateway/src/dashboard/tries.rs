//! Limits how often one client address may try to get in, whoever it claims to be, and how often a
//! merchant may ask whose wallet it is. merchants-svc limits the tries for one account.
//!
//! Fixed windows in this process: each replica of the gateway counts for itself. 0 is no limit.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use chassis::{clock::Clock, fixed_window::FixedWindow, ids::MerchantId};

use crate::{client_address::network, error::Error};

/// Most addresses counted in one window; any more pass uncounted.
const ADDRESSES_MAX: usize = 100_000;

const WINDOW: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
pub struct Tries {
    most: Option<NonZeroU32>,
    window: FixedWindow<IpAddr>,
}

impl Tries {
    pub fn new(most: u32, clock: Clock) -> Self {
        Self {
            most: NonZeroU32::new(most),
            window: FixedWindow::new(WINDOW, ADDRESSES_MAX, clock),
        }
    }

    /// Counts a try to sign up, log in, or reset a password.
    ///
    /// # Errors
    /// [`Error::TooManyGuesses`], and nothing is counted.
    pub fn take(&self, address: IpAddr) -> Result<(), Error> {
        let admission = self.window.take([(network(address), self.most)]);
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
