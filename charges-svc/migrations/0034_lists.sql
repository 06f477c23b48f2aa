-- For SQLite: on PostgreSQL they are there. `disbursements_listed` is what the version before lists
-- by, and goes with a later one.
create index if not exists charges_newest
    on charges (merchant_id, created_at, transaction_id) where state <> 'VOID';
create index if not exists charges_of_phone
    on charges (phone, merchant_id, created_at, transaction_id) where state <> 'VOID';
create index if not exists disbursements_newest
    on disbursements (merchant_id, kind, created_at, disbursement_id);
