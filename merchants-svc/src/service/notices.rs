//! Telling merchants what other services know.

use db::Insert;

use super::people::People;
use crate::{error::Error, letter, notice::Notice, store};

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
        let (merchant_id, kind, now) = (notice.merchant_id, notice.kind.mail(), self.clock.now());
        store::mails::insert_for_merchant(&mut tx, merchant_id, kind, &about, now).await?;
        self.commit(tx).await
    }
}
