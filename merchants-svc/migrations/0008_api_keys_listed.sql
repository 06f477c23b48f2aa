-- For SQLite: on PostgreSQL it is there.
create index if not exists api_keys_listed
    on api_keys (merchant_id, coalesce(revoked_at, '9999-12-31T00:00:00.000Z'), key_id);
