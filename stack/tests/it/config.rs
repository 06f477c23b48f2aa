//! The settings of the real binaries: what each refuses and how it says so, what `config` and
//! `healthcheck` answer, and that no secret ever appears.

mod hubtel;
mod production;
mod reference;
mod running;
mod start;

use std::{path::PathBuf, process::Stdio, time::Duration};

use chassis::config::{REFUSED, command, settable, variable};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{callers::certificates, processes::binary};

/// Longest time that a process that does not serve may take.
const END_MAX: Duration = Duration::from_secs(60);

/// Every binary that has settings.
const BINARIES: [&str; 8] = [
    "gateway",
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
    "ratelimit-svc",
    "railsim",
    "stack",
];

/// The binaries that run in production.
const SERVICES: [&str; 6] = [
    "gateway",
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
    "ratelimit-svc",
];

/// Part of every secret in the tests, so that it is found wherever it appears.
const CANARY: &str = "c4N4Ry";

/// Settings that accept any text.
const FREE: [&str; 10] = [
    "RAILSIM_DATA",
    "MOMO_SUBSCRIPTION_KEY",
    "MOMO_API_USER",
    "MOMO_API_KEY",
    "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
    "MOMO_DISBURSEMENT_API_USER",
    "MOMO_DISBURSEMENT_API_KEY",
    "MOMO_TARGET_ENVIRONMENT",
    "MOMO_CALLBACK_HOST",
    "PAYSTACK_SECRET_KEY",
];

type Settings = Vec<(String, String)>;

/// How a process ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Its complaints about its settings, line by line.
    fn refusals(&self) -> Vec<&str> {
        assert_eq!(self.code, Some(i32::from(REFUSED)), "{self:?}");
        self.stderr.lines().collect()
    }
}

/// A binary's own definition of its settings.
fn definition(name: &str) -> clap::Command {
    let mut command = match name {
        "gateway" => command::<gateway::config::Config>(),
        "merchants-svc" => command::<merchants_svc::config::Config>(),
        "sessions-svc" => command::<sessions_svc::config::Config>(),
        "charges-svc" => command::<charges_svc::config::Config>(),
        "webhooks-svc" => command::<webhooks_svc::config::Config>(),
        "ratelimit-svc" => command::<ratelimit_svc::config::Config>(),
        "railsim" => command::<railsim::Config>(),
        _ => command::<stack::config::Config>(),
    };
    command.build();
    command
}

