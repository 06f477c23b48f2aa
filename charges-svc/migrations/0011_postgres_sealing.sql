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
