-- Who set a payout account: the person's id in merchants-svc. null: an operator.
alter table notices add column person_id uuid;

-- What a merchant sees of its payout accounts. Few rows, so the index is built at once.
create index notices_of_merchant on notices (merchant_id, created_at, notice_id);

-- Notices are told through the outbox from now on; those from before have waited for it.
insert into outbox (id, subject, created_at, due_at, attempts)
select notice_id, 'notice', created_at, created_at, 0
from notices where account_after is not null;
