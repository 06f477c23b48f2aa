-- The feed: each merchant's events are numbered from 1 without gaps, after they were accepted. Null
-- until then, also in what an older version writes.
alter table events add column sequence bigint;

-- The last number given out to each merchant. Whoever numbers a merchant's events holds its row.
create table event_counters (
    merchant_id uuid not null primary key,
    last bigint not null
);
