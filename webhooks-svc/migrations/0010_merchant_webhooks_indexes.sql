-- For SQLite: on PostgreSQL they are there.
create index if not exists deliveries_newest on deliveries (merchant_id, created_at, delivery_id);
create index if not exists deliveries_exhausted
    on deliveries (merchant_id, created_at, delivery_id) where status = 'EXHAUSTED';
create index if not exists deliveries_replayed on deliveries (replay_id)
    where replay_id is not null;
