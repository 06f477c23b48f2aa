-- For SQLite: on PostgreSQL it is there.
create index if not exists postings_account on postings (account, currency, posted_at);
