//! What merchants tell about their businesses, and the decisions on it.

use chassis::{clock::Timestamp, ids::MerchantId, page::Place};
use db::{Conn, Page, Result, Tx};
use uuid::Uuid;

use crate::{
    business::{Business, Decision, Submitted},
    business_form::Form,
    merchant::KycStatus,
};

/// Most decisions that are shown of a business.
const DECISIONS_SHOWN: i64 = 100;

/// A merchant with its business, and where it is in a list.
macro_rules! selected {
    ($rest:literal) => {
        concat!(
            "select m.merchant_id, m.name, m.email, m.email_verified, m.kyc_status,
                    m.accepting_payments, m.created_at,
                    b.version, b.review, b.kind, b.registered_name, b.registration_number, b.tin,
                    b.activity, b.website, b.digital_address, b.town, b.owner_name,
                    b.owner_ghana_card, b.owner_phone, b.submitted_at, b.reasons, b.decided_at,
                    b.decided_by, b.note, b.expires_on, b.warns_at, b.ends_at,
                    b.submitted_at as place_at, b.merchant_id as place_id
             from businesses b join merchants m on m.merchant_id = b.merchant_id ",
            $rest
        )
    };
}

const FIND: &str = selected!("where b.merchant_id = $1");

const LIST_WAITING: &str = selected!(
    "where b.review is not null and b.review in ($1, $2)
       and (b.submitted_at, b.merchant_id) > ($3, $4)
     order by b.submitted_at, b.merchant_id limit $5"
);

const LIST_DECIDED: &str = selected!(
    "where b.review is null and m.kyc_status = $1
       and (b.submitted_at, b.merchant_id) > ($2, $3)
     order by b.submitted_at, b.merchant_id limit $4"
);

/// Which businesses to list.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// All that wait.
    Waiting,
    /// Those that stand so.
    Of(KycStatus),
}

/// A merchant's business with the merchant.
pub async fn find(conn: &mut Conn, merchant: MerchantId) -> Result<Option<Submitted>> {
    conn.sql(FIND).bind(merchant).optional().await
}

/// A page of businesses, oldest submission first.
pub async fn list(
    conn: &mut Conn,
    wanted: Wanted,
    after: Place<Uuid>,
    size: u32,
) -> Result<Page<Submitted, Uuid>> {
    let listing = match wanted {
        Wanted::Waiting => conn
            .sql(LIST_WAITING)
            .bind(KycStatus::Pending)
            .bind(KycStatus::InReview),
        Wanted::Of(status @ (KycStatus::Pending | KycStatus::InReview)) => {
            conn.sql(LIST_WAITING).bind(status).bind(status)
        }
        Wanted::Of(status) => conn.sql(LIST_DECIDED).bind(status),
    };
    listing
        .bind(after.at)
        .bind(after.id)
        .bind(i64::from(size) + 1)
        .page(size)
        .await
}

/// Writes what was submitted, in place of what was before, and the merchant's state.
pub async fn put(tx: &mut Tx, submitted: &Submitted) -> Result<()> {
    let Business { form, .. } = &submitted.business;
    let Form {
        kind,
        registered_name,
        registration_number,
        tin,
        activity,
        website,
        digital_address,
        town,
        owner_name,
        owner_ghana_card,
        owner_phone,
    } = form.clone();
    tx.sql(
        "insert into businesses
             (merchant_id, version, submitted_at, reasons, kind, registered_name,
              registration_number, tin, activity, website, digital_address, town, owner_name,
              owner_ghana_card, owner_phone)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         on conflict (merchant_id) do update set
             version = excluded.version, submitted_at = excluded.submitted_at,
             reasons = excluded.reasons, kind = excluded.kind,
             registered_name = excluded.registered_name,
             registration_number = excluded.registration_number, tin = excluded.tin,
             activity = excluded.activity, website = excluded.website,
             digital_address = excluded.digital_address, town = excluded.town,
             owner_name = excluded.owner_name, owner_ghana_card = excluded.owner_ghana_card,
             owner_phone = excluded.owner_phone",
    )
    .bind(submitted.business.merchant_id)
    .bind(submitted.business.version)
    .bind(submitted.business.submitted_at)
    .bind(submitted.business.reasons.clone())
    .bind(kind)
    .bind(registered_name)
    .bind(registration_number)
    .bind(tin)
    .bind(activity)
    .bind(website)
    .bind(digital_address)
    .bind(town)
    .bind(owner_name)
    .bind(owner_ghana_card)
    .bind(owner_phone)
    .run()
    .await?;
    update_state(tx, submitted).await
}

