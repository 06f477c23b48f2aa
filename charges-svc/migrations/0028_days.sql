-- Days of the ledger, for statements. Only ever added to: what a statement says never changes.

-- A UTC day that is over, and its blocks: those after `after_block`, up to `last_block`. It is
-- written under the lock under which blocks are sealed, and no block is sealed in it afterwards.
create table closed_days (
    -- 2026-11-24.
    day text not null primary key,
    after_block bigint not null check (after_block >= 0),
    last_block bigint not null check (last_block >= after_block),
    closed_at timestamptz not null
);

-- What each account that a closed day's blocks moved had before and after it.
create table day_balances (
    account text not null,
    currency text not null,
    day text not null,
    opening_minor bigint not null,
    closing_minor bigint not null,
    -- The times between which the day's lines of this account were posted.
    first_posted_at timestamptz not null,
    last_posted_at timestamptz not null,
    primary key (account, currency, day)
);

create index day_balances_day on day_balances (day, account, currency);

-- Closed days whose balances are also the sums of everything that was ever sealed. Statements are
-- given of these alone.
create table proven_days (
    day text not null primary key,
    proven_at timestamptz not null
);

-- Who closes and proves days.
insert into ledger_works (name, next_at, block) values ('DAYS', '1970-01-01T00:00:00.000Z', 0);
