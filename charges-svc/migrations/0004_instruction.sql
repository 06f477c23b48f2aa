-- What the network last asked of the payer, in its own words; the hosted checkout shows it.
alter table charges add column instruction text;
