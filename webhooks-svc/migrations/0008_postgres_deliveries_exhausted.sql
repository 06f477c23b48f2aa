-- no-transaction
create index concurrently if not exists deliveries_exhausted
    on deliveries (merchant_id, created_at, delivery_id) where status = 'EXHAUSTED';
