-- no-transaction
-- By time, as every list is, and not by an id alone.
create index concurrently if not exists disbursements_newest
    on disbursements (merchant_id, kind, created_at, disbursement_id);
