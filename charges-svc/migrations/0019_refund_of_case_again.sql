-- A refund that the rail took back leaves its case's suspense to be paid out again. The table is
-- small while this is new.
drop index disbursements_of_case;

create unique index disbursements_of_case on disbursements (case_id)
    where case_id is not null and state <> 'FAILED' and reversed_at is null;
