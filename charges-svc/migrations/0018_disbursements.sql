-- Money that goes out: payouts to merchants and refunds to payers.
create table disbursements (
    disbursement_id uuid not null primary key,
    kind text not null check (kind in ('PAYOUT', 'REFUND')),
    -- PO-… or RF-….
    shown_id text not null unique,
    merchant_id uuid not null,
    amount_minor bigint not null check (amount_minor > 0),
    currency text not null,
    -- The charge that a refund refunds, and what is shown of it.
    transaction_id uuid,
    reference text,
    session_id uuid,
    -- The case whose suspense a refund pays out. The others pay out what the merchant reserved.
    case_id uuid,
    scheduled boolean not null,
    destination_type text not null,
    provider text not null,
    account text not null,
    holder_name text,
    rail text not null,
    rail_reference uuid not null unique,
    callback_token text not null unique,
    traceparent text,
    created_at timestamptz not null,
    state text not null check (state in ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    version bigint not null,
    failure_reason text,
    updated_at timestamptz not null,
    completed_at timestamptz,
    reversed_at timestamptz,
    -- When it was made PROCESSING, before it went to the rail, and when it went there again.
    sent_at timestamptz,
    resent_at timestamptz,
    -- When it is next sent or asked about.
    next_due_at timestamptz,
    hints bigint not null,
    lease_until timestamptz,
    fence uuid,
    check ((state = 'FAILED') = (failure_reason is not null)),
    check ((state = 'COMPLETED') = (completed_at is not null)),
    check ((kind = 'REFUND') = (transaction_id is not null))
);

create index disbursements_due on disbursements (rail, next_due_at) where next_due_at is not null;

create index disbursements_listed on disbursements (merchant_id, kind, disbursement_id);

create index disbursements_of_charge on disbursements (transaction_id)
    where transaction_id is not null;

-- What counts against a rail's float.
create index disbursements_processing on disbursements (rail) where state = 'PROCESSING';

create index disbursements_open on disbursements (created_at)
    where state in ('PENDING', 'PROCESSING');

-- A case's suspense is paid out once.
create unique index disbursements_of_case on disbursements (case_id)
    where case_id is not null and state <> 'FAILED';

-- Where a merchant's payouts go.
create table payout_accounts (
    merchant_id uuid not null primary key,
    destination_type text not null,
    provider text not null,
    account text not null,
    holder_name text not null,
    -- As the rail told it.
    rail_holder_name text,
    payouts_on_request boolean not null,
    daily_settlement boolean not null,
    -- Payouts wait until then.
    held_until timestamptz not null,
    updated_at timestamptz not null
);

-- The merchants that a day's settlement has looked at, each once.
create table daily_settlements (
    merchant_id uuid not null,
    day text not null,
    disbursement_id uuid,
    settled_at timestamptz not null,
    primary key (merchant_id, day)
);

-- What merchants are to be told by mail.
create table notices (
    notice_id uuid not null primary key,
    merchant_id uuid not null,
    kind text not null,
    created_at timestamptz not null
);

-- What treasury moved by hand.
create table float_moves (
    move_id uuid not null primary key,
    rail text not null,
    direction text not null,
    amount_minor bigint not null check (amount_minor > 0),
    currency text not null,
    note text not null,
    moved_at timestamptz not null
);
