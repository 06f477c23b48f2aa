-- Another address that the person has asked for. A link that is mailed there makes it theirs.
alter table people add column email_pending text;

-- The address that a link was mailed to, if it is to become the person's.
alter table links add column email text;

-- Where a mail goes; the person's address at the time if it says nothing.
alter table mails add column recipient text;
