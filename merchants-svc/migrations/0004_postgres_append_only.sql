-- Decisions are only ever added to, whatever a program or a person tries.
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name;
end
$$;

create trigger business_decisions_append_only
    before update or delete on business_decisions
    for each row execute function refuse_change();

create trigger business_decisions_no_truncate
    before truncate on business_decisions
    for each statement execute function refuse_change();
