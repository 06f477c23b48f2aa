-- What other services had to tell a merchant and was mailed: it is not mailed again. A row is small
-- and notices are rare, so they are kept.
create table told_notices (
    notice_id uuid primary key,
    merchant_id uuid not null references merchants (merchant_id),
    kind text not null,
    told_at timestamptz not null
);
