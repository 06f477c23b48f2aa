-- Keys that people make for themselves, and when keys were last used.
-- null: an operator made it
alter table api_keys add column created_by uuid references people (person_id);
-- of the form that was sent: it makes one key. null: an operator made it
alter table api_keys add column nonce uuid;
-- to the minute. null: never, or not since this was recorded
alter table api_keys add column last_used_at timestamptz;

create unique index api_keys_of_form on api_keys (merchant_id, nonce);

-- What merchants tell about their businesses. Whether a merchant is approved stays in
-- merchants.kyc_status.
create table businesses (
    merchant_id uuid primary key references merchants (merchant_id),
    -- counts submissions
    version bigint not null,
    -- how the newest submission waits for a decision. null: it is decided
    review text check (review in ('PENDING', 'IN_REVIEW')),
    kind text not null check (kind in ('SOLE_PROPRIETOR', 'PARTNERSHIP', 'COMPANY', 'NGO')),
    registered_name text not null,
    registration_number text not null,
    tin text not null,
    activity text not null,
    -- empty: it has none
    website text not null,
    digital_address text not null,
    town text not null,
    owner_name text not null,
    owner_ghana_card text not null,
    owner_phone text not null,
    submitted_at timestamptz not null,
    -- why it was rejected: JSON, reasons by field
    reasons text not null,
    -- the last decision, also on a submission before this one
    decided_at timestamptz,
    decided_by text,
    note text,
    -- last day of the approval
    expires_on text,
    -- when the merchant is to be told that its approval ends soon, and when it ends. null: it was
    -- done, or there is nothing to do
    warns_at timestamptz,
    ends_at timestamptz
);

create index businesses_waiting on businesses (submitted_at, merchant_id) where review is not null;
create index businesses_decided on businesses (submitted_at, merchant_id) where review is null;
create index businesses_to_warn on businesses (warns_at) where warns_at is not null;
create index businesses_to_end on businesses (ends_at) where ends_at is not null;

-- Every decision that was ever made, and about what. Only added to.
create table business_decisions (
    decision_id uuid primary key,
    merchant_id uuid not null references merchants (merchant_id),
    version bigint not null,
    status text not null check (status in ('IN_REVIEW', 'APPROVED', 'REJECTED', 'EXPIRED')),
    reasons text not null,
    expires_on text,
    -- null: its last day was over
    decided_by text,
    note text not null,
    decided_at timestamptz not null,
    -- JSON: the form as it was looked at
    form text not null
);

create index business_decisions_of_merchant on business_decisions (merchant_id, decision_id);
