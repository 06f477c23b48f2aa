create table people (
    person_id uuid primary key,
    -- in lower case
    email text not null unique,
    verified_at timestamptz,
    -- argon2id, as a PHC string
    password_hash text not null,
    -- both encrypted; the second one counts only once a right code has confirmed it
    totp_secret text,
    totp_pending text,
    -- time step of the last code that was taken: none is taken twice
    totp_last_step bigint,
    created_at timestamptz not null
);

create table memberships (
    person_id uuid not null references people (person_id),
    merchant_id uuid not null references merchants (merchant_id),
    role text not null check (role in ('OWNER')),
    created_at timestamptz not null,
    primary key (person_id, merchant_id)
);

create index memberships_of_merchant on memberships (merchant_id, person_id);

create table logins (
    login_id uuid primary key,
    person_id uuid not null references people (person_id),
    -- SHA-256 of the token, in hex. The token itself is kept nowhere.
    token_sha256 text not null unique,
    -- whether the password was right and a code must follow
    needs_code boolean not null,
    address text not null,
    user_agent text not null,
    created_at timestamptz not null,
    -- to the minute
    last_seen_at timestamptz not null,
    -- when the password or a code was last taken
    confirmed_at timestamptz not null,
    ended_at timestamptz
);

create index logins_of_person on logins (person_id, last_seen_at, login_id);
create index logins_last_seen_at on logins (last_seen_at);

create table links (
    -- SHA-256 of the mailed token, in hex. The token itself is kept nowhere.
    token_sha256 text primary key,
    person_id uuid not null references people (person_id),
    purpose text not null,
    expires_at timestamptz not null,
    used_at timestamptz
);

create index links_of_person on links (person_id);
create index links_expires_at on links (expires_at);

-- What somebody may try only so often, whether or not what they try it on exists.
create table tries (
    purpose text not null,
    -- SHA-256, in hex
    subject text not null,
    taken bigint not null,
    -- when they are forgotten
    ends_at timestamptz not null,
    primary key (purpose, subject)
);

create index tries_ends_at on tries (ends_at);

create table recovery_codes (
    person_id uuid not null references people (person_id),
    -- SHA-256, in hex. Deleted when it is used.
    code_sha256 text not null,
    primary key (person_id, code_sha256)
);

create table activities (
    activity_id uuid primary key,
    merchant_id uuid not null references merchants (merchant_id),
    person_id uuid not null references people (person_id),
    action text not null,
    -- what it was done to
    object text not null,
    address text not null,
    user_agent text not null,
    created_at timestamptz not null
);

create index activities_of_merchant on activities (merchant_id, created_at, activity_id);

-- Mails that are to be sent. Each is written in the transaction that makes true what it tells, and
-- deleted once the mail server has taken it.
create table mails (
    mail_id uuid primary key,
    person_id uuid not null references people (person_id),
    kind text not null,
    -- what it tells of, such as a key's name. Never a secret.
    about text not null,
    -- where the request came from
    address text not null,
    created_at timestamptz not null,
    due_at timestamptz not null,
    attempts bigint not null,
    lease_until timestamptz,
    claim uuid
);

create index mails_due_at on mails (due_at);
