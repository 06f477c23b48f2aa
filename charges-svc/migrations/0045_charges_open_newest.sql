-- For SQLite: on PostgreSQL it is there.
create index if not exists charges_open_newest
    on charges (merchant_id, created_at, transaction_id)
    where state not in ('SETTLED', 'FAILED', 'VOID');
