//! A merchant's charges, newest first, without void ones.

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    failure::FailureReason,
    ids::{MerchantId, Reference, SessionId, TxIdDisplay},
    limits::LOOKED_AT_MAX,
    money::Money,
    page::{PageRequest, Place, Span},
    phone::Phone,
    provider::Provider,
};
use db::{Conn, Page, Result};
use uuid::Uuid;

use crate::charge::{Charge, State};

/// Which charges to list: those that have everything that is given.
#[derive(Clone, Debug)]
pub struct WantedCharges {
    pub merchant_id: MerchantId,
    pub reference: Option<Reference>,
    pub tx_id_display: Option<TxIdDisplay>,
    pub session_id: Option<SessionId>,
    pub phone: Option<Phone>,
    /// The payer's e-mail address, in whichever case.
    pub email: Option<String>,
    /// Beside those with the address, those of this number.
    pub or_phone: Option<Phone>,
    pub status: Option<ChargeStatus>,
    pub provider: Option<Provider>,
    pub failure_reason: Option<FailureReason>,
    /// At least this, in GHS.
    pub amount_from: Option<Money>,
    /// At most this, in GHS.
    pub amount_to: Option<Money>,
    /// Only what has not ended.
    pub is_open: bool,
}

/// The index that a list follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Reference,
    Session,
    Phone,
    Email,
    Open,
    Time,
}

impl WantedCharges {
    /// The lists that it is made of, each of which follows one index.
    pub fn parts(mut self) -> Vec<Self> {
        let Some(phone) = self.or_phone.take() else {
            return vec![self];
        };
        let from_number = Self {
            phone: Some(phone),
            email: None,
            ..self.clone()
        };
        vec![self, from_number]
    }

    fn by(&self) -> By {
        match self {
            Self {
                reference: Some(_), ..
            }
            | Self {
                tx_id_display: Some(_),
                ..
            } => By::Reference,
            Self {
                session_id: Some(_),
                ..
            } => By::Session,
            Self { phone: Some(_), .. } => By::Phone,
            Self { email: Some(_), .. } => By::Email,
            Self { is_open: true, .. } => By::Open,
            Self { .. } => By::Time,
        }
    }

    /// Whether there is something that no index finds among what may be many.
    pub fn is_searched(&self) -> bool {
        let is_many = match self.by() {
            By::Phone | By::Email | By::Time | By::Open => true,
            By::Reference | By::Session => false,
        };
        is_many
            && (self.status.is_some()
                || self.provider.is_some()
                || self.failure_reason.is_some()
                || self.amount_from.is_some()
                || self.amount_to.is_some()
                || (self.is_open && self.by() != By::Open))
    }

    /// The first and the last reference that are looked at, if references are. One begins with what
    /// payers are shown, and goes on with six characters from `0` to `Z`.
    fn references(&self) -> Option<(String, String)> {
        match (&self.reference, &self.tx_id_display) {
            (Some(reference), _) => Some((reference.to_string(), reference.to_string())),
            (None, Some(shown)) => Some((format!("{shown}-000000"), format!("{shown}-ZZZZZZ"))),
            (None, None) => None,
        }
    }
}

/// The states that are shown like this, of which there are at most three.
fn states_of(status: ChargeStatus) -> [State; 3] {
    match status {
        ChargeStatus::Initiated => [State::Submitting, State::Initiated, State::OtpSubmitting],
        ChargeStatus::OtpRequired => [State::OtpRequired; 3],
        ChargeStatus::Settled => [State::Settled; 3],
        ChargeStatus::Failed => [State::Failed; 3],
    }
}

macro_rules! by_time {
    () => {
        "merchant_id = $1 and (created_at, transaction_id) < ($2, $3)
         and (created_at, transaction_id) >= ($4, $5)
         order by created_at desc, transaction_id desc"
    };
}

macro_rules! by_open {
    () => {
        concat!(
            "state not in ('SETTLED', 'FAILED', 'VOID') and ",
            by_time!()
        )
    };
}

