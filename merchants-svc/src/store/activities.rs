//! What people did to a merchant.

use chassis::{
    clock::Timestamp,
    ids::{ActivityId, MerchantId, PersonId},
    page::PageRequest,
};
use db::{Conn, Insert, Page, Result, Tx};
use uuid::Uuid;

use super::{mails, tries};
use crate::{
    activity::{Action, Activity, Deed, Origin},
    mail::NewMail,
    tries::{Tried, Try},
};

/// Newest first; the place that the page begins after comes last.
const LIST: &str =
    "select a.activity_id, a.action, a.object, p.email, a.address, a.user_agent, a.created_at,
            a.created_at as place_at, a.activity_id as place_id
     from activities a join people p on p.person_id = a.person_id
     where a.merchant_id = $1 and (a.created_at, a.activity_id) < ($2, $3)
     order by a.created_at desc, a.activity_id desc limit $4";

/// Notes what a person does, and the mail that tells them of it, unless they got many of its kind.
pub async fn note(tx: &mut Tx, deed: &Deed) -> Result<()> {
    note_as(tx, ActivityId::new(), deed).await
}

/// The same under this id, unless it is noted already.
pub async fn note_as(tx: &mut Tx, activity_id: ActivityId, deed: &Deed) -> Result<()> {
    let noted = tx
        .sql(
            "insert into activities (activity_id, merchant_id, person_id, action, object, address,
                                 user_agent, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)
         on conflict (activity_id) do nothing",
        )
        .bind(activity_id)
        .bind(deed.merchant_id)
        .bind(deed.person_id)
        .bind(deed.action)
        .bind(deed.object.clone())
        .bind(deed.origin.address.clone())
        .bind(deed.origin.user_agent.clone())
        .bind(deed.at)
        .insert();
    if noted.await? == Insert::AlreadyThere {
        return Ok(());
    }
    let Some(kind) = deed.action.notice() else {
        return Ok(());
    };
    let tried = Tried::notice(deed.person_id, kind);
    if let Try::Paused(_) = tries::take(tx, &tried, deed.at).await? {
        return Ok(());
    }
    let mail = NewMail {
        person_id: deed.person_id,
        kind,
        about: deed.object.clone(),
        address: deed.origin.address.clone(),
        recipient: None,
        at: deed.at,
    };
    mails::insert(tx, &mail).await
}

/// Where the last deed of this kind came from, by this person, from then until this moment; or the
/// first one until the clocks that differ most say so.
pub async fn find_origin(
    conn: &mut Conn,
    (merchant, person, action): (MerchantId, PersonId, Action),
    (from, at, to): (Timestamp, Timestamp, Timestamp),
) -> Result<Option<Origin>> {
    conn.sql(
        "select address, user_agent from activities
         where merchant_id = $1 and person_id = $2 and action = $3
           and created_at >= $4 and created_at <= $6
         order by case when created_at > $5 then 1 else 0 end, created_at desc, activity_id desc
         limit 1",
    )
    .bind(merchant)
    .bind(person)
    .bind(action)
    .bind(from)
    .bind(at)
    .bind(to)
    .optional()
    .await
}

/// A page of what was done to a merchant, newest first.
pub async fn list(
    conn: &mut Conn,
    merchant: MerchantId,
    page: PageRequest<Uuid>,
) -> Result<Page<Activity, Uuid>> {
    conn.sql(LIST)
        .bind(merchant)
        .bind(page.span.before.at)
        .bind(page.span.before.id)
        .bind(i64::from(page.size) + 1)
        .page(page.size)
        .await
}
