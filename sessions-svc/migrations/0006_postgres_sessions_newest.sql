-- no-transaction
-- What a merchant lists, newest first.
create index concurrently if not exists sessions_newest
    on sessions (merchant_id, created_at, session_id);
