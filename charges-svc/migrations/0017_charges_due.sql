-- For SQLite: on PostgreSQL it is gone.
drop index if exists charges_due;
