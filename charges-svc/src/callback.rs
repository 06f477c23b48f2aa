//! What rails send to us. A hint: it makes the rail be asked, and is never believed.
//!
//! Promise: once it is acknowledged, the rail will be asked, even if this process ends now.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::RailReference};

use crate::{
    error::{Error, Result},
    rail::{CallbackError, Rail},
    service::Service,
    store,
};

/// A rail that gave no answer is asked again for a callback after this long at first, then always
/// after twice as long.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60 * 60);

/// When the rail is asked again that gave no answer `now` for a callback which came at `hinted_at`.
pub fn ask_again(hinted_at: Timestamp, now: Timestamp) -> Timestamp {
    now + now.since(hinted_at).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX)
}

/// What came to a callback address, as it arrived.
#[derive(Debug)]
pub struct Callback {
    /// The rail's name.
    pub rail: String,
    /// The last segment of the address.
    pub token: String,
    pub body: Vec<u8>,
    pub signature: Option<String>,
}

/// Which charge a callback is about.
enum About {
    /// The one with this callback address.
    Token,
    /// The one with this reference at the rail.
    Reference(RailReference),
    /// None that the callback names.
    Nothing,
}

impl Service {
    /// Notes that the rail wants to be asked about one of its charges.
    pub async fn receive_callback(&self, callback: &Callback) -> Result<()> {
        let rail = self
            .rails
            .by_name(&callback.rail)
            .ok_or(Error::CallbackNotFound)?;
        let about = read(rail, callback)?;
        let (name, now) = (rail.name(), self.clock.now());
        let mut tx = self.db.begin().await?;
        let hinted = match about {
            About::Token => {
                let token = &callback.token;
                let hinted = store::hints::put_by_token(&mut tx, name, token, now).await?;
                Some(hinted.ok_or(Error::CallbackNotFound)?)
            }
            About::Reference(reference) => {
                store::hints::put_by_rail_reference(&mut tx, name, reference, now).await?
            }
            About::Nothing => None,
        };
        let Some(id) = hinted else {
            // It is the rail's all the same. Told otherwise, the rail would only send it again.
            tracing::info!(rail = name, "a callback is about no charge of ours");
            return Ok(());
        };
        store::evidence::keep(&mut tx, id, ("callback", "received"), None, now).await?;
        tx.commit().await?;
        self.reconcile_alarms.ring(name);
        Ok(())
    }
}

/// Checks that a callback is the rail's, as far as the rail lets us.
fn read(rail: &Rail, callback: &Callback) -> Result<About> {
    let Rail::Paystack(paystack) = rail else {
        // MTN signs nothing: the address is the secret.
        return Ok(About::Token);
    };
    let signature = callback.signature.as_deref();
    let reference = paystack.read_callback(&callback.token, &callback.body, signature);
    let reference = reference.map_err(|error| match error {
        CallbackError::WrongToken => Error::CallbackNotFound,
        CallbackError::WrongSignature => Error::CallbackSignatureInvalid,
    })?;
    Ok(reference.map_or(About::Nothing, About::Reference))
}
