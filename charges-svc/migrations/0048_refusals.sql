-- Why the first request with a key moved no money, for each that repeats it. null: it was not refused,
-- or an older version refused it, which freed the key.
alter table idempotency_keys add column refusal text;
