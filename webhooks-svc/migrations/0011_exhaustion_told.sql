-- Until when the merchant is not told again that deliveries are exhausted.
alter table endpoints add column told_until timestamptz;

-- Few endpoints at any time, so the index is built at once.
create index endpoints_exhausted on endpoints (exhausted_since) where exhausted_since is not null;
