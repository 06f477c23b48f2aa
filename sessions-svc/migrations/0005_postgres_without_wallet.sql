-- no-transaction
-- Beside those who record. Empty once all have been added.
create index concurrently if not exists transactions_without_wallet
    on transactions (session_id, charge_number)
    where provider is null and transaction_id is not null;
