-- The trace of the request that began the charge: what is done for it later belongs to that trace.
alter table charges add column traceparent text;
