-- A callback is a fact of its own, which only an answer of its rail ends: when it came, and when
-- the rail is asked for it.
alter table charges add column hinted_at timestamptz;
alter table charges add column hint_due_at timestamptz;

-- Each rail is asked for itself: first about what it called about, then by the schedule.
create index charges_hinted on charges (rail, hint_due_at) where hint_due_at is not null;
drop index charges_due;
create index charges_due on charges (rail, next_query_at) where next_query_at is not null;
