-- no-transaction
-- The same, of one payer.
create index concurrently if not exists charges_of_phone
    on charges (phone, merchant_id, created_at, transaction_id) where state <> 'VOID';
