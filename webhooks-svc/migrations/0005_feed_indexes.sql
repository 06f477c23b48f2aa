-- For SQLite: on PostgreSQL they are there.
create index if not exists events_unnumbered on events (created_at, event_id)
    where sequence is null;
create unique index if not exists events_sequence on events (merchant_id, sequence)
    where sequence is not null;
