-- What is posted balances in each currency, whatever wrote it: looked at once the transaction that
-- posted is complete, for the (kind, subject) of each new line and nothing else.
create function refuse_imbalance() returns trigger language plpgsql as $$
begin
    if exists (
        select from postings where kind = new.kind and subject = new.subject
        group by currency having sum(amount_minor) <> 0
    ) then
        raise exception 'the lines of % % do not balance', new.kind, new.subject
            using errcode = 'check_violation';
    end if;
    return null;
end
$$;

-- A temporary table must not stand in for the ledger: looked for last, it is never found.
do $$
begin
    execute format('alter function refuse_imbalance() set search_path = %I, pg_temp', current_schema());
end
$$;

create constraint trigger postings_balanced
    after insert on postings
    deferrable initially deferred
    for each row execute function refuse_imbalance();
