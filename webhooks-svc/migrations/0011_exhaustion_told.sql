-- Which beginning of exhausted deliveries the merchant was told of, and until when that is enough.
alter table endpoints add column told_since timestamptz;
alter table endpoints add column told_until timestamptz;

-- Few endpoints at any time, so the index is built at once.
create index endpoints_exhausted on endpoints (exhausted_since) where exhausted_since is not null;
