-- no-transaction
-- No version asks by it any more.
drop index concurrently if exists disbursements_listed;
