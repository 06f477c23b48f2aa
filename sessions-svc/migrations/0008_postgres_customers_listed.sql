-- no-transaction
-- Nobody asks by it any more, and each payment wrote it.
drop index concurrently if exists customers_listed;
