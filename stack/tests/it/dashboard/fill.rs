//! Tables as full as those of a merchant that has sold for long.

use uuid::Uuid;

use super::{
    Person,
    plans::{connect, run},
};
use crate::shop::Shop;

/// How many rows each table gets. Half of them are the merchant's.
pub const ROWS: u32 = 20_000;

/// Fills the tables of every service for this person's merchant and many others.
pub async fn all(shop: &Shop, person: &Person) {
    let merchant = &person.merchant_id;
    for (service, statements) in [
        ("merchants-svc", &MERCHANTS[..]),
        ("sessions-svc", &SESSIONS),
        ("charges-svc", &CHARGES),
        ("webhooks-svc", &WEBHOOKS),
    ] {
        let mut conn = connect(shop, service).await;
        let other = Uuid::new_v4();
        run(
            &mut conn,
            "set auto_explain.log_min_duration = -1".to_owned(),
        )
        .await;
        for statement in statements {
            let statement = statement
                .replace("$merchant", &format!("'{merchant}'::uuid"))
                .replace("$other", &format!("'{other}'::uuid"))
                // Whose it is, of row n.
                .replace(
                    "$of_n",
                    &format!("case n % 2 when 0 then '{merchant}'::uuid else '{other}'::uuid end"),
                )
                .replace("$rows", &ROWS.to_string())
                .replace("$at", "now() - n * interval '1 minute'");
            run(&mut conn, statement).await;
        }
        run(&mut conn, "analyze".to_owned()).await;
    }
}

const MERCHANTS: [&str; 9] = [
    "insert into merchants
        (merchant_id, name, email, email_verified, kyc_status, accepting_payments, created_at)
     select case n when 1 then $other else gen_random_uuid() end, 'Shop ' || n,
            'shop' || n || '@example.com', true, 'APPROVED', true, $at
     from generate_series(1, 5000) n",
    "insert into people (person_id, email, verified_at, password_hash, created_at)
     select gen_random_uuid(), 'person' || n || '@example.com', now(), '', $at
     from generate_series(1, 5000) n",
    "insert into memberships (person_id, merchant_id, role, created_at)
     select person_id, $other, 'OWNER', created_at from people
     where email like 'person%@example.com'",
    "insert into activities
        (activity_id, merchant_id, person_id, action, object, address, user_agent, created_at)
     select gen_random_uuid(), $of_n, person_id, 'KEY_CREATED', '', '127.0.0.1', 'test', $at
     from generate_series(1, $rows) n,
          (select person_id from memberships where merchant_id = $merchant limit 1) people",
    "insert into logins
        (login_id, person_id, token_sha256, needs_code, address, user_agent, created_at,
         last_seen_at, confirmed_at, ended_at)
     select gen_random_uuid(), person_id, md5('login' || n), false, '127.0.0.1', 'test', $at, $at,
            $at, $at
     from generate_series(1, $rows) n,
          (select person_id from memberships where merchant_id = $merchant limit 1) people",
    "insert into logins
        (login_id, person_id, token_sha256, needs_code, address, user_agent, created_at,
         last_seen_at, confirmed_at)
     select gen_random_uuid(), person_id, md5('other' || person_id), false, '127.0.0.1', 'test',
            now(), now(), now()
     from people",
    "insert into api_keys (key_id, merchant_id, key_sha256, label, hint, created_at, revoked_at)
     select gen_random_uuid(), merchant_id, md5('key' || n || merchant_id), 'till', 'abcd', $at, now()
     from generate_series(1, 4) n, merchants where merchant_id <> $merchant",
    "insert into businesses
        (merchant_id, version, review, kind, registered_name, registration_number, tin, activity,
         website, digital_address, town, owner_name, owner_ghana_card, owner_phone, submitted_at,
         reasons)
     select merchant_id, 1, 'PENDING', 'COMPANY', name, 'CS123456789', 'C0001234567', 'Sells', '',
            'GA-144-1234', 'Accra', 'Ama', 'GHA-123456789-0', '+233240000001', created_at, '[]'
     from merchants where merchant_id <> $merchant",
    "insert into business_decisions
        (decision_id, merchant_id, version, status, reasons, note, decided_at, form)
     select gen_random_uuid(), merchant_id, 1, 'REJECTED', '[]', '', now(), '{}' from businesses",
];

const SESSIONS: [&str; 4] = [
    "insert into directories (merchant_id) values ($merchant), ($other) on conflict do nothing",
    "insert into customers
        (customer_id, merchant_id, phone, email, email_key, name, created_at, payments_count,
         listed_at)
     select 'CUS-' || lpad(n::text, 10, '0'), $of_n, '+23324' || lpad(n::text, 7, '0'),
            'payer' || n || '@example.com', 'payer' || n || '@example.com', 'Kofi', $at, 1, $at
     from generate_series(1, $rows) n",
    "insert into sessions
        (session_id, merchant_id, origin, amount_minor, currency, customer_id, status, created_at,
         expires_at)
     select md5('session' || n)::uuid, $of_n, 'DIRECT', 2550, 'GHS',
            'CUS-' || lpad(n::text, 10, '0'), 'COMPLETED', $at, $at + interval '1 day'
     from generate_series(1, $rows) n",
    "insert into transactions
        (session_id, charge_number, version, status, transaction_id, tx_id_display, method,
         created_at, updated_at, provider, payer_last_four)
     select md5('session' || n)::uuid, 1, 3, 'SETTLED', md5('charge' || n)::uuid,
            'TX-' || lpad(n::text, 10, '0'), 'MOBILE_MONEY', $at, $at, 'MTN', '0001'
     from generate_series(1, $rows) n",
];

