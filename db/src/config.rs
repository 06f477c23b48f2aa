//! The settings that every service with a database has.

use std::fmt;

use chassis::config::{self, Listen, Mode, Refusals, Telemetry, Tls};
use clap::{Args, Subcommand};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::{postgres, sqlite};

/// What every service with a database is told.
#[derive(Clone, Debug, Args)]
pub struct ServiceConfig {
    /// How strict the process is: `production` refuses settings that are only for trying things
    /// out.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

    #[command(flatten)]
    pub listen: Listen,

    #[command(flatten)]
    pub database: Database,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

impl ServiceConfig {
    pub fn check(&self, refusals: &mut Refusals) {
        self.listen.check(refusals);
        self.database.check(refusals);
        self.tls.check(refusals);
        self.telemetry.check(refusals);
    }
}

/// What a service with a database can be asked instead of serving.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Applies the database's migrations and exits.
    Migrate,
    #[command(flatten)]
    Common(config::Command),
}

/// Which database a service keeps its records in. Its URLs, which may hold passwords, never print.
#[derive(Clone, Args)]
pub struct Database {
    /// `postgres://…`, or `sqlite://` and a file's path.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,

    /// The same database, as the role that owns its tables. Only `migrate` uses it, and needs it in
    /// production; it then grants the role of DATABASE_URL what serving needs. A serving process
    /// should not have it: in production, or if its role may not create tables, it waits until
    /// `migrate` has run.
    #[arg(long, env = "MIGRATE_DATABASE_URL", hide_env_values = true)]
    pub migrate_database_url: Option<String>,

    /// Most connections that this process opens.
    #[arg(long, env = "DATABASE_MAX_CONNECTIONS", default_value_t = 16)]
    pub database_max_connections: u32,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("database_max_connections", &self.database_max_connections)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Refuses what cannot work, or must not be used in production. Does not connect.
    pub fn check(&self, refusals: &mut Refusals) {
        let url = &self.database_url;
        let running = url.parse::<PgConnectOptions>().ok();
        let is_good = match postgres::is_url(url) {
            true => running.is_some(),
            false => sqlite::is_url(url),
        };
        let wants = "postgres://user:password@host/database, or sqlite:// and a file's path";
        refusals.unless(is_good, "DATABASE_URL", wants);
        refusals.in_production(postgres::is_url(url), "DATABASE_URL", "a postgres:// URL");
        refusals.password("DATABASE_URL", url);
        refusals.files("DATABASE_URL", url);
        let is_safe = running.as_ref().is_none_or(is_tls_checked);
        refusals.in_production(is_safe, "DATABASE_URL", TLS);
        let connections = self.database_max_connections;
        refusals.unless(connections > 0, "DATABASE_MAX_CONNECTIONS", "at least 1");

        let Some(url) = &self.migrate_database_url else {
            return;
        };
        let variable = "MIGRATE_DATABASE_URL";
        let owner = url.parse::<PgConnectOptions>().ok();
        let owner = owner.filter(|_| postgres::is_url(url));
        let is_safe = owner.as_ref().is_none_or(is_tls_checked);
        let both = owner.zip(running.filter(|_| postgres::is_url(&self.database_url)));
        let is_same = |(owner, running): &(PgConnectOptions, PgConnectOptions)| {
            owner.get_database() == running.get_database()
        };
        let wants = "postgres://owner:password@host and the database of DATABASE_URL";
        refusals.unless(both.as_ref().is_some_and(is_same), variable, wants);
        refusals.password(variable, url);
        refusals.files(variable, url);
        let is_another =
            both.is_none_or(|(owner, running)| owner.get_username() != running.get_username());
        refusals.in_production(
            is_another,
            variable,
            "another role than that of DATABASE_URL",
        );
        refusals.in_production(is_safe, variable, TLS);
    }
}

/// What production requires of a server's address.
const TLS: &str = "sslmode=verify-full (or verify-ca), or a socket of this machine,";

/// Whether nobody in between can read along or impersonate the server.
fn is_tls_checked(options: &PgConnectOptions) -> bool {
    let is_socket = options.get_socket().is_some() || options.get_host().starts_with('/');
    let mode = options.get_ssl_mode();
    is_socket || matches!(mode, PgSslMode::VerifyFull | PgSslMode::VerifyCa)
}

#[cfg(test)]
mod tests {
    use super::Database;

    #[test]
    fn a_password_does_not_print() {
        let database = Database {
            database_url: "postgres://me:hunter2@host/db".to_owned(),
            migrate_database_url: Some("postgres://owner:hunter2@host/db".to_owned()),
            database_max_connections: 16,
        };
        assert!(!format!("{database:?}").contains("hunter2"));
    }
}
