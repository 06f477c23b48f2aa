//! All SQL on what charges-svc reports: transactions, and the sessions that follow them.

use std::collections::HashMap;

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, CustomerId, MerchantId, SessionId},
    money::Currency,
    phone::Phone,
};
use db::{Db, Joint, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use super::{
    KEYS,
    customers::{self, PaymentCount},
    insert_sessions,
};
use crate::{
    change::{Change, Found, RecordedCharge, SessionChange},
    customer::Payer,
    report::{Report, Step},
    session::{Origin, Session, SessionStatus, Tally},
    transaction::Transaction,
};

/// Locks these sessions until the transaction ends.
pub async fn lock_sessions(tx: &mut Tx, sessions: &[SessionId]) -> Result<()> {
    let _locked: Vec<(SessionId,)> = tx
        .sql_set(
            "given (session_id uuid)
             select sessions.session_id
             from given join sessions on sessions.session_id = given.session_id
             order by sessions.session_id for update",
            sessions.len(),
        )
        .column(sessions.iter().copied())
        .all()
        .await?;
    Ok(())
}

/// Locks the sessions of these reports, one report for each session, and reads what is recorded.
///
/// If it had to wait for a session, its charges may be older than the session: [`write`] finds out.
/// Other customers are counted, as in [`customers::count_payments`].
pub async fn look(tx: &mut Tx, reports: &[&Report]) -> Result<Vec<Found>> {
    let rows: Vec<FoundRow> = tx
        .sql_set(
            "given (session_id uuid, charge_number bigint, wallet text)
             select given.session_id as reported_id,
                    s.session_id, s.merchant_id, s.origin, s.amount_minor, s.currency,
                    s.description, s.redirect_url, s.payer_phone, s.payer_email, s.payer_name,
                    s.customer_id, s.status, s.created_at, s.expires_at,
                    customers.customer_id is not null and customers.phone is null
                        and (
                            select count(*) from customers other
                            where other.merchant_id = customers.merchant_id
                                and other.phone = given.wallet
                        ) = 0 as customer_may_learn,
                    own.version, own.status = 'SETTLED' as is_settled,
                    case when own.status <> 'WITHDRAWN' then own.transaction_id end as holder,
                    coalesce(rest.settled, 0) as settled,
                    coalesce(rest.in_flight, 0) as in_flight,
                    coalesce(rest.failed, 0) as failed,
                    coalesce(rest.versions, 0) as versions
             from given
             left join (
                 select sessions.*
                 from given join sessions on sessions.session_id = given.session_id
                 order by sessions.session_id for update
             ) s on s.session_id = given.session_id
             left join customers on customers.customer_id = s.customer_id
             left join transactions own
                 on own.session_id = given.session_id and own.charge_number = given.charge_number
             left join (
                 select given.session_id,
                        count(*) filter (where t.status = 'SETTLED') as settled,
                        count(*) filter (where t.status in ('INITIATED', 'OTP_REQUIRED'))
                            as in_flight,
                        count(*) filter (where t.status = 'FAILED') as failed,
                        cast(sum(t.version) as bigint) as versions
                 from given join transactions t
                     on t.session_id = given.session_id
                     and t.charge_number <> given.charge_number
                 group by given.session_id
             ) rest on rest.session_id = given.session_id",
            reports.len(),
        )
        .column(reports.iter().map(|report| report.session_id))
        .column(reports.iter().map(|report| i64::from(report.charge_number)))
        .column(
            reports
                .iter()
                .map(|report| report.step.paid_from().cloned()),
        )
        .all()
        .await?;
    let mut found: HashMap<SessionId, Found> = rows
        .into_iter()
        .map(|row| (row.reported_id, row.found()))
        .collect();
    let found = reports
        .iter()
        .map(|report| found.remove(&report.session_id));
    found.collect::<Option<_>>().ok_or(db::Error::RowNotFound)
}

#[derive(FromRow)]
struct FoundRow {
    reported_id: SessionId,
    #[sqlx(flatten)]
    session: SessionColumns,
    customer_may_learn: bool,
    version: Option<i64>,
    is_settled: Option<bool>,
    holder: Option<ChargeId>,
    #[sqlx(flatten)]
    others: Tally,
    versions: i64,
}

/// All null if there is no session; otherwise only those that are optional in [`Session`] may be.
#[derive(FromRow)]
struct SessionColumns {
    session_id: Option<SessionId>,
    merchant_id: Option<MerchantId>,
    origin: Option<Origin>,
    amount_minor: Option<i64>,
    currency: Option<Currency>,
    description: Option<String>,
    redirect_url: Option<String>,
    payer_phone: Option<Phone>,
    payer_email: Option<String>,
    payer_name: Option<String>,
    customer_id: Option<CustomerId>,
    status: Option<SessionStatus>,
    created_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
}

impl SessionColumns {
    fn session(self) -> Option<Session> {
        Some(Session {
            session_id: self.session_id?,
            merchant_id: self.merchant_id?,
            origin: self.origin?,
            amount_minor: self.amount_minor?,
            currency: self.currency?,
            description: self.description,
            redirect_url: self.redirect_url,
            payer: Payer {
                phone: self.payer_phone,
                email: self.payer_email,
                name: self.payer_name,
            },
            customer_id: self.customer_id,
            status: self.status?,
            created_at: self.created_at?,
            expires_at: self.expires_at?,
        })
    }
}

impl FoundRow {
    fn found(self) -> Found {
        let charge = self.version.map(|version| RecordedCharge {
            version,
            is_settled: self.is_settled == Some(true),
            holder: self.holder,
        });
        Found {
            session: self.session.session(),
            customer_may_learn: self.customer_may_learn,
            charge,
            others: self.others,
            others_versions: self.versions,
        }
    }
}

/// Writes these changes, one for each session, and counts the payments. `false`: a session or a
/// charge was not as it had been read, so the transaction must not be committed.
pub async fn write(tx: &mut Tx, changes: &[Change<'_>], payments: &[PaymentCount]) -> Result<bool> {
    let opened_or_updated: Vec<_> = changes
        .iter()
        .filter_map(|change| Some((change, change.report.step.transaction()?)))
        .collect();
    let withdrawn = |is_new: bool| -> Vec<&Change<'_>> {
        changes
            .iter()
            .filter(|change| matches!(change.report.step, Step::Withdraw))
            .filter(|change| change.was.is_none() == is_new)
            .collect()
    };
    let inserted: Vec<&Session> = changes
        .iter()
        .filter_map(|change| change.session.inserted())
        .collect();
    let moved: Vec<(SessionId, SessionStatus)> = changes
        .iter()
        .filter_map(|change| Some((change.report.session_id, change.session.status()?)))
        .collect();
    let deleted: Vec<SessionId> = changes
        .iter()
        .filter(|change| matches!(change.session, SessionChange::Delete))
        .map(|change| change.report.session_id)
        .collect();
    let (withdrawn_new, withdrawn) = (withdrawn(true), withdrawn(false));

    let ended: Vec<(Uuid, Timestamp)> = changes
        .iter()
        .filter(|change| change.frees_key)
        .map(|change| (change.report.session_id.uuid(), change.now))
        .collect();
    let joint = upsert_transactions(tx.joint(), &opened_or_updated);
    let joint = insert_tombstones(joint, &withdrawn_new);
    let joint = withdraw(joint, &withdrawn);
    let joint = insert_sessions(joint, &inserted);
    let joint = update_statuses(joint, &moved);
    let joint = delete_sessions(joint, &deleted);
    let joint = customers::count_payments(joint, payments);
    let joint = KEYS.forget_later_set(joint, &ended);
    let [written @ .., _keys] = joint.rows_affected::<8>().await?;
    let wanted = [
        opened_or_updated.len(),
        withdrawn_new.len(),
        withdrawn.len(),
        inserted.len(),
        moved.len(),
        deleted.len(),
        payments.len(),
    ];
    Ok(written == wanted.map(|rows| rows as u64))
}

/// Opens these charges and the sessions that they bring, one each, in a transaction of its own. If
/// one was there before, nothing is written and it fails with [`is_incomplete`](db::is_incomplete) or
/// [`is_unique_violation`](db::is_unique_violation).
pub async fn open(db: &Db, changes: &[Change<'_>]) -> Result<()> {
    let mut opened: Vec<_> = changes
        .iter()
        .filter_map(|change| Some((change, change.report.step.transaction()?)))
        .collect();
    // In the order in which everybody locks them: it may be a repeat.
    opened.sort_by_key(|(change, _)| change.report.session_id);
    let sessions: Vec<&Session> = changes
        .iter()
        .filter_map(|change| change.session.inserted())
        .collect();
    let joint = upsert_transactions(db.joint(), &opened).whole();
    insert_sessions(joint, &sessions).run().await
}

/// Nothing happens to a charge that was recorded in this version or a newer one, or has settled, nor
/// if another charge of its session is no longer as it was read.
const UPSERT_TRANSACTIONS: &str =
    "given (session_id uuid, charge_number bigint, version bigint, status text,
            transaction_id uuid, tx_id_display text, method text, failure_reason text,
            failure_message text, settled_minor bigint, settled_currency text, rate text,
            provider text, payer_last_four text,
            created_at timestamptz, updated_at timestamptz, others_versions bigint)
     insert into transactions
         (session_id, charge_number, version, status, transaction_id, tx_id_display,
          method, failure_reason, failure_message, settled_minor, settled_currency, rate,
          provider, payer_last_four, created_at, updated_at)
     select given.session_id, given.charge_number, given.version, given.status,
            given.transaction_id, given.tx_id_display, given.method,
            given.failure_reason, given.failure_message, given.settled_minor,
            given.settled_currency, given.rate, given.provider, given.payer_last_four,
            given.created_at, given.updated_at
     from given
     where given.others_versions = (
         select coalesce(sum(t.version), 0) from transactions t
         where t.session_id = given.session_id and t.charge_number <> given.charge_number
     )
     on conflict (session_id, charge_number) do update
     set version = excluded.version, status = excluded.status,
         transaction_id = excluded.transaction_id,
         tx_id_display = excluded.tx_id_display, method = excluded.method,
         failure_reason = excluded.failure_reason,
         failure_message = excluded.failure_message,
         settled_minor = excluded.settled_minor,
         settled_currency = excluded.settled_currency, rate = excluded.rate,
         provider = coalesce(excluded.provider, transactions.provider),
         payer_last_four = coalesce(excluded.payer_last_four, transactions.payer_last_four),
         created_at = excluded.created_at, updated_at = excluded.updated_at
     where transactions.version < excluded.version and transactions.status <> 'SETTLED'";

fn upsert_transactions<'c>(joint: Joint<'c>, changes: &[(&Change<'_>, &Transaction)]) -> Joint<'c> {
    let settlements = || changes.iter().map(|(_, charge)| charge.settlement.as_ref());
    let wallets = || changes.iter().map(|(_, charge)| charge.wallet.as_ref());
    let joint = joint.sql_set(UPSERT_TRANSACTIONS, changes.len());
    report_columns(joint, changes.iter().map(|(change, _)| change.report))
        .column(changes.iter().map(|(_, charge)| charge.status))
        .column(changes.iter().map(|(_, charge)| charge.transaction_id))
        .column(changes.iter().map(|(_, charge)| &charge.tx_id_display))
        .column(changes.iter().map(|(_, charge)| &charge.method))
        .column(changes.iter().map(|(_, charge)| &charge.failure_reason))
        .column(changes.iter().map(|(_, charge)| &charge.failure_message))
        .column(settlements().map(|settled| Some(settled?.amount.minor_units())))
        .column(settlements().map(|settled| Some(settled?.amount.currency())))
        .column(settlements().map(|settled| Some(&settled?.rate)))
        .column(wallets().map(|wallet| Some(&wallet?.provider)))
        .column(wallets().map(|wallet| Some(&wallet?.last_four)))
        .column(changes.iter().map(|(_, charge)| charge.created_at))
        .column(changes.iter().map(|(_, charge)| charge.updated_at))
        .column(changes.iter().map(|(change, _)| change.others_versions))
}

/// Binds which charges these are about, and the versions that they bring.
fn report_columns<'c, 'r>(
    joint: Joint<'c>,
    reports: impl Iterator<Item = &'r Report> + Clone,
) -> Joint<'c> {
    joint
        .column(reports.clone().map(|report| report.session_id))
        .column(
            reports
                .clone()
                .map(|report| i64::from(report.charge_number)),
        )
        .column(reports.map(|report| i64::from(report.version)))
}

/// Keeps places of charges that were never seen, so that they cannot be opened any more.
fn insert_tombstones<'c>(joint: Joint<'c>, withdrawn: &[&Change<'_>]) -> Joint<'c> {
    let joint = joint.sql_set(
        "given (session_id uuid, charge_number bigint, version bigint, others_versions bigint)
             insert into transactions (session_id, charge_number, version, status)
             select given.session_id, given.charge_number, given.version, 'WITHDRAWN'
             from given
             where given.others_versions = (
                 select coalesce(sum(t.version), 0) from transactions t
                 where t.session_id = given.session_id and t.charge_number <> given.charge_number
             )
             on conflict (session_id, charge_number) do nothing",
        withdrawn.len(),
    );
    report_columns(joint, withdrawn.iter().map(|change| change.report))
        .column(withdrawn.iter().map(|change| change.others_versions))
}

/// Withdraws charges that were recorded before.
fn withdraw<'c>(joint: Joint<'c>, withdrawn: &[&Change<'_>]) -> Joint<'c> {
    let joint = joint.sql_set(
        "given (session_id uuid, charge_number bigint, version bigint, was bigint,
                    others_versions bigint)
             update transactions set version = given.version, status = 'WITHDRAWN'
             from given
             where transactions.session_id = given.session_id
                 and transactions.charge_number = given.charge_number
                 and transactions.version = given.was and transactions.status <> 'SETTLED'
                 and given.others_versions = (
                     select coalesce(sum(t.version), 0) from transactions t
                     where t.session_id = given.session_id
                         and t.charge_number <> given.charge_number
                 )",
        withdrawn.len(),
    );
    report_columns(joint, withdrawn.iter().map(|change| change.report))
        .column(withdrawn.iter().map(|change| change.was))
        .column(withdrawn.iter().map(|change| change.others_versions))
}

fn update_statuses<'c>(joint: Joint<'c>, moved: &[(SessionId, SessionStatus)]) -> Joint<'c> {
    joint
        .sql_set(
            "given (session_id uuid, status text)
             update sessions set status = given.status
             from given where sessions.session_id = given.session_id",
            moved.len(),
        )
        .column(moved.iter().map(|(id, _)| *id))
        .column(moved.iter().map(|(_, status)| *status))
}

fn delete_sessions<'c>(joint: Joint<'c>, deleted: &[SessionId]) -> Joint<'c> {
    joint
        .sql_set(
            "given (session_id uuid)
             delete from sessions
             where session_id = any(array(select given.session_id from given))",
            deleted.len(),
        )
        .column(deleted.iter().copied())
}