const CHARGES: [&str; 4] = [
    // One in a hundred is of another network, and one in a thousand has failed.
    "insert into charges
        (transaction_id, merchant_id, session_id, hosted, charge_number, tx_id_display, reference,
         rail, rail_reference, callback_token, amount_minor, currency, session_amount_minor,
         session_currency, provider, phone, state, version, failure_reason, otp_tries, seen_at_rail,
         mismatched, submitted_at, hints, created_at, updated_at, payer_email)
     select md5('charge' || n)::uuid, $of_n, md5('session' || n)::uuid, false, 1,
            'TX-' || lpad(n::text, 10, '0'), 'TX-' || lpad(n::text, 10, '0') || '-000000', 'MOMO',
            gen_random_uuid(), gen_random_uuid()::text, 2550, 'GHS', 2550, 'GHS',
            case n % 100 when 0 then 'TELECEL' else 'MTN' end,
            '+23324' || lpad((n % 100)::text, 7, '0'),
            case n % 1000 when 2 then 'FAILED' else 'SETTLED' end, 3,
            case n % 1000 when 2 then 'PAYER_DECLINED' end, 0, true, false, $at, 0, $at, $at,
            'Payer' || (n % 100) || '@example.com'
     from generate_series(1, $rows) n",
    "insert into rail_evidence
        (transaction_id, action, outcome, rail_text, first_at, last_at, times)
     select md5('charge' || n)::uuid, 'QUERY', 'SETTLED', '', $at, $at, 1
     from generate_series(1, $rows) n",
    "insert into disbursements
        (disbursement_id, kind, shown_id, merchant_id, amount_minor, currency, transaction_id,
         reference, session_id, scheduled, destination_type, provider, account, holder_name, rail,
         rail_reference, callback_token, created_at, state, version, failure_reason, updated_at,
         completed_at, hints)
     select gen_random_uuid(), kind, prefix || lpad(n::text, 10, '0'), $of_n, 100, 'GHS',
            case kind when 'REFUND' then md5('charge' || n)::uuid end,
            case kind when 'REFUND' then 'TX-' || lpad(n::text, 10, '0') || '-000000' end,
            case kind when 'REFUND' then md5('session' || n)::uuid end, false, 'MOBILE_MONEY', 'MTN',
            '+233240000001', 'Ama', 'MOMO', gen_random_uuid(), gen_random_uuid()::text, $at,
            case n % 1000 when 2 then 'FAILED' else 'COMPLETED' end, 2,
            case n % 1000 when 2 then 'PAYEE_NOT_FOUND' end, $at,
            case when n % 1000 <> 2 then $at end, 0
     from generate_series(1, $rows) n,
          (values ('PAYOUT', 'PO-'), ('REFUND', 'RF-')) kinds (kind, prefix)",
    "insert into day_balances
        (account, currency, day, opening_minor, closing_minor, first_posted_at, last_posted_at)
     select 'merchant:' || $of_n, 'GHS', (current_date - n)::text, 0, 0, now(), now()
     from generate_series(1, 2000) n",
];

const WEBHOOKS: [&str; 7] = [
    "insert into endpoints
        (endpoint_id, merchant_id, url, events, enabled, secret, created_at, updated_at)
     select gen_random_uuid(), case n when 1 then $other else gen_random_uuid() end, url, events,
            enabled, secret, created_at, updated_at
     from generate_series(1, 2000) n, endpoints where merchant_id = $merchant",
    "insert into event_counters (merchant_id, last) values ($merchant, $rows), ($other, $rows)
     on conflict (merchant_id) do update set last = excluded.last",
    "insert into events (event_id, merchant_id, event_type, body, created_at, sequence)
     select 'evt_' || lpad(n::text, 26, '0'), $of_n, 'payment.success', '{}', $at, n
     from generate_series(1, $rows) n",
    // One in a thousand was given up, and of one in ten the receiver refused an attempt.
    "insert into deliveries
        (delivery_id, event_id, event_type, merchant_id, endpoint_id, status, attempts_count,
         failures, manual_waiting, manual_running, created_at)
     select 'dlv_' || lpad(n::text, 26, '0'), 'evt_' || lpad(n::text, 26, '0'), 'payment.success',
            $of_n, endpoint_id, case n % 1000 when 2 then 'EXHAUSTED' else 'DELIVERED' end, 2, 0, 0,
            false, now() - n * interval '1 second'
     from generate_series(1, $rows) n join endpoints on merchant_id = $of_n",
    "insert into attempts
        (delivery_id, number, manual, started_at, finished_at, succeeded, http_status, error,
         duration_ms, cause)
     select 'dlv_' || lpad(n::text, 26, '0'), number, false, $at, $at,
            number = 2 and n % 1000 <> 2, case when number = 2 and n % 1000 <> 2 then 200 else 500 end,
            case when number = 1 or n % 1000 = 2 then 'answered 500' end, 12,
            case when number = 1 or n % 1000 = 2 then 'STATUS' end
     from generate_series(1, $rows) n, generate_series(1, 2) number",
    "insert into replays
        (replay_id, merchant_id, nonce, since, matched, queued_at, queued_id, queued, delivered,
         failed, created_at, finished_at)
     select gen_random_uuid(), $of_n, gen_random_uuid(), $at, 1, $at, '', 1, 1, 0, $at, $at
     from generate_series(1, 5000) n",
    "insert into trials (merchant_id, begun_at, started)
     select gen_random_uuid(), now(), 1 from generate_series(1, 2000) n",
];