/// All within these bounds is the merchant's and of this number. An equation of the merchant would let
/// SQLite prefer the index of all its charges.
macro_rules! by_phone {
    ($phone:literal) => {
        concat!(
            "(phone, merchant_id, created_at, transaction_id) < (",
            $phone,
            ", $1, $2, $3)
             and (phone, merchant_id, created_at, transaction_id) >= (",
            $phone,
            ", $1, $4, $5)
             order by phone desc, merchant_id desc, created_at desc, transaction_id desc"
        )
    };
}

/// All within these bounds is the merchant's, as in `by_phone`.
macro_rules! by_email {
    ($email:literal) => {
        concat!(
            "payer_email is not null and lower(payer_email) = ",
            $email,
            " and (merchant_id, created_at, transaction_id) < ($1, $2, $3)
             and (merchant_id, created_at, transaction_id) >= ($1, $4, $5)
             order by merchant_id desc, created_at desc, transaction_id desc"
        )
    };
}

/// The ends of the text name the rows by an index; the rest is the same for all.
macro_rules! listing {
    ($with:literal, $from:literal, $walk:expr) => {
        concat!(
            $with,
            " select created_at as place_at, transaction_id as place_id, ",
            columns!(),
            $from,
            " where state <> 'VOID'
              and (cast($7 as text) is null or reference between $7 and $14)
              and (cast($8 as uuid) is null or session_id = $8)
              and (cast($9 as text) is null or phone = $9)
              and (cast($10 as text) is null or state in ($10, $11, $12))
              and (cast($13 as text) is null or provider = $13)
              and (cast($15 as text) is null or tx_id_display = $15)
              and (cast($16 as text) is null or failure_reason = $16)
              and (cast($17 as bigint) is null or amount_minor >= $17)
              and (cast($18 as bigint) is null or amount_minor <= $18)
              and (cast($19 as text) is null or lower(payer_email) = lower($19))
              and (not cast($20 as boolean) or state not in ('SETTLED', 'FAILED', 'VOID'))
              and ",
            $walk,
            " limit $6"
        )
    };
}

const BY_TIME: &str = listing!("", " from charges", by_time!());
const BY_OPEN: &str = listing!("", " from charges", by_open!());
const BY_PHONE: &str = listing!("", " from charges", by_phone!("$9"));
const BY_EMAIL: &str = listing!("", " from charges", by_email!("lower($19)"));

// A reference has one charge, and what payers are shown and a session have a few: all of them are read, whatever else is wanted, so
// that no store prefers the index of all the merchant's charges.
const BY_REFERENCE: &str = listing!(
    "with found as materialized (select * from charges where reference between $7 and $14)",
    " from found",
    by_time!()
);
const BY_SESSION: &str = listing!(
    "with found as materialized (select * from charges where session_id = $8)",
    " from found",
    by_time!()
);

/// A page of what is wanted.
pub async fn list(
    conn: &mut Conn,
    wanted: &WantedCharges,
    page: &PageRequest<Uuid>,
) -> Result<Page<Charge, Uuid>> {
    let text = match wanted.by() {
        By::Reference => BY_REFERENCE,
        By::Session => BY_SESSION,
        By::Phone => BY_PHONE,
        By::Email => BY_EMAIL,
        By::Open => BY_OPEN,
        By::Time => BY_TIME,
    };
    let Span { from, before } = page.span;
    let states = wanted.status.map(states_of);
    let state = |place: usize| states.map(|states| states[place]);
    let (first, last) = wanted.references().unzip();
    conn.sql(text)
        .bind(wanted.merchant_id)
        .bind(before.at)
        .bind(before.id)
        .bind(from.at)
        .bind(from.id)
        .bind(i64::from(page.size) + 1)
        .bind(first)
        .bind(wanted.session_id)
        .bind(wanted.phone.as_ref().map(Phone::as_e164))
        .bind(state(0))
        .bind(state(1))
        .bind(state(2))
        .bind(wanted.provider)
        .bind(last)
        .bind(wanted.tx_id_display.as_ref().map(TxIdDisplay::as_str))
        .bind(wanted.failure_reason)
        .bind(wanted.amount_from.map(Money::minor_units))
        .bind(wanted.amount_to.map(Money::minor_units))
        .bind(wanted.email.as_deref())
        .bind(wanted.is_open)
        .page(page.size)
        .await
}

const COUNT_OPEN: &str = "select count(*) from (
         select 1 as one from charges
         where merchant_id = $1 and created_at < $2 and state not in ('SETTLED', 'FAILED', 'VOID')
         limit $3
     ) as counted";

