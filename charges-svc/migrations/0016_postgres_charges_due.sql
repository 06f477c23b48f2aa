-- no-transaction
-- No version asks by it any more, and each change of a timer wrote it. Beside those who charge.
drop index concurrently if exists charges_due;
