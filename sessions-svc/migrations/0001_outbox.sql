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
