-- A database and a role for each service that keeps records; nobody else may connect to it.
-- psql takes the passwords from the environment.
\getenv merchants_password MERCHANTS_PASSWORD
\getenv sessions_password SESSIONS_PASSWORD
\getenv charges_password CHARGES_PASSWORD
\getenv webhooks_password WEBHOOKS_PASSWORD

create role merchants login password :'merchants_password';
create role sessions login password :'sessions_password';
create role charges login password :'charges_password';
create role webhooks login password :'webhooks_password';

create database merchants owner merchants;
create database sessions owner sessions;
create database charges owner charges;
create database webhooks owner webhooks;

revoke connect on database merchants from public;
revoke connect on database sessions from public;
revoke connect on database charges from public;
revoke connect on database webhooks from public;