/// How many of a merchant's charges that were created before this have not ended, counted up to
/// `limit`.
pub async fn count_open(
    conn: &mut Conn,
    merchant_id: MerchantId,
    created_before: Timestamp,
    limit: i64,
) -> Result<i64> {
    let counting = conn.sql(COUNT_OPEN).bind(merchant_id);
    let counting = counting.bind(created_before).bind(limit);
    Ok(counting.one::<(i64,)>().await?.0)
}

macro_rules! stopping {
    ($walk:expr) => {
        concat!(
            "select created_at, transaction_id from charges where state <> 'VOID' and ",
            $walk,
            " limit 1 offset $6"
        )
    };
}

const STOP_BY_TIME: &str = stopping!(by_time!());
const STOP_BY_OPEN: &str = stopping!(by_open!());
const STOP_BY_PHONE: &str = stopping!(by_phone!("$7"));
const STOP_BY_EMAIL: &str = stopping!(by_email!("lower($7)"));

/// Where a page that looks at [`LOOKED_AT_MAX`] charges has to stop; `None` if there are fewer, or an
/// index finds what is wanted.
pub async fn stop(
    conn: &mut Conn,
    wanted: &WantedCharges,
    span: Span<Uuid>,
) -> Result<Option<Place<Uuid>>> {
    if !wanted.is_searched() {
        return Ok(None);
    }
    let (text, of) = match (&wanted.phone, &wanted.email) {
        (Some(phone), _) => (STOP_BY_PHONE, Some(phone.as_e164())),
        (None, Some(email)) => (STOP_BY_EMAIL, Some(email.as_str())),
        (None, None) if wanted.is_open => (STOP_BY_OPEN, None),
        (None, None) => (STOP_BY_TIME, None),
    };
    let stopping = conn
        .sql(text)
        .bind(wanted.merchant_id)
        .bind(span.before.at)
        .bind(span.before.id)
        .bind(span.from.at)
        .bind(span.from.id)
        .bind(LOOKED_AT_MAX - 1);
    let found: Option<(Timestamp, Uuid)> = match of {
        None => stopping.optional().await?,
        Some(of) => stopping.bind(of).optional().await?,
    };
    Ok(found.map(|(at, id)| Place { at, id }))
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index, plan};

    use super::*;

    #[tokio::test]
    async fn charges_are_listed_and_looked_up_by_index() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, BY_TIME, "charges_newest").await;
        check_ordered_by_index(&db, BY_PHONE, "charges_of_phone").await;
        check_ordered_by_index(&db, BY_OPEN, "charges_open_newest").await;
        check_ordered_by_index(&db, STOP_BY_OPEN, "charges_open_newest").await;
        check_ordered_by_index(&db, STOP_BY_TIME, "charges_newest").await;
        check_ordered_by_index(&db, STOP_BY_PHONE, "charges_of_phone").await;
        check_ordered_by_index(&db, BY_EMAIL, "charges_of_email").await;
        check_ordered_by_index(&db, STOP_BY_EMAIL, "charges_of_email").await;
        let by_reference = plan(&db, BY_REFERENCE).await;
        let is_by_key = by_reference.contains("charges_reference_key")
            || by_reference.contains(
                "charges USING INDEX sqlite_autoindex_charges_2 (reference>? AND reference<?)",
            );
        assert!(is_by_key, "{by_reference}");
        let by_session = plan(&db, BY_SESSION).await;
        assert!(by_session.contains("charges_number"), "{by_session}");
        let open = plan(&db, COUNT_OPEN).await;
        assert!(open.contains("charges_open_newest"), "{open}");
        db.close().await;
    }

    #[test]
    fn every_shown_state_is_found_by_its_status() {
        for state in State::ALL {
            for status in ChargeStatus::ALL {
                let is_found = states_of(*status).contains(state);
                assert_eq!(is_found, state.shown() == Some(*status), "{state} {status}");
            }
        }
    }
}
