-- no-transaction
-- Beside those who charge. Each rail is asked for itself: first about what it called about.
create index concurrently if not exists charges_hinted on charges (rail, hint_due_at)
    where hint_due_at is not null;
