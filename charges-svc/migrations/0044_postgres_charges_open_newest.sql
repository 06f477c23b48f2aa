-- no-transaction
-- Beside those who charge. What has not ended of a merchant's charges, newest first.
create index concurrently if not exists charges_open_newest
    on charges (merchant_id, created_at, transaction_id)
    where state not in ('SETTLED', 'FAILED', 'VOID');
