-- Who set a payout account: the person's id in merchants-svc. null: an operator.
alter table notices add column person_id uuid;

-- When the merchant was told of it. null: not yet.
alter table notices add column told_at timestamptz;

-- Notices that do not say which account was set can tell nothing.
update notices set told_at = created_at where account_after is null;

-- Few rows, so both are built at once. What a merchant sees of its payout accounts, and what it has
-- not been told.
create index notices_of_merchant on notices (merchant_id, created_at, notice_id);
create index notices_untold on notices (created_at, notice_id) where told_at is null;
