-- Which request asked for it, and what the merchant called its API key then. null: nobody's program, or
-- an older version recorded it. Without a default, so no row is written anew.
alter table charges add column request_id text;
alter table charges add column key_name text;
