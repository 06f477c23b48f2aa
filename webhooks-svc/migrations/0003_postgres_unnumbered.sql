-- no-transaction
-- Beside those who publish.
create index concurrently if not exists events_unnumbered on events (created_at, event_id)
    where sequence is null;
