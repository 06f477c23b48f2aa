-- For SQLite: on PostgreSQL they are there. `charges_due` is what the version before asks by, and
-- goes with a later one.
create index if not exists charges_hinted on charges (rail, hint_due_at)
    where hint_due_at is not null;
create index if not exists charges_rail_due on charges (rail, next_query_at)
    where next_query_at is not null;