/// MTN's disbursement product has credentials of its own.
fn disbursement_keys() -> [(&'static str, String); 3] {
    let user = "0e6e5a7e-6d0e-4b0e-9d43-1f2f3a4b5c6e";
    [
        (
            "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
            format!("{CANARY}4f9e8d7c6b5a4"),
        ),
        ("MOMO_DISBURSEMENT_API_USER", user.to_owned()),
        (
            "MOMO_DISBURSEMENT_API_KEY",
            format!("{CANARY}5f9e8d7c6b5a4"),
        ),
    ]
}

/// 32 random bytes; the canary is six digits of their base64.
fn random_key() -> String {
    format!("{CANARY}9Zr2mWk8Jx5LbQ7sE1uYfD3gPn6oAiCtRhMz0=")
}

/// What is the gateway's own of them.
fn good_gateway() -> Vec<(&'static str, String)> {
    let url = |service: &str| format!("https://{service}:50051");
    vec![
        ("MERCHANTS_URL", url("merchants-svc")),
        ("SESSIONS_URL", url("sessions-svc")),
        ("CHARGES_URL", url("charges-svc")),
        ("WEBHOOKS_URL", url("webhooks-svc")),
        ("RATELIMIT_URL", "http://ratelimit-svc:50051".to_owned()),
        ("CHECKOUT_URL", "https://pay.example.com".to_owned()),
        ("DASHBOARD_URL", "https://dashboard.example.com".to_owned()),
        ("API_URL", "https://api.example.com".to_owned()),
        ("SUPPORT_EMAIL", "help@example.com".to_owned()),
        ("TRUSTED_PROXIES", "10.244.0.0/16,fd00::/8".to_owned()),
        ("CHECKOUT_RATES", "USD=12.50,EUR=13.60".to_owned()),
    ]
}

/// Settings that production accepts.
fn good(name: &str, folder: &TempDir) -> Settings {
    let mut settings = vec![("MODE", "production".to_owned())];
    let database = format!("postgres://pay:{CANARY}@db.internal/{name}?sslmode=verify-full");
    let url = |service: &str| format!("https://{service}:50051");
    let own: Vec<(&'static str, String)> = match name {
        "gateway" => good_gateway(),
        "merchants-svc" => vec![
            ("DATABASE_URL", database),
            ("SMTP_URL", format!("smtps://pay:{CANARY}@mail.example.com")),
            ("MAIL_FROM", "Payments <no-reply@example.com>".to_owned()),
            ("DASHBOARD_URL", "https://dashboard.example.com".to_owned()),
            ("TOTP_SECRET_KEY", random_key()),
        ],
        "sessions-svc" => vec![
            ("DATABASE_URL", database),
            ("WEBHOOKS_URL", url("webhooks-svc")),
        ],
        "charges-svc" => vec![
            ("DATABASE_URL", database),
            ("SESSIONS_URL", url("sessions-svc")),
            ("WEBHOOKS_URL", url("webhooks-svc")),
            ("MERCHANTS_URL", url("merchants-svc")),
            ("CALLBACK_BASE_URL", "https://api.example.com".to_owned()),
            ("MOMO_BASE_URL", "https://momo.example.com".to_owned()),
            ("MOMO_SUBSCRIPTION_KEY", format!("{CANARY}0f9e8d7c6b5a4")),
            (
                "MOMO_API_USER",
                "0e6e5a7e-6d0e-4b0e-9d43-1f2f3a4b5c6d".to_owned(),
            ),
            ("MOMO_API_KEY", format!("{CANARY}1f9e8d7c6b5a4")),
            ("MOMO_TARGET_ENVIRONMENT", "mtnghana".to_owned()),
            ("PAYSTACK_SECRET_KEY", format!("sk_live_{CANARY}2f9e8d7c6")),
            ("PAYSTACK_EMAIL_DOMAIN", "payers.example.com".to_owned()),
            ("PAYSTACK_CALLBACK_TOKEN", format!("{CANARY}3f9e8d7c6b5a4")),
            ("STATEMENT_KEY", random_key()),
        ],
        "webhooks-svc" => vec![
            ("DATABASE_URL", database),
            ("MERCHANTS_URL", url("merchants-svc")),
            ("WEBHOOK_SECRET_KEY", random_key()),
        ],
        "ratelimit-svc" => vec![(
            "REDIS_URL",
            format!("redis://pay:{CANARY}@redis.internal:6380"),
        )],
        "railsim" => vec![
            ("MODE", "development".to_owned()),
            ("MOMO_SUBSCRIPTION_KEY", CANARY.to_owned()),
            ("MOMO_API_USER", CANARY.to_owned()),
            ("MOMO_API_KEY", CANARY.to_owned()),
            ("PAYSTACK_SECRET_KEY", CANARY.to_owned()),
        ],
        _ => vec![("MODE", "development".to_owned())],
    };
    settings.extend(own);
    if matches!(name, "charges-svc" | "railsim") {
        settings.extend(disbursement_keys());
        settings.extend(hubtel::account());
    }
    let mut settings: Settings = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if SERVICES.contains(&name) {
        settings.extend(tls(name, folder));
    }
    settings
}

fn tls(name: &str, folder: &TempDir) -> Settings {
    let tls = certificates(folder.path(), &[name]).remove(0);
    let files = [
        ("TLS_CERT", tls.tls_cert),
        ("TLS_KEY", tls.tls_key),
        ("TLS_CA", tls.tls_ca),
    ];
    let path = |file: Option<PathBuf>| file.unwrap().display().to_string();
    let files = files.map(|(variable, file)| (variable.to_owned(), path(file)));
    files.to_vec()
}

/// The settings with one variable changed, or removed if `value` is `None`.
fn with(settings: &Settings, variable: &str, value: Option<&str>) -> Settings {
    let others = settings.iter().filter(|(name, _)| name != variable);
    let changed = value.map(|value| (variable.to_owned(), value.to_owned()));
    others.cloned().chain(changed).collect()
}

/// Runs a binary to its end with only these settings as its environment.
async fn run(name: &str, settings: &Settings, words: &[&str]) -> Ended {
    let ends = Command::new(binary(name))
        .args(words)
        .env_clear()
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(END_MAX, ends).await;
    let output = ended
        .unwrap_or_else(|_| panic!("{name} {words:?} does not end"))
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    let all = format!("{ended:?}");
    assert!(!all.contains(CANARY), "{name} shows a secret: {all}");
    ended
}

/// The words to run a binary with: `config` if it has that, so that the process ends even if it
/// fails to refuse its settings.
fn words(name: &str) -> &'static [&'static str] {
    match SERVICES.contains(&name) {
        true => &["config"],
        false => &[],
    }
}

