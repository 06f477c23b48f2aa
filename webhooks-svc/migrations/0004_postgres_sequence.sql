-- no-transaction
create unique index concurrently if not exists events_sequence on events (merchant_id, sequence)
    where sequence is not null;
