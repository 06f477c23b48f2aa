-- Who adds wallets to transactions that sessions-svc recorded before it was told of them.
insert into ledger_works (name, next_at, block) values ('WALLETS', '1970-01-01T00:00:00.000Z', 0);
