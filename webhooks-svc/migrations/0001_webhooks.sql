create table endpoints (
    endpoint_id uuid not null primary key,
    merchant_id uuid not null unique,
    url text not null,
    -- event types with commas between; empty: all of them
    events text not null,
    enabled boolean not null,
    -- signing secrets, encrypted: id of the key, a dot, base64
    secret text not null,
    previous_secret text,
    -- until when the previous secret signs too
    previous_signs_until timestamptz,
    -- since when deliveries end without success
    exhausted_since timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null
);

create table events (
    event_id text not null primary key,
    merchant_id uuid not null,
    event_type text not null,
    -- the exact bytes of every attempt, for ever
    body text not null,
    -- the trace in which the event was published
    traceparent text,
    created_at timestamptz not null
);

create table deliveries (
    delivery_id text not null primary key,
    event_id text not null unique references events (event_id),
    event_type text not null,
    merchant_id uuid not null,
    endpoint_id uuid not null references endpoints (endpoint_id),
    status text not null check (status in ('PENDING', 'DELIVERED', 'EXHAUSTED')),
    -- attempts begun, manual ones included
    attempts_count bigint not null,
    -- failures that count for the schedule
    failures bigint not null,
    -- when the schedule tries next; null unless PENDING
    next_attempt_at timestamptz,
    -- attempts asked for by hand that have not begun
    manual_waiting bigint not null,
    -- whether the attempt that runs was asked for by hand
    manual_running boolean not null,
    -- when any attempt is due; not looked at while one runs
    due_at timestamptz,
    -- held by who runs an attempt, until lease_until (real time)
    claim uuid,
    lease_until timestamptz,
    created_at timestamptz not null
);

create index deliveries_waiting on deliveries (endpoint_id, due_at)
    where claim is null and due_at is not null;
create index deliveries_running on deliveries (endpoint_id) where claim is not null;
create index deliveries_leased on deliveries (lease_until) where claim is not null;
create index deliveries_of_merchant on deliveries (merchant_id, delivery_id);

create table attempts (
    delivery_id text not null references deliveries (delivery_id),
    number bigint not null,
    manual boolean not null,
    started_at timestamptz not null,
    -- null while it runs
    finished_at timestamptz,
    succeeded boolean not null,
    http_status bigint,
    error text,
    duration_ms bigint not null,
    response_excerpt text,
    primary key (delivery_id, number)
);
