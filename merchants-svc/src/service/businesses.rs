//! Businesses: submitted by merchants, decided by operators, ended by time.
//!
//! Every change locks the merchant first, so that one never overwrites another.

use chassis::{
    clock::Timestamp,
    ids::{DecisionId, MerchantId, PersonId},
    page::Place,
};
use db::{Page, Tx};
use uuid::Uuid;

use super::Service;
use crate::{
    activity::{Action, Deed, Origin},
    business::{Business, Decision, NewDecision, Submitted},
    business_form::Form,
    error::Error,
    mail::MailKind,
    merchant::{KycStatus, Merchant},
    store::{self, businesses::Wanted},
};

impl Service {
    /// The merchant, and what it has submitted, if it has.
    pub async fn get_business(
        &self,
        merchant_id: MerchantId,
    ) -> Result<(Merchant, Option<Submitted>), Error> {
        let merchant = self.get_merchant(merchant_id).await?;
        let mut conn = self.db.read().await?;
        let submitted = store::businesses::find(&mut conn, merchant_id).await?;
        Ok((merchant, submitted))
    }

    /// Takes what a person of the merchant tells about its business.
    pub async fn submit_business(
        &self,
        merchant_id: MerchantId,
        person_id: PersonId,
        form: Form,
        origin: Origin,
    ) -> Result<Submitted, Error> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let merchant = self.lock_own(&mut tx, merchant_id, person_id).await?;
        let found = store::businesses::find(&mut tx, merchant_id).await?;
        let before = found
            .as_ref()
            .map_or(merchant.kyc_status, Submitted::status);
        if before == Some(KycStatus::InReview) {
            return Err(Error::BusinessInReview);
        }
        let submitted = match found {
            Some(mut submitted) => {
                submitted.submit(form, now);
                submitted
            }
            None => Submitted::first(merchant, form, now),
        };
        store::businesses::put(&mut tx, &submitted).await?;
        let deed = Deed {
            merchant_id,
            person_id,
            action: Action::BusinessSubmitted,
            object: String::new(),
            origin,
            at: now,
        };
        store::activities::note(&mut tx, &deed).await?;
        tx.commit().await?;
        let version = submitted.business.version;
        tracing::info!(merchant.id = %merchant_id, version, "business submitted");
        Ok(submitted)
    }

    /// A page of businesses, oldest submission first.
    pub async fn list_businesses(
        &self,
        wanted: Wanted,
        after: Place<Uuid>,
        size: u32,
    ) -> Result<Page<Submitted, Uuid>, Error> {
        let mut conn = self.db.read().await?;
        Ok(store::businesses::list(&mut conn, wanted, after, size).await?)
    }

    /// A business, with every decision on it, newest first.
    pub async fn show_business(
        &self,
        merchant_id: MerchantId,
    ) -> Result<(Submitted, Vec<Decision>), Error> {
        let mut conn = self.db.read().await?;
        let found = store::businesses::find(&mut conn, merchant_id).await?;
        let submitted = found.ok_or(Error::BusinessNotFound)?;
        let decisions = store::businesses::list_decisions(&mut conn, merchant_id).await?;
        Ok((submitted, decisions))
    }

    /// Takes an operator's decision on what was submitted, and mails the merchant's people.
    pub async fn decide_business(
        &self,
        merchant_id: MerchantId,
        decision: NewDecision,
    ) -> Result<Submitted, Error> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        // Without it, there is no business either.
        store::lock_merchant(&mut tx, merchant_id).await?;
        let found = store::businesses::find(&mut tx, merchant_id).await?;
        let mut submitted = found.ok_or(Error::BusinessNotFound)?;
        if submitted.business.version != decision.version {
            return Err(Error::BusinessChanged);
        }
        let status = decision.verdict.status();
        let decided_by = Some(decision.decided_by.clone());
        let note = decision.note.clone();
        submitted.decide(decision, now);
        store::businesses::update_state(&mut tx, &submitted).await?;
        let entry = Decision {
            decided_by,
            note,
            ..entry(&submitted.business, status, now)
        };
        store::businesses::insert_decision(&mut tx, &entry, &submitted.business.form).await?;
        let about = status.code();
        store::mails::insert_for_merchant(
            &mut tx,
            merchant_id,
            MailKind::BusinessDecided,
            (about, ""),
            now,
        )
        .await?;
        tx.commit().await?;
        self.approvals.ring();
        tracing::info!(merchant.id = %merchant_id, %status, "business decided");
        Ok(submitted)
    }

    /// Ends the approval, or tells the merchant that it ends soon, if that is due.
    pub async fn end_approval_if_due(&self, merchant_id: MerchantId) -> Result<(), Error> {
        let now = self.clock.now();
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let mut tx = self.db.begin().await?;
        store::lock_merchant(&mut tx, merchant_id).await?;
        let Some(mut submitted) = store::businesses::find(&mut tx, merchant_id).await? else {
            return Ok(());
        };
        if is_due(submitted.business.ends_at) {
            end_approval(&mut tx, &mut submitted, now).await?;
        } else if is_due(submitted.business.warns_at) {
            warn(&mut tx, &mut submitted, now).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

/// The entry of a decision that time makes.
fn entry(business: &Business, status: KycStatus, now: Timestamp) -> Decision {
    Decision {
        decision_id: DecisionId::new(),
        merchant_id: business.merchant_id,
        version: business.version,
        status,
        reasons: business.reasons.clone(),
        expires_on: business.expires_on,
        decided_by: None,
        note: String::new(),
        decided_at: now,
    }
}

/// Ends an approval whose last day is over, and mails the merchant's people.
async fn end_approval(tx: &mut Tx, submitted: &mut Submitted, now: Timestamp) -> Result<(), Error> {
    let was_approved = submitted.expire();
    store::businesses::update_state(tx, submitted).await?;
    if !was_approved {
        return Ok(());
    }
    let business = &submitted.business;
    let entry = entry(business, KycStatus::Expired, now);
    store::businesses::insert_decision(tx, &entry, &business.form).await?;
    mail_last_day(tx, business, MailKind::ApprovalEnded, now).await?;
    tracing::info!(merchant.id = %business.merchant_id, "approval ended");
    Ok(())
}

/// Mails the merchant's people that its approval ends soon.
async fn warn(tx: &mut Tx, submitted: &mut Submitted, now: Timestamp) -> Result<(), Error> {
    let is_told = submitted.warn();
    store::businesses::update_state(tx, submitted).await?;
    if is_told {
        mail_last_day(tx, &submitted.business, MailKind::ApprovalEnds, now).await?;
    }
    Ok(())
}

async fn mail_last_day(
    tx: &mut Tx,
    business: &Business,
    kind: MailKind,
    now: Timestamp,
) -> Result<(), Error> {
    let last_day = business.expires_on.map(|day| day.to_string());
    let last_day = last_day.unwrap_or_default();
    let merchant_id = business.merchant_id;
    store::mails::insert_for_merchant(tx, merchant_id, kind, (&last_day, ""), now).await?;
    Ok(())
}
