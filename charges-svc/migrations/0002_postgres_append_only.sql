-- The ledger is only ever added to, whatever a program or a person tries.
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'postings are append-only';
end
$$;

create trigger postings_append_only
    before update or delete on postings
    for each row execute function refuse_change();

create trigger postings_no_truncate
    before truncate on postings
    for each statement execute function refuse_change();
