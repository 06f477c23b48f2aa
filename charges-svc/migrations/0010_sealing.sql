-- The ledger's seal: blocks of postings, each hashed with the one before it. charges-svc/src/seal.rs
-- says over which bytes. Only ever added to.
create table blocks (
    number bigint not null primary key check (number > 0),
    hash text not null,
    sealed_at timestamptz not null
);

-- Which block holds a posting. It is written before its block, in one transaction.
create table sealed_postings (
    kind text not null,
    subject uuid not null,
    block bigint not null,
    primary key (kind, subject)
);

create index sealed_postings_block on sealed_postings (block);

-- Postings that wait for their block. A row is written with its posting and goes when it is sealed,
-- so that what commits late is sealed late and never missed.
create table unsealed_postings (
    kind text not null,
    subject uuid not null,
    -- When it was posted, or found.
    since timestamptz not null,
    primary key (kind, subject)
);

-- What one replica does for all, and when it is next to be done: a moment later than now is a claim,
-- or a pause.
create table ledger_works (
    name text not null primary key,
    next_at timestamptz not null,
    -- Of a check: the last block that was looked at.
    block bigint not null,
    -- Of QUEUE, which queues what was posted before there was a queue: the last posting it did.
    kind text,
    subject uuid,
    -- When it last came to its end.
    ended_at timestamptz
);

insert into ledger_works (name, next_at, block) values
    ('SEAL', '1970-01-01T00:00:00.000Z', 0),
    ('QUEUE', '1970-01-01T00:00:00.000Z', 0),
    ('CHECK', '1970-01-01T00:00:00.000Z', 0),
    ('WHOLE', '1970-01-01T00:00:00.000Z', 0);
