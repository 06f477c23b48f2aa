create table merchants (
    merchant_id uuid primary key,
    name text not null,
    email text not null,
    email_verified boolean not null,
    -- null: no KYC record was submitted (spec §3.3)
    kyc_status text check (kyc_status in ('PENDING', 'IN_REVIEW', 'APPROVED', 'REJECTED', 'EXPIRED')),
    accepting_payments boolean not null,
    created_at timestamptz not null
);

create table api_keys (
    key_id uuid primary key,
    merchant_id uuid not null references merchants (merchant_id),
    -- SHA-256 of the whole key, in hex. The key itself is kept nowhere.
    key_sha256 text not null unique,
    label text not null,
    -- the key's last four characters
    hint text not null,
    created_at timestamptz not null,
    revoked_at timestamptz
);

create index api_keys_of_merchant on api_keys (merchant_id, key_id);
