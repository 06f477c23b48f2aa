-- What is shown of the wallet that is debited. Null where a version recorded the transaction that was
-- not told; charges-svc adds these.
alter table transactions add column provider text;
alter table transactions add column payer_last_four text;
