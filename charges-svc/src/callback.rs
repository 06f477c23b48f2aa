//! What rails send to us. A hint: it makes the rail be asked, and is never believed.
//!
//! Promise: once it is acknowledged, the rail will be asked, even if this process ends now.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, RailReference, is_segment},
};

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
    /// The last segment of the address; the gateway passes on none of another form.
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
    /// Notes that the rail wants to be asked about one of its charges. Anybody can call: what is
    /// about no charge of ours costs one read, and opens no transaction that writes.
    pub async fn receive_callback(&self, callback: &Callback) -> Result<()> {
        let rail = self
            .rails
            .by_name(&callback.rail)
            .filter(|_| is_segment(&callback.token))
            .ok_or(Error::CallbackNotFound)?;
        let about = read(rail, callback)?;
        let Some(id) = self
            .find_called_back(rail.name(), &about, &callback.token)
            .await?
        else {
            return match about {
                About::Token => Err(Error::CallbackNotFound),
                About::Reference(_) | About::Nothing => {
                    // It is the rail's all the same. Told otherwise, the rail would only send it
                    // again.
                    tracing::info!(rail = rail.name(), "a callback is about no charge of ours");
                    Ok(())
                }
            };
        };
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        // Void since it was found: there is nothing to ask about.
        if store::hints::put(&mut tx, id, now).await? {
            store::evidence::keep(&mut tx, id, ("callback", "received"), None, now).await?;
        }
        tx.commit().await?;
        self.reconcile_alarms.ring(rail.name());
        Ok(())
    }

    async fn find_called_back(
        &self,
        rail: &str,
        about: &About,
        token: &str,
    ) -> Result<Option<ChargeId>> {
        let mut conn = self.db.read().await?;
        Ok(match about {
            About::Token => store::charges::find_by_callback_token(&mut conn, rail, token).await?,
            About::Reference(reference) => {
                store::charges::find_by_rail_reference(&mut conn, rail, *reference).await?
            }
            About::Nothing => None,
        })
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
