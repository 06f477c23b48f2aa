create table charges (
    transaction_id uuid not null primary key,
    merchant_id uuid not null,
    session_id uuid not null,
    hosted boolean not null,
    charge_number bigint not null check (charge_number > 0),
    tx_id_display text not null,
    reference text not null unique,
    rail text not null,
    rail_reference uuid not null unique,
    callback_token text not null unique,
    amount_minor bigint not null check (amount_minor > 0),
    currency text not null,
    session_amount_minor bigint not null check (session_amount_minor > 0),
    session_currency text not null,
    rate text,
    provider text not null,
    phone text not null,
    description text,
    payer_email text,
    payer_name text,
    state text not null check (
        state in ('SUBMITTING', 'INITIATED', 'OTP_REQUIRED', 'OTP_SUBMITTING', 'SETTLED', 'FAILED', 'VOID')
    ),
    version bigint not null,
    failure_reason text,
    otp_tries bigint not null check (otp_tries between 0 and 3),
    otp_expires_at timestamptz,
    seen_at_rail boolean not null,
    mismatched boolean not null,
    submitted_at timestamptz not null,
    next_query_at timestamptz,
    hints bigint not null,
    lease_until timestamptz,
    fence uuid,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    check ((state = 'FAILED') = (failure_reason is not null))
);

create unique index charges_number on charges (session_id, charge_number);

-- A session is paid by one charge at a time, and once.
create unique index charges_open on charges (session_id)
    where state not in ('SETTLED', 'FAILED', 'VOID');
create unique index charges_settled on charges (session_id) where state = 'SETTLED';

create index charges_due on charges (next_query_at) where next_query_at is not null;
create index charges_oldest_open on charges (created_at)
    where state not in ('SETTLED', 'FAILED', 'VOID');

create table idempotency_keys (
    merchant_id uuid not null,
    operation text not null,
    key text not null,
    fingerprint text not null,
    transaction_id uuid not null unique,
    started_at timestamptz not null,
    answer_status text,
    answer_message text,
    forget_at timestamptz,
    primary key (merchant_id, operation, key)
);

create index idempotency_keys_forget_at on idempotency_keys (forget_at)
    where forget_at is not null;

-- What a rail said about a charge. The same words again are counted.
create table rail_evidence (
    transaction_id uuid not null,
    action text not null,
    outcome text not null,
    rail_text text not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    times bigint not null,
    primary key (transaction_id, action, outcome, rail_text)
);

create table cases (
    case_id uuid not null primary key,
    transaction_id uuid not null,
    kind text not null,
    detail text not null,
    suspense_minor bigint,
    suspense_currency text,
    opened_at timestamptz not null,
    closed_at timestamptz,
    closing text,
    unique (transaction_id, kind)
);

create index cases_open on cases (opened_at) where closed_at is null;

-- Double entry: the lines of one (kind, subject) sum to zero in each currency. Never changed.
create table postings (
    kind text not null,
    subject uuid not null,
    line bigint not null,
    account text not null,
    amount_minor bigint not null check (amount_minor <> 0),
    currency text not null,
    posted_at timestamptz not null,
    primary key (kind, subject, line)
);

create index postings_subject on postings (subject);

-- The sums of merchants' accounts, kept in the transactions that post to them.
create table balances (
    account text not null,
    currency text not null,
    amount_minor bigint not null,
    primary key (account, currency)
);

create table outbox (
    id uuid not null primary key,
    subject text not null,
    event_id text,
    traceparent text,
    created_at timestamptz not null,
    due_at timestamptz not null,
    attempts bigint not null,
    lease_until timestamptz,
    claim uuid
);

create index outbox_due_at on outbox (due_at);
