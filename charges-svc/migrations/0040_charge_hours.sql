-- Merchants' charges, counted by the hour in which they were created, so that nobody has to count a
-- week of them again. Without void ones.
create table charge_hours (
    merchant_id uuid not null,
    -- From when on, and until before when.
    hour timestamptz not null,
    ends_at timestamptz not null,
    provider text not null,
    currency text not null,
    -- An hour that has a state which is not an end is counted again.
    state text not null,
    -- Empty if there is none.
    failure_reason text not null,
    charges bigint not null check (charges > 0),
    amount_minor bigint not null,
    primary key (merchant_id, hour, provider, currency, state, failure_reason)
);

create index charge_hours_open on charge_hours (merchant_id, hour)
    where state not in ('SETTLED', 'FAILED');

-- Its one row says how far they are counted.
create table charge_hours_done (
    one bigint not null primary key check (one = 1),
    -- Of every merchant.
    until timestamptz not null,
    -- Of the hour that begins then: the last merchant that is counted.
    after_merchant uuid
);

insert into charge_hours_done (one, until) values (1, '1970-01-01T00:00:00.000Z');
