-- Days are only ever added to, as postings and blocks are.
do $$
declare
    days text;
begin
    foreach days in array array['closed_days', 'day_balances', 'proven_days'] loop
        execute format(
            'create trigger %I before update or delete on %I
                 for each row execute function refuse_change()',
            days || '_append_only', days
        );
        execute format(
            'create trigger %I before truncate on %I
                 for each statement execute function refuse_change()',
            days || '_no_truncate', days
        );
    end loop;
end
$$;
