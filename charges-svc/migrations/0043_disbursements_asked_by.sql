-- As in 0042. Apart from it, so that nobody waits for one table while they hold the other.
alter table disbursements add column request_id text;
alter table disbursements add column key_name text;
