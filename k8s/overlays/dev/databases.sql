-- For each service with a database: the database, the role that owns it (`charges`) and migrates it, and the
-- role that the service runs as (`charges_svc`), to which the migration grants what it needs. No other role
-- may connect. psql takes the passwords from the environment.
\getenv merchants_password MERCHANTS_PASSWORD
\getenv merchants_svc_password MERCHANTS_SVC_PASSWORD
\getenv sessions_password SESSIONS_PASSWORD
\getenv sessions_svc_password SESSIONS_SVC_PASSWORD
\getenv charges_password CHARGES_PASSWORD
\getenv charges_svc_password CHARGES_SVC_PASSWORD
\getenv webhooks_password WEBHOOKS_PASSWORD
\getenv webhooks_svc_password WEBHOOKS_SVC_PASSWORD

create role merchants login password :'merchants_password';
create role merchants_svc login password :'merchants_svc_password';
create role sessions login password :'sessions_password';
create role sessions_svc login password :'sessions_svc_password';
create role charges login password :'charges_password';
create role charges_svc login password :'charges_svc_password';
create role webhooks login password :'webhooks_password';
create role webhooks_svc login password :'webhooks_svc_password';

create database merchants owner merchants;
create database sessions owner sessions;
create database charges owner charges;
create database webhooks owner webhooks;

revoke connect on database merchants from public;
grant connect on database merchants to merchants_svc;
revoke connect on database sessions from public;
grant connect on database sessions to sessions_svc;
revoke connect on database charges from public;
grant connect on database charges to charges_svc;
revoke connect on database webhooks from public;
grant connect on database webhooks to webhooks_svc;
