//! Telling merchants what other services know.

use std::time::Duration;

use db::{Insert, Tx};

use super::people::People;
use crate::{error::Error, letter, notice::Notice, store};

/// How long before it became true somebody may have begun to do it, and how far the clock of
/// whoever tells it may be behind ours.
const DEED: Duration = Duration::from_mins(10);
const CLOCKS: Duration = Duration::from_mins(1);

impl People {
    /// Mails a notice to everyone who belongs to the merchant, unless that was done before.
    pub async fn tell(&self, notice: Notice) -> Result<(), Error> {
        let merchant = store::find_merchant(&self.db, notice.merchant_id).await?;
        merchant.ok_or(Error::MerchantNotFound)?;
        let mut tx = self.db.begin().await?;
        let told = store::notices::insert(&mut tx, &notice, self.clock.now());
        if told.await? == Insert::AlreadyThere {
            return Ok(());
        }
        // A mail is tried for a day from when it was written, and this may have been told late.
        let about = format!("{} ({})", notice.about, letter::moment(notice.at));
        let address = address_of(&mut tx, &notice).await?;
        let (merchant_id, kind, now) = (notice.merchant_id, notice.kind.mail(), self.clock.now());
        let told = (about.as_str(), address.as_str());
        store::mails::insert_for_merchant(&mut tx, merchant_id, kind, told, now).await?;
        self.commit(tx).await
    }
}

/// Where the request of whoever did it came from; empty if that is not on record.
async fn address_of(tx: &mut Tx, notice: &Notice) -> Result<String, Error> {
    let (Some(person_id), Some(action)) = (notice.person_id, notice.kind.action()) else {
        return Ok(String::new());
    };
    let between = (notice.at - DEED, notice.at, notice.at + CLOCKS);
    let done = (notice.merchant_id, person_id, action);
    let origin = store::activities::find_origin(tx, done, between).await?;
    Ok(origin.map(|origin| origin.address).unwrap_or_default())
}
