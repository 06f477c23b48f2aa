-- no-transaction
-- Beside those who seal. What was booked in a period is looked for in its blocks, of which there is
-- one for up to 500 postings.
create index concurrently if not exists blocks_sealed_at on blocks (sealed_at);
