//! Finds the merchant for an API key (spec §5).
//!
//! A malformed key is refused without a call, and in production a test key, too. An answer of
//! merchants-svc is used for requests that begin at most 0.9 s after it was asked for, so that a
//! revocation or a KYC change takes effect everywhere within a second. Only one call per key runs at
//! a time.

use std::{net::IpAddr, sync::Arc, time::Duration};

use chassis::{api_key::ApiKey, config::Mode};
use http::{HeaderMap, header::AUTHORIZATION};
use moka::future::Cache;
use proto::merchants::AuthenticateRequest;
use tokio::time::Instant;

use crate::{
    backend::{self, Merchants},
    error::Error,
    guesses::Guesses,
    merchant::Merchant,
};

/// How long an answer of merchants-svc is used, counted from just before the call.
const FRESH_FOR: Duration = Duration::from_millis(900);

/// Most valid keys remembered at once.
const KNOWN_MAX: u64 = 100_000;

/// Most invalid keys remembered at once, so that a flood of invented keys takes only this much
/// memory.
const UNKNOWN_MAX: u64 = 10_000;

/// Identifies merchants by their keys.
#[derive(Debug)]
pub struct MerchantKeys {
    merchants: Merchants,
    known: Cache<[u8; 32], KeyOwner>,
    unknown: Cache<[u8; 32], ()>,
    guesses: Guesses,
    mode: Mode,
}

#[derive(Clone, Debug)]
struct KeyOwner {
    merchant: Arc<Merchant>,
    /// Taken just before merchants-svc was asked.
    asked_at: Instant,
}

impl MerchantKeys {
    pub fn new(merchants: Merchants, guesses: Guesses, mode: Mode) -> Self {
        Self {
            merchants,
            known: fresh(KNOWN_MAX),
            unknown: fresh(UNKNOWN_MAX),
            guesses,
            mode,
        }
    }

    /// The merchant whose key the request carries.
    ///
    /// # Errors
    /// [`Error::InvalidApiKey`]; [`Error::TooManyGuesses`] if the client's address has guessed too
    /// often; [`Error::NothingStarted`] if merchants-svc cannot be asked.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Arc<Merchant>, Error> {
        let begun_at = Instant::now();
        let found = match bearer(headers).filter(|key| self.takes(key)) {
            Some(key) => self.find(key.sha256(), address, begun_at).await,
            None => Err(Error::InvalidApiKey),
        };
        found.map_err(|error| match error {
            Error::InvalidApiKey => self.guesses.refuse(address, error),
            error => error,
        })
    }

    /// Whether such a key may be valid here, if it was issued.
    fn takes(&self, key: &ApiKey) -> bool {
        match self.mode {
            Mode::Development => true,
            Mode::Production => !key.is_test(),
        }
    }

    async fn find(
        &self,
        hash: [u8; 32],
        address: IpAddr,
        begun_at: Instant,
    ) -> Result<Arc<Merchant>, Error> {
        let known = self.known.get(&hash).await;
        if let Some(known) = known.filter(|known| known.serves(begun_at)) {
            return Ok(known.merchant);
        }
        if self.unknown.contains_key(&hash) {
            return Err(Error::InvalidApiKey);
        }
        // Boxed: nearly every key is known, and its request keeps no room for asking.
        let looked_up = Box::pin(self.look_up(hash, begun_at));
        self.guesses.look_up(address, hash, looked_up).await
    }

    /// Asks merchants-svc, or joins a call for this key that is already under way.
    async fn look_up(&self, hash: [u8; 32], begun_at: Instant) -> Result<Arc<Merchant>, Error> {
        loop {
            let answer = self.known.try_get_with(hash, self.ask(hash)).await;
            match answer {
                Ok(known) if known.serves(begun_at) => return Ok(known.merchant),
                // Asked too long before this request began: it may have missed a change.
                Ok(_) => self.known.invalidate(&hash).await,
                Err(error) => {
                    if matches!(*error, Error::InvalidApiKey) {
                        self.unknown.insert(hash, ()).await;
                    }
                    return Err(Error::clone(&error));
                }
            }
        }
    }

    async fn ask(&self, hash: [u8; 32]) -> Result<KeyOwner, Error> {
        let asked_at = Instant::now();
        let request = AuthenticateRequest {
            key_sha256: hash.to_vec(),
        };
        let merchant = self
            .merchants
            .read(
                backend::DEADLINE,
                request,
                |mut client, request| async move { client.authenticate(request).await },
            )
            .await?;
        Ok(KeyOwner {
            merchant: Arc::new(merchant.try_into()?),
            asked_at,
        })
    }
}

/// A cache that keeps answers for as long as they may be used.
fn fresh<V: Clone + Send + Sync + 'static>(most: u64) -> Cache<[u8; 32], V> {
    Cache::builder()
        .max_capacity(most)
        .time_to_live(FRESH_FOR)
        .build()
}

impl KeyOwner {
    /// Whether it is fresh enough for a request that began at `begun_at`.
    fn serves(&self, begun_at: Instant) -> bool {
        begun_at.saturating_duration_since(self.asked_at) <= FRESH_FOR
    }
}

/// The key in the only `Authorization: Bearer` header, if it is well-formed.
fn bearer(headers: &HeaderMap) -> Option<ApiKey> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    key.trim_start_matches(' ').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let values = values.iter().map(|value| {
            let value = value.parse().expect("a header value");
            (AUTHORIZATION, value)
        });
        values.collect()
    }

    #[test]
    fn exactly_one_bearer_header_with_a_key_is_taken() {
        let key = ApiKey::generate();
        let key = key.expose();
        for value in [format!("Bearer {key}"), format!("bearer   {key}")] {
            assert!(bearer(&headers(&[&value])).is_some(), "{value}");
        }
        for value in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            key.to_owned(),
            format!("Basic {key}"),
            format!("Bearer{key}"),
            format!("Bearer {key} {key}"),
            format!("Bearer \"{key}\""),
            format!("Bearer {}", &key[..key.len() - 1]),
        ] {
            assert!(bearer(&headers(&[&value])).is_none(), "{value}");
        }
        let good = format!("Bearer {key}");
        assert!(bearer(&headers(&[&good, &good])).is_none());
        assert!(bearer(&headers(&[])).is_none());
    }
}