#[tokio::test]
async fn production_takes_good_settings_and_tells_where_each_comes_from() {
    let folder = TempDir::new().unwrap();
    for name in SERVICES {
        let settings = good(name, &folder);
        let ended = run(name, &settings, &["--log=warn", "config"]).await;
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{name}");
        let definition = definition(name);
        let wanted: Vec<String> = settable(&definition).map(variable).collect();
        let shown: Vec<_> = ended
            .stdout
            .lines()
            .map(|line| line.split_once('=').unwrap())
            .collect();
        let names: Vec<_> = shown.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names, wanted, "as --help has them");
        for (variable, rest) in shown {
            let given = settings.iter().find(|(name, _)| name == variable);
            let origin = rest.rsplit_once("  # ").unwrap().1;
            match (variable, given) {
                ("RUST_LOG", _) => assert_eq!(rest, "warn  # flag --log"),
                (_, Some(_)) => assert_eq!(origin, "environment", "{variable}"),
                _ => assert!(matches!(origin, "default" | "not set"), "{variable}"),
            }
        }
    }
}

#[tokio::test]
async fn secrets_and_passwords_are_masked() {
    let folder = TempDir::new().unwrap();
    let settings = good("charges-svc", &folder);
    let shown = run("charges-svc", &settings, &["config"]).await.stdout;
    for line in [
        "DATABASE_URL=postgres://pay:***@db.internal/charges-svc?***  # environment",
        "MOMO_API_KEY=***  # environment",
        "PAYSTACK_SECRET_KEY=***  # environment",
        "MOMO_BASE_URL=https://momo.example.com/  # environment",
    ] {
        let line = line.replace(".com/ ", ".com ");
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    // Passwords that were not percent-encoded, so that nobody can tell where they end.
    for password in ["a@{}", "{}/b", "a?{}", "1/{}", "a#{}", "{}@b/c@d", "{}"] {
        let password = password.replace("{}", CANARY);
        for url in [
            format!("postgres://pay:{password}@db.internal/charges"),
            format!("mysql://pay:{password}@db.internal/charges"),
            format!("{password}@db"),
            password,
        ] {
            let settings = with(&settings, "DATABASE_URL", Some(&url));
            run("charges-svc", &settings, &["config"]).await;
        }
    }
    // Up to the first character that is not a digit, such a password looks like a port.
    for password in ["90210#x", "90210?x", "90210/x"] {
        let url = format!("postgres://pay:{password}@db.internal/charges");
        let settings = with(&settings, "DATABASE_URL", Some(&url));
        let shown = run("charges-svc", &settings, &["config"]).await;
        assert!(!format!("{shown:?}").contains("90210"), "{shown:?}");
    }
    for variable in [
        "MOMO_BASE_URL",
        "SESSIONS_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ] {
        let url = format!("https://pay:{CANARY}@host.internal");
        let settings = with(&settings, variable, Some(&url));
        run("charges-svc", &settings, &["config"]).await;
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_told_at_once_and_nothing_is_begun() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("charges.db");
    let url = format!("sqlite://{}", file.display());
    let mut settings = good("charges-svc", &folder);
    let wrong = [
        ("DATABASE_URL", &*url),
        ("MOMO_BASE_URL", "http://momo"),
        ("PAYSTACK_CALLBACK_TOKEN", "short"),
        ("LEASE", "1s"),
    ];
    for (variable, value) in wrong {
        settings = with(&settings, variable, Some(value));
    }
    // Also when it would serve or migrate.
    for words in [&[][..], &["migrate"], &["config"], &["healthcheck"]] {
        let ended = run("charges-svc", &settings, words).await;
        let lines = ended.refusals();
        assert_eq!(lines.len(), wrong.len(), "{lines:?}");
        for (variable, _) in wrong {
            let start = format!("charges-svc: {variable} (--");
            assert!(
                lines.iter().any(|line| line.starts_with(&start)),
                "{lines:?}"
            );
        }
    }
    assert!(!file.exists());
}

#[tokio::test]
async fn every_required_setting_that_is_missing_is_named() {
    for name in BINARIES {
        let definition = definition(name);
        let required = settable(&definition).filter(|arg| arg.is_required_set());
        let required: Vec<String> = required.map(variable).collect();
        if required.is_empty() {
            continue;
        }
        let ended = run(name, &Vec::new(), &[]).await;
        let lines = ended.refusals();
        assert_eq!(lines.len(), required.len(), "{lines:?}");
        for variable in required {
            let start = format!("{name}: {variable} (--");
            let is_told =
                |line: &&str| line.starts_with(&start) && line.contains(" is not set; wants ");
            assert!(lines.iter().any(is_told), "{variable}: {lines:?}");
        }
    }
}

/// Gives nonsense to every setting in a binary's own definition.
#[tokio::test]
async fn nonsense_is_refused_for_every_setting() {
    const NONSENSE: &str = "no such: thing=[";
    let folder = TempDir::new().unwrap();
    let mut tried = 0;
    for name in BINARIES {
        let settings = good(name, &folder);
        let definition = definition(name);
        for arg in settable(&definition) {
            let variable = variable(arg);
            let is_free = name == "railsim" && FREE.contains(&&*variable);
            // The stack's folder and ready file may have any name, and its switches have no value.
            let is_free = is_free || matches!(&*variable, "--data" | "--ready-file");
            if is_free || (arg.get_env().is_none() && !arg.get_action().takes_values()) {
                continue;
            }
            let (settings, flag) = match arg.get_env() {
                Some(_) => (with(&settings, &variable, Some(NONSENSE)), None),
                None => (settings.clone(), Some(format!("{variable}={NONSENSE}"))),
            };
            let words: Vec<&str> = flag
                .iter()
                .map(String::as_str)
                .chain(words(name).iter().copied())
                .collect();
            let ended = run(name, &settings, &words).await;
            let lines = ended.refusals();
            let start = format!("{name}: {variable} ");
            assert!(
                lines.len() == 1 && lines[0].contains("; wants "),
                "{variable}: {lines:?}"
            );
            assert!(
                lines[0].starts_with(start.trim_end()),
                "{variable}: {lines:?}"
            );
            let got = match arg.is_hide_env_values_set() {
                true => "***",
                false => NONSENSE,
            };
            assert!(lines[0].contains(&format!(" got \"{got}\"; ")), "{lines:?}");
            tried += 1;
        }
    }
    assert!(tried > 120, "{tried}");
}

/// A variable that is set but empty is refused, except where empty means off.
#[tokio::test]
async fn an_empty_variable_is_no_setting() {
    let folder = TempDir::new().unwrap();
    // Empty means off, as OpenTelemetry defines it.
    let may_be_empty = [
        "NO_REFLECTION",
        "OTEL_SDK_DISABLED",
        "RUST_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    ];
    for name in SERVICES {
        let settings = good(name, &folder);
        let definition = definition(name);
        for arg in settable(&definition) {
            let variable = variable(arg);
            let settings = with(&settings, &variable, Some(""));
            let ended = run(name, &settings, &["config"]).await;
            if may_be_empty.contains(&&*variable) {
                assert_eq!(ended.code, Some(0), "{ended:?}");
                continue;
            }
            let lines = ended.refusals();
            let start = format!("{name}: {variable} (--");
            assert!(
                lines.len() == 1 && lines[0].starts_with(&start),
                "{variable}: {lines:?}"
            );
        }
    }
}

#[tokio::test]
async fn wrong_words_are_told_on_one_line() {
    for (words, says) in [
        (&["--no-such-flag"][..], "'--no-such-flag'"),
        (&["conflig"], "'conflig'"),
        (&["config", "--mode", "production"], "'--mode'"),
        (&["--log", "warn", "--log", "info"], "--log"),
    ] {
        let ended = run("ratelimit-svc", &Vec::new(), words).await;
        let [line] = ended.refusals()[..] else {
            panic!("{ended:?}");
        };
        assert!(
            line.starts_with("ratelimit-svc: ") && line.contains(says),
            "{line}"
        );
    }
    for words in [&["--help"][..], &["--version"], &["help", "config"]] {
        let ended = run("ratelimit-svc", &Vec::new(), words).await;
        assert!(
            ended.code == Some(0) && !ended.stdout.is_empty(),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn settings_that_belong_together_are_checked_together() {
    let folder = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let key = certificates(other.path(), &["other"]).remove(0).tls_key;
    let key = key.unwrap().display().to_string();
    let webhooks = good("webhooks-svc", &folder);
    for (variable, value, names) in [
        ("TLS_KEY", Some(&*key), "TLS_CERT"),
        ("TLS_KEY", None, "TLS_KEY"),
        ("TLS_CA", Some("/no/such/file"), "TLS_CA"),
        ("WEBHOOK_TIMEOUT", Some("30s"), "LEASE"),
        ("WEBHOOK_CONCURRENCY", Some("0"), "WEBHOOK_CONCURRENCY"),
    ] {
        let ended = run("webhooks-svc", &with(&webhooks, variable, value), &[]).await;
        let lines = ended.refusals();
        let start = format!("webhooks-svc: {names} (--");
        assert!(
            lines.len() == 1 && lines[0].starts_with(&start),
            "{lines:?}"
        );
    }
    // The owner of a different database, or of a file.
    for (url, owner_url) in [
        (
            "postgres://pay:pw@db/charges",
            "postgres://owner:pw@db/sessions",
        ),
        ("postgres://pay:pw@db/charges", "sqlite://charges.db"),
        ("sqlite://charges.db", "postgres://owner:pw@db/charges"),
    ] {
        let mut charges = with(&good("charges-svc", &folder), "MODE", Some("development"));
        charges = with(&charges, "DATABASE_URL", Some(url));
        charges = with(&charges, "MIGRATE_DATABASE_URL", Some(owner_url));
        let ended = run("charges-svc", &charges, &["migrate"]).await;
        let lines = ended.refusals();
        let start = "charges-svc: MIGRATE_DATABASE_URL (--";
        assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
    }
    // Otherwise only a payer would notice these.
    for (variable, value) in [
        ("CHECKOUT_RATES", "USD=12.50,EUR=13.60,USD=13"),
        ("CHECKOUT_URL", "https://pay.example.com/checkout"),
        ("DASHBOARD_URL", "https://example.com/dashboard"),
        ("API_URL", "https://api.example.com/api"),
        ("CHECKOUT_URL", "https://:secret@pay.example.com"),
        ("SUPPORT_EMAIL", "help"),
        ("SUPPORT_EMAIL", "mailto:help@example.com?cc=a@example.com"),
    ] {
        let settings = with(&good("gateway", &folder), variable, Some(value));
        let ended = run("gateway", &settings, &["config"]).await;
        let lines = ended.refusals();
        let start = format!("gateway: {variable} (--");
        assert!(
            lines.len() == 1 && lines[0].starts_with(&start),
            "{lines:?}"
        );
    }
    // One merchant could use up what all may look up.
    let limits = with(&good("ratelimit-svc", &folder), "LIMIT_NUMBER", Some("100"));
    let ended = run("ratelimit-svc", &limits, &["config"]).await;
    let lines = ended.refusals();
    let start = "ratelimit-svc: LIMIT_NUMBER_OVERALL (--";
    assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
    let mut sessions = good("sessions-svc", &folder);
    for variable in ["TLS_CERT", "TLS_KEY", "TLS_CA"] {
        sessions = with(&sessions, variable, None);
    }
    let ended = run("sessions-svc", &sessions, &[]).await;
    let [line] = ended.refusals()[..] else {
        panic!("{ended:?}");
    };
    assert!(line.starts_with("sessions-svc: WEBHOOKS_URL (--"), "{line}");
}

/// Another machine's address is a wrong setting. An address in use or a database that does not
/// answer may be temporary.
#[tokio::test]
async fn what_fails_at_the_start_is_told_on_one_line() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let refused = i32::from(REFUSED);
    let cases = [
        ("ratelimit-svc", "LISTEN", "192.0.2.1:50051", refused),
        ("ratelimit-svc", "ADMIN_LISTEN", "192.0.2.1:9090", refused),
        ("ratelimit-svc", "LISTEN", &*taken, 1),
        (
            "merchants-svc",
            "DATABASE_URL",
            "postgres://me@127.0.0.1:1/merchants",
            1,
        ),
    ];
    for (name, variable, value, code) in cases {
        let settings = vec![
            ("LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
            ("RUST_LOG".to_owned(), "off".to_owned()),
        ];
        let settings = with(&settings, variable, Some(value));
        let ended = run(name, &settings, &[]).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        let start = format!("{name}: {variable}");
        assert!(ended.stderr.starts_with(&start), "{ended:?}");
    }
    drop(listener);
}
