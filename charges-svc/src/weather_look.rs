//! Looks how each network does: at a few charges from all over the time that counts.

use std::time::Duration;

use chassis::clock::Timestamp;
use db::Conn;

use crate::{
    error::Result,
    service::Service,
    store::samples::{self, Sampled},
    weather::{self, Look, NOW, NetworkWeather, USUAL},
};

/// Of so much time each, so many charges are looked at: 5,500 together at most, however many there
/// are.
const SLOT_NOW: Duration = Duration::from_secs(2 * 60);
const SLOT_USUAL: Duration = Duration::from_secs(60 * 60);
const PER_SLOT: i64 = 100;

/// How long a look is good for.
const FRESH_FOR: Duration = Duration::from_secs(30);

impl Service {
    /// How each network does. Computed once for all who ask within [`FRESH_FOR`].
    pub async fn read_weather(&self) -> Result<Vec<NetworkWeather>> {
        let now = self.clock.now();
        let mut last = self.weather.lock().await;
        if let Some(look) = last.as_ref()
            && now.since(look.at) < FRESH_FOR
        {
            return Ok(look.networks.clone());
        }
        let mut conn = self.db.read().await?;
        let sample = sample(&mut conn, self.clock.real_now()).await?;
        drop(conn);
        let networks = weather::networks(&sample, now);
        *last = Some(Look {
            at: now,
            networks: networks.clone(),
        });
        Ok(networks)
    }
}

/// Charges from all over the time that counts. Their ids tell by real time when they were made.
async fn sample(conn: &mut Conn, real_now: Timestamp) -> Result<Vec<Sampled>> {
    let mut sample = Vec::new();
    let mut before = real_now + SLOT_NOW;
    let oldest = real_now - USUAL;
    while before > oldest {
        let slot = match real_now - NOW < before {
            true => SLOT_NOW,
            false => SLOT_USUAL,
        };
        let from = before - slot;
        sample.extend(samples::of(conn, (from, before), PER_SLOT).await?);
        before = from;
    }
    Ok(sample)
}
