//! What production refuses: settings for trying things out, and programs that make up money.

use chassis::config::settable;
use tempfile::TempDir;

use super::{definition, good, run, with};

/// What production refuses: binary, variable, value (`None`: not set), and what it wants.
const REFUSED_IN_PRODUCTION: &[(&str, &str, Option<&str>, &str)] = &[
    (
        "merchants-svc",
        "DATABASE_URL",
        Some("sqlite:///tmp/merchants.db"),
        "a postgres:// URL",
    ),
    (
        "sessions-svc",
        "DATABASE_URL",
        Some("sqlite::memory:"),
        "a postgres:// URL",
    ),
    (
        "charges-svc",
        "DATABASE_URL",
        Some("sqlite://charges.db"),
        "a postgres:// URL",
    ),
    (
        "webhooks-svc",
        "DATABASE_URL",
        Some("sqlite://webhooks.db"),
        "a postgres:// URL",
    ),
    (
        "merchants-svc",
        "DATABASE_URL",
        Some("postgres://merchants:dev-only-merchants@postgres/m"),
        "a password of your own",
    ),
    (
        "merchants-svc",
        "DATABASE_URL",
        Some("postgres://merchants:merchants@postgres/m"),
        "a password of your own",
    ),
    (
        "merchants-svc",
        "DATABASE_URL",
        Some("postgres://merchants@postgres/m?password=dev-only-merchants"),
        "a password of your own",
    ),
    (
        "merchants-svc",
        "MIGRATE_DATABASE_URL",
        Some("postgres://owner:dev-only-merchants@db.internal/merchants-svc"),
        "a password of your own",
    ),
    // A man in the middle could impersonate the server.
    (
        "sessions-svc",
        "DATABASE_URL",
        Some("postgres://pay:9Zr2mWk8Jx5LbQ7sE1uY@db.internal/sessions-svc?sslmode=require"),
        "sslmode=verify-full",
    ),
    (
        "charges-svc",
        "MIGRATE_DATABASE_URL",
        Some("postgres://owner:9Zr2mWk8Jx5LbQ7sE1uY@db.internal/charges-svc"),
        "sslmode=verify-full",
    ),
    (
        "charges-svc",
        "MIGRATE_DATABASE_URL",
        Some("postgres://pay:9Zr2mWk8Jx5LbQ7sE1uY@db.internal/charges-svc"),
        "another role than that of DATABASE_URL",
    ),
    // Paid twice is worse than paid late.
    (
        "charges-svc",
        "DISBURSEMENT_RESEND_AFTER",
        Some("1m"),
        "at least 15m in production",
    ),
    (
        "gateway",
        "CHECKOUT_URL",
        Some("http://127.0.0.1:8081"),
        "an https:// address",
    ),
    (
        "gateway",
        "DASHBOARD_URL",
        Some("http://dashboard.example.com"),
        "an https:// address",
    ),
    (
        "gateway",
        "API_URL",
        Some("http://api.example.com"),
        "an https:// address",
    ),
    (
        "gateway",
        "DASHBOARD_TRIES_PER_ADDRESS",
        Some("0"),
        "a limit",
    ),
    (
        "gateway",
        "TRUSTED_PROXIES",
        Some("10.0.0.0/8,0.0.0.0/0"),
        "your proxies' networks",
    ),
    // Behind an unknown ingress, all clients would share one address.
    (
        "gateway",
        "TRUSTED_PROXIES",
        None,
        "your proxies' networks, or none",
    ),
    (
        "gateway",
        "SUPPORT_EMAIL",
        None,
        "where merchants write to for help",
    ),
    ("gateway", "CHECKOUT_RATES", None, "a rate for USD"),
    (
        "gateway",
        "CHECKOUT_RATES",
        Some("EUR=13.60"),
        "a rate for USD",
    ),
    ("gateway", "AUTH_FAILURES_PER_MINUTE", Some("0"), "a limit"),
    (
        "gateway",
        "CALLBACK_FAILURES_PER_MINUTE",
        Some("0"),
        "a limit",
    ),
    (
        "gateway",
        "CHECKOUT_TRIES_PER_SESSION",
        Some("0"),
        "a limit",
    ),
    (
        "gateway",
        "CHECKOUT_TRIES_PER_ADDRESS",
        Some("0"),
        "a limit",
    ),
    ("gateway", "CHECKOUT_TRIES_PER_NUMBER", Some("0"), "a limit"),
    (
        "gateway",
        "CHECKOUT_UNKNOWN_PER_ADDRESS",
        Some("0"),
        "a limit",
    ),
    (
        "charges-svc",
        "MOMO_BASE_URL",
        Some("http://railsim:8083"),
        "an https:// address",
    ),
    (
        "charges-svc",
        "PAYSTACK_BASE_URL",
        Some("http://railsim:8083"),
        "an https:// address",
    ),
    (
        "charges-svc",
        "HUBTEL_BASE_URL",
        Some("http://railsim:8083"),
        "an https:// address",
    ),
    (
        "charges-svc",
        "CALLBACK_BASE_URL",
        Some("http://gateway:8080"),
        "an https:// address",
    ),
    (
        "charges-svc",
        "MOMO_TARGET_ENVIRONMENT",
        Some("sandbox"),
        "mtnghana",
    ),
    (
        "charges-svc",
        "MOMO_TARGET_ENVIRONMENT",
        Some("Sandbox"),
        "mtnghana",
    ),
    // The payer could still approve after the window.
    (
        "charges-svc",
        "APPROVAL_WINDOW",
        Some("299s"),
        "at least 5m",
    ),
    // What the local stack, docker-compose.yml and the dev overlay use.
    (
        "charges-svc",
        "MOMO_SUBSCRIPTION_KEY",
        Some("stack-momo-subscription-key"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "MOMO_SUBSCRIPTION_KEY",
        Some("simulated-subscription-key"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "MOMO_API_KEY",
        Some("dev-only-api-key-0123456789"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "MOMO_API_KEY",
        Some("2short"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "HUBTEL_API_KEY",
        Some("simulated-hubtel-api-key"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "HUBTEL_API_KEY",
        Some("stack-hubtel-api-key"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "PAYSTACK_CALLBACK_TOKEN",
        Some("simulated-callback-token"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "PAYSTACK_CALLBACK_TOKEN",
        Some("0000000000000000000000"),
        "a secret of your own",
    ),
    (
        "charges-svc",
        "PAYSTACK_SECRET_KEY",
        Some("sk_test_7f3a9c1e5b2d8046"),
        "a key that begins with sk_live_",
    ),
    (
        "charges-svc",
        "STATEMENT_KEY",
        Some("ZGV2LW9ubHktMzItYnl0ZXMtb2Ytbm8tc2VjcmVjeSE="),
        "a key of your own",
    ),
    ("charges-svc", "STATEMENT_KEY", None, "a key of your own"),
    ("merchants-svc", "SMTP_URL", None, "smtps://"),
    (
        "merchants-svc",
        "SMTP_URL",
        Some("smtp://pay:7f3a9c1e5b2d8046@mail.example.com"),
        "smtps://",
    ),
    (
        "merchants-svc",
        "SMTP_URL",
        Some("smtps://pay:dev-only@mail.example.com"),
        "a password of your own",
    ),
    (
        "merchants-svc",
        "DASHBOARD_URL",
        Some("http://dashboard.example.com"),
        "an https:// address",
    ),
    (
        "merchants-svc",
        "TOTP_SECRET_KEY",
        None,
        "a key of your own",
    ),
    (
        "webhooks-svc",
        "WEBHOOK_SECRET_KEY",
        Some("ZGV2LW9ubHktMzItYnl0ZXMtb2Ytbm8tc2VjcmVjeSE="),
        "a key of your own",
    ),
    (
        "webhooks-svc",
        "WEBHOOK_SECRET_KEY",
        Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        "a key of your own",
    ),
    ("webhooks-svc", "WEBHOOK_ALLOW_HTTP", Some("true"), "false"),
    (
        "webhooks-svc",
        "WEBHOOK_ALLOW_NETS",
        Some("127.0.0.0/8"),
        "nothing",
    ),
    (
        "webhooks-svc",
        "WEBHOOK_ALLOW_NETS",
        Some("10.1.2.0/24"),
        "nothing",
    ),
    (
        "ratelimit-svc",
        "REDIS_URL",
        None,
        "the Redis that all replicas share",
    ),
    (
        "ratelimit-svc",
        "REDIS_URL",
        Some("redis://pay:password@redis:6379"),
        "a password of your own",
    ),
];

#[tokio::test]
async fn production_refuses_what_is_for_trying_out() {
    let folder = TempDir::new().unwrap();
    for (name, variable, value, wants) in REFUSED_IN_PRODUCTION {
        let settings = with(&good(name, &folder), variable, *value);
        let ended = run(name, &settings, &["config"]).await;
        let [line] = ended.refusals()[..] else {
            panic!("{name} {variable}: {ended:?}");
        };
        let start = format!("{name}: {variable} (--");
        assert!(line.starts_with(&start), "{line}");
        assert!(
            line.contains(wants) && line.ends_with(" in production"),
            "{line}"
        );
        let definition = definition(name);
        let is_secret = settable(&definition)
            .find(|arg| chassis::config::variable(arg) == **variable)
            .unwrap()
            .is_hide_env_values_set();
        match value {
            None => assert!(line.contains(" is not set; wants "), "{line}"),
            Some(value) if !is_secret => assert!(line.contains(value), "{line}"),
            // A file's path is not a secret.
            Some(value) if value.starts_with("sqlite:") => {}
            Some(value) => assert!(!line.contains(value) && line.contains("***"), "{line}"),
        }
        // Development accepts it.
        let settings = with(&settings, "MODE", Some("development"));
        let ended = run(name, &settings, &["config"]).await;
        assert_eq!(
            (ended.code, &*ended.stderr),
            (Some(0), ""),
            "{name} {variable}"
        );
    }
}

#[tokio::test]
async fn production_migrates_as_the_owner_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    for name in [
        "merchants-svc",
        "sessions-svc",
        "charges-svc",
        "webhooks-svc",
    ] {
        let ended = run(name, &good(name, &folder), &["migrate"]).await;
        let [line] = ended.refusals()[..] else {
            panic!("{name}: {ended:?}");
        };
        let start = format!("{name}: MIGRATE_DATABASE_URL is not set; wants postgres://");
        assert!(line.starts_with(&start), "{line}");
    }
}

/// The local stack and its networks make up a merchant, keys and money.
#[tokio::test]
async fn production_refuses_the_simulation() {
    let folder = TempDir::new().unwrap();
    for name in ["stack", "railsim"] {
        let settings = with(&good(name, &folder), "MODE", Some("production"));
        let ended = run(name, &settings, &[]).await;
        let start = format!("{name}: MODE (--mode) got \"production\"; wants development: ");
        let [line] = ended.refusals()[..] else {
            panic!("{name}: {ended:?}");
        };
        assert!(line.starts_with(&start), "{line}");
    }
}
