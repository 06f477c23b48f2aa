-- Both lines of a posting come in one statement, so its balance is seen once for all that a statement
-- posts, in the lines themselves. For each line at the commit, it was looked up anew.
drop trigger postings_balanced on postings;

-- Nothing of the tables' schema is searched, so neither an operator nor a table there stands in for
-- PostgreSQL's own.
create or replace function refuse_imbalance() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    unbalanced record;
begin
    select kind, subject into unbalanced from posted
        group by kind, subject, currency having sum(amount_minor) operator(pg_catalog.<>) 0
        limit 1;
    if found then
        raise exception 'the lines of % % do not balance', unbalanced.kind, unbalanced.subject
            using errcode = 'check_violation';
    end if;
    return null;
end
$$;

create trigger postings_balanced
    after insert on postings
    referencing new table as posted
    for each statement execute function refuse_imbalance();
