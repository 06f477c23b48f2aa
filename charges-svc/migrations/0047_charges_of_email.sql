-- For SQLite: on PostgreSQL it is there.
create index if not exists charges_of_email
    on charges (lower(payer_email), merchant_id, created_at, transaction_id)
    where state <> 'VOID' and payer_email is not null;
