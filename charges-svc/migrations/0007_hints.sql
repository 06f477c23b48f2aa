-- A callback is a fact of its own, which only an answer of its rail ends: when it came, and when
-- the rail is asked for it.
alter table charges add column hinted_at timestamptz;
alter table charges add column hint_due_at timestamptz;
