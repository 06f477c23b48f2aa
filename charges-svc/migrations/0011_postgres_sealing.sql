-- Blocks are only ever added to, as postings are.
create or replace function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name;
end
$$;

create trigger blocks_append_only
    before update or delete on blocks
    for each row execute function refuse_change();

create trigger blocks_no_truncate
    before truncate on blocks
    for each statement execute function refuse_change();

create trigger sealed_postings_append_only
    before update or delete on sealed_postings
    for each row execute function refuse_change();

create trigger sealed_postings_no_truncate
    before truncate on sealed_postings
    for each statement execute function refuse_change();

-- Every posting waits for its block, whatever wrote it: a replica of the version before, too. It runs
-- as who posts.
create function queue_postings() returns trigger language plpgsql as $$
begin
    insert into unsealed_postings (kind, subject, since)
        select kind, subject, min(posted_at) from posted group by kind, subject
        on conflict (kind, subject) do nothing;
    return null;
end
$$;

-- As for `refuse_imbalance`: a temporary table must not stand in for the queue.
do $$
begin
    execute format('alter function queue_postings() set search_path = %I, pg_temp', current_schema());
end
$$;

create trigger postings_queued
    after insert on postings
    referencing new table as posted
    for each statement execute function queue_postings();
