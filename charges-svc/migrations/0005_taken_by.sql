-- The latest moment at which the network can have taken the payment, or the latest code: the
-- network's own time for the payer counts from there.
alter table charges add column taken_by timestamptz;
-- When the payment request went out once more, under the same reference; what it needs is kept.
alter table charges add column resent_at timestamptz;
alter table charges add column merchant_name text;
