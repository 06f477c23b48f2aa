-- The look at the balance found `numeric <> integer` among all operators of its search path, so that
-- one in the tables' schema fitted better than PostgreSQL's own. Now that schema is not searched.
do $migration$
begin
    execute format($function$
        create or replace function refuse_imbalance() returns trigger language plpgsql
            set search_path = pg_catalog, pg_temp
        as $$
        begin
            if exists (
                select from %I.postings where kind = new.kind and subject = new.subject
                group by currency having sum(amount_minor) operator(pg_catalog.<>) 0
            ) then
                raise exception 'the lines of %% %% do not balance', new.kind, new.subject
                    using errcode = 'check_violation';
            end if;
            return null;
        end
        $$
    $function$, current_schema());
end
$migration$;
