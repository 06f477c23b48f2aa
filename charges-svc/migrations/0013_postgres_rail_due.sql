-- no-transaction
-- Then by the schedule.
create index concurrently if not exists charges_rail_due on charges (rail, next_query_at)
    where next_query_at is not null;
