-- no-transaction
-- An account's postings by time, for statements. Beside those who post.
create index concurrently if not exists postings_account
    on postings (account, currency, posted_at);
