-- no-transaction
-- Beside those who charge. What one payer's e-mail address was given for.
create index concurrently if not exists charges_of_email
    on charges (lower(payer_email), merchant_id, created_at, transaction_id)
    where state <> 'VOID' and payer_email is not null;
