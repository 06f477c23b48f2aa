-- What rails' own reports say, line by line: a line is known again in whatever report it comes.
create table rail_report_lines (
    -- Made of the rail and its own id of the movement, or, without one, of all that the line says.
    line_id uuid not null primary key,
    rail text not null,
    -- The charge or the disbursement that it is about, and what people call that. Without one, what
    -- the report calls it.
    subject uuid,
    shown text not null,
    said text not null,
    -- Whether it is the first line that says so of its subject.
    is_first boolean not null,
    kept_at timestamptz not null
);

-- Where each file has a line first: its number there. A file that has it again repeats it, and
-- another file does not.
create table rail_report_places (
    line_id uuid not null,
    -- SHA-256 of the file.
    report text not null,
    number bigint not null,
    primary key (line_id, report)
);

create unique index rail_report_lines_first on rail_report_lines (subject, said) where is_first;

-- The periods of which a rail's report was compared, to its end.
create table rail_report_periods (
    rail text not null,
    direction text not null,
    from_at timestamptz not null,
    to_at timestamptz not null,
    report text not null,
    ended_at timestamptz not null,
    primary key (rail, direction, from_at, to_at)
);

-- For SQLite: on PostgreSQL it is there.
create index if not exists blocks_sealed_at on blocks (sealed_at);
