-- no-transaction
-- Beside those who publish. What a merchant lists, newest first.
create index concurrently if not exists deliveries_newest
    on deliveries (merchant_id, created_at, delivery_id);
