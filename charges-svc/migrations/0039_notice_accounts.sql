-- What a notice of a payout account tells, masked: which account was replaced, if one was, by which,
-- and until when payouts wait. Older notices do not tell it.
alter table notices add column account_before text;
alter table notices add column account_after text;
alter table notices add column held_until timestamptz;
