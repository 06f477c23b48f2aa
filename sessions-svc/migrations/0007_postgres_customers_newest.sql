-- no-transaction
-- By a time that does not change, so that nobody moves between two pages.
create index concurrently if not exists customers_newest
    on customers (merchant_id, created_at, customer_id);
