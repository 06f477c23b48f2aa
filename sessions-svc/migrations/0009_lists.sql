-- For SQLite: on PostgreSQL they are there.
create index if not exists transactions_without_wallet
    on transactions (session_id, charge_number)
    where provider is null and transaction_id is not null;
create index if not exists sessions_newest on sessions (merchant_id, created_at, session_id);
create index if not exists customers_newest on customers (merchant_id, created_at, customer_id);
