-- What the merchant pays for a payout beside its amount.
alter table disbursements add column fee_minor bigint not null default 0;