/// Writes how it stands and the merchant's state, and leaves what was submitted.
pub async fn update_state(tx: &mut Tx, submitted: &Submitted) -> Result<()> {
    let business = &submitted.business;
    tx.sql(
        "update businesses set review = $2, reasons = $3, decided_at = $4, decided_by = $5,
             note = $6, expires_on = $7, warns_at = $8, ends_at = $9
         where merchant_id = $1",
    )
    .bind(business.merchant_id)
    .bind(business.review)
    .bind(business.reasons.clone())
    .bind(business.decided_at)
    .bind(business.decided_by.clone())
    .bind(business.note.clone())
    .bind(business.expires_on)
    .bind(business.warns_at)
    .bind(business.ends_at)
    .run()
    .await?;
    tx.sql("update merchants set kyc_status = $2 where merchant_id = $1")
        .bind(business.merchant_id)
        .bind(submitted.merchant.kyc_status)
        .run()
        .await
}

/// Notes for good what was decided, and about what.
pub async fn insert_decision(tx: &mut Tx, decision: &Decision, form: &Form) -> Result<()> {
    tx.sql(
        "insert into business_decisions
             (decision_id, merchant_id, version, status, reasons, expires_on, decided_by, note,
              decided_at, form)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(decision.decision_id)
    .bind(decision.merchant_id)
    .bind(decision.version)
    .bind(decision.status)
    .bind(decision.reasons.clone())
    .bind(decision.expires_on)
    .bind(decision.decided_by.clone())
    .bind(decision.note.clone())
    .bind(decision.decided_at)
    .bind(form.to_json().to_string())
    .run()
    .await
}

/// A business's decisions, newest first, at most `DECISIONS_SHOWN`.
pub async fn list_decisions(conn: &mut Conn, merchant: MerchantId) -> Result<Vec<Decision>> {
    conn.sql(
        "select decision_id, merchant_id, version, status, reasons, expires_on, decided_by, note,
                decided_at
         from business_decisions where merchant_id = $1 order by decision_id desc limit $2",
    )
    .bind(merchant)
    .bind(DECISIONS_SHOWN)
    .all()
    .await
}

/// When the next merchant is to be told that its approval ends soon, or the next approval ends.
pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let (warns_at,): (Option<Timestamp>,) = conn
        .sql("select min(warns_at) from businesses where warns_at is not null")
        .one()
        .await?;
    let (ends_at,): (Option<Timestamp>,) = conn
        .sql("select min(ends_at) from businesses where ends_at is not null")
        .one()
        .await?;
    Ok(warns_at.into_iter().chain(ends_at).min())
}

/// The merchants with something due, at most `limit` of either kind.
pub async fn list_due(conn: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<MerchantId>> {
    let ending: Vec<(MerchantId,)> = conn
        .sql("select merchant_id from businesses where ends_at <= $1 order by ends_at limit $2")
        .bind(now)
        .bind(limit)
        .all()
        .await?;
    let warned: Vec<(MerchantId,)> = conn
        .sql("select merchant_id from businesses where warns_at <= $1 order by warns_at limit $2")
        .bind(now)
        .bind(limit)
        .all()
        .await?;
    let due = ending.into_iter().chain(warned);
    Ok(due.map(|(merchant_id,)| merchant_id).collect())
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn businesses_are_listed_by_index() {
        let database = TestDb::new("merchants-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, LIST_WAITING, "businesses_waiting").await;
        check_ordered_by_index(&db, LIST_DECIDED, "businesses_decided").await;
        db.close().await;
    }
}
