-- no-transaction
create index concurrently if not exists deliveries_replayed
    on deliveries (replay_id) where replay_id is not null;
