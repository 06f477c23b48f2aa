-- One row per merchant, locked by whoever adds to its directory or changes an identity in it.
create table directories (
    merchant_id uuid not null primary key
);

create table customers (
    customer_id text not null primary key,
    merchant_id uuid not null references directories (merchant_id),
    phone text,
    email text,
    -- the e-mail address in lower case, by which it is recognised
    email_key text,
    name text,
    created_at timestamptz not null,
    last_payment_at timestamptz,
    payments_count bigint not null,
    -- last_payment_at, or 1970 before the first payment: the order in which they are listed
    listed_at timestamptz not null,
    check (phone is not null or email_key is not null),
    unique (merchant_id, phone),
    unique (merchant_id, email_key)
);

create index customers_listed on customers (merchant_id, listed_at, created_at, customer_id);
