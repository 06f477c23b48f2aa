create table sessions (
    session_id uuid not null primary key,
    merchant_id uuid not null,
    -- HOSTED: made by a merchant for the checkout. DIRECT: brought by a direct charge.
    origin text not null check (origin in ('HOSTED', 'DIRECT')),
    amount_minor bigint not null check (amount_minor > 0),
    currency text not null,
    description text,
    redirect_url text,
    payer_phone text,
    payer_email text,
    payer_name text,
    -- the payer's entry in the directory, where the merchant's data named one
    customer_id text,
    -- PENDING past expires_at is shown as EXPIRED; the column follows when the event is written
    status text not null check (status in ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'EXPIRED')),
    created_at timestamptz not null,
    expires_at timestamptz not null
);

create index sessions_to_expire on sessions (expires_at) where status = 'PENDING';

-- A charge as its session shows it. No reference to sessions: a tombstone (WITHDRAWN) may come
-- before, or instead of, its session. Amount and currency are the session's.
create table transactions (
    session_id uuid not null,
    charge_number bigint not null,
    version bigint not null,
    status text not null check (status in ('INITIATED', 'OTP_REQUIRED', 'SETTLED', 'FAILED', 'WITHDRAWN')),
    -- from here on null in a tombstone of a charge that was never seen
    transaction_id uuid,
    tx_id_display text,
    method text,
    failure_reason text,
    failure_message text,
    settled_minor bigint,
    settled_currency text,
    rate text,
    created_at timestamptz,
    updated_at timestamptz,
    primary key (session_id, charge_number)
);

-- Idempotency keys; their scope is the merchant and CreateSession, the one operation that has them.
create table idempotency_keys (
    merchant_id uuid not null,
    key text not null,
    -- SHA-256 of the request's values, in hex
    fingerprint text not null,
    session_id uuid not null,
    -- set once the session is terminal
    keep_until timestamptz,
    primary key (merchant_id, key)
);

create index idempotency_keys_of_session on idempotency_keys (session_id);
create index idempotency_keys_to_forget on idempotency_keys (keep_until) where keep_until is not null;
