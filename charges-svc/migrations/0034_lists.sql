-- For SQLite: on PostgreSQL they are there, or gone.
create index if not exists charges_newest
    on charges (merchant_id, created_at, transaction_id) where state <> 'VOID';
create index if not exists charges_of_phone
    on charges (phone, merchant_id, created_at, transaction_id) where state <> 'VOID';
create index if not exists disbursements_newest
    on disbursements (merchant_id, kind, created_at, disbursement_id);
drop index if exists disbursements_listed;
