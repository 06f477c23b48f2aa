-- No version asks by it any more, and each change of a timer wrote it.
drop index if exists charges_due;
