-- no-transaction
-- Beside those who charge. What a merchant lists, newest first.
create index concurrently if not exists charges_newest
    on charges (merchant_id, created_at, transaction_id) where state <> 'VOID';
