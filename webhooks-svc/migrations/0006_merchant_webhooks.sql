-- Why an attempt failed, where it went, and the signature that it carried. Null in what an older
-- version writes.
alter table attempts add column cause text;
alter table attempts add column url text;
alter table attempts add column signature text;

-- The replay that asked for an attempt that has not ended.
alter table deliveries add column replay_id uuid;

-- A merchant's exhausted deliveries, sent once more.
create table replays (
    replay_id uuid not null primary key,
    merchant_id uuid not null,
    -- of the form that asked for it
    nonce uuid not null,
    -- sends those that were created from here on, and before the replay
    since timestamptz not null,
    -- how many there were, as far as they were counted
    matched bigint not null,
    -- the last delivery that was queued
    queued_at timestamptz not null,
    queued_id text not null,
    queued bigint not null,
    delivered bigint not null,
    failed bigint not null,
    -- when it goes on; null once it has ended
    due_at timestamptz,
    created_at timestamptz not null,
    finished_at timestamptz,
    unique (merchant_id, nonce)
);

create unique index replays_running on replays (merchant_id) where finished_at is null;
create index replays_due on replays (due_at) where due_at is not null;
create index replays_newest on replays (merchant_id, created_at, replay_id);

-- Tests and conformance runs that a merchant started within a minute, so that nobody is flooded by
-- way of us.
create table trials (
    merchant_id uuid not null primary key,
    begun_at timestamptz not null,
    started bigint not null
);

-- Each merchant's last conformance run.
create table conformance_runs (
    merchant_id uuid not null primary key,
    run_id uuid not null,
    -- encrypted, bound to the run
    secret text not null,
    url text,
    -- JSON
    results text not null,
    -- until when a process runs it (real time); null before and after
    lease_until timestamptz,
    created_at timestamptz not null,
    finished_at timestamptz
);
