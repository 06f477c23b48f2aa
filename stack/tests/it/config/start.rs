//! `config` exits with 78 for every setting that would keep the process from starting.

use tempfile::TempDir;

use super::{Settings, good, run, with};
use crate::callers::certificates;

/// Bad settings, in which `{folder}` stands for the test's own folder.
struct Case {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// The variable that the refusal names.
    refused: &'static str,
}

const fn case(
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    refused: &'static str,
) -> Case {
    Case {
        name,
        settings,
        refused,
    }
}

const CASES: &[Case] = &[
    // Addresses of another machine, and two that are the same.
    case("ratelimit-svc", &[("LISTEN", "192.0.2.1:50051")], "LISTEN"),
    case(
        "sessions-svc",
        &[("ADMIN_LISTEN", "192.0.2.1:9090")],
        "ADMIN_LISTEN",
    ),
    case("gateway", &[("API_LISTEN", "192.0.2.1:8080")], "API_LISTEN"),
    case(
        "charges-svc",
        &[("OPERATORS_LISTEN", "192.0.2.1:50052")],
        "OPERATORS_LISTEN",
    ),
    case(
        "charges-svc",
        &[("OPERATORS_LISTEN", "0.0.0.0:50051")],
        "OPERATORS_LISTEN",
    ),
    case(
        "gateway",
        &[("CHECKOUT_LISTEN", "192.0.2.1:81")],
        "CHECKOUT_LISTEN",
    ),
    case(
        "gateway",
        &[("CHECKOUT_LISTEN", "127.0.0.1:8080")],
        "CHECKOUT_LISTEN",
    ),
    case(
        "gateway",
        &[("DASHBOARD_LISTEN", "127.0.0.1:8080")],
        "DASHBOARD_LISTEN",
    ),
    case(
        "merchants-svc",
        &[("ADMIN_LISTEN", "0.0.0.0:50051")],
        "ADMIN_LISTEN",
    ),
    // Span exports.
    case(
        "gateway",
        &[(ENDPOINT, "http://b\u{fc}cher:4317")],
        ENDPOINT,
    ),
    case(
        "charges-svc",
        &[(ENDPOINT, "http://collector/a b")],
        ENDPOINT,
    ),
    case(
        "charges-svc",
        &[(TRACES_ENDPOINT, "http:collector:4317")],
        TRACES_ENDPOINT,
    ),
    case("sessions-svc", &[(ENDPOINT, "http:///collector")], ENDPOINT),
    case("sessions-svc", &[(ENDPOINT, "https://a..b:4317")], ENDPOINT),
    case(
        "webhooks-svc",
        &[(CERTIFICATE, "{folder}/none.pem")],
        CERTIFICATE,
    ),
    case(
        "webhooks-svc",
        &[(CERTIFICATE, "{folder}/garbage.pem")],
        CERTIFICATE,
    ),
    case(
        "ratelimit-svc",
        &[
            (ENDPOINT, "https://collector:4317"),
            ("SSL_CERT_FILE", "{folder}/none.pem"),
        ],
        ENDPOINT,
    ),
    // Databases.
    case(
        "merchants-svc",
        &[SQLITE, ("DATABASE_URL", "sqlite://")],
        "DATABASE_URL",
    ),
    case(
        "merchants-svc",
        &[SQLITE, ("DATABASE_URL", "sqlite://a.db?mode=zzz")],
        "DATABASE_URL",
    ),
    case(
        "sessions-svc",
        &[SQLITE, ("DATABASE_URL", "sqlite://a.db?vfs=none")],
        "DATABASE_URL",
    ),
    case(
        "charges-svc",
        &[SQLITE, ("DATABASE_URL", "sqlite:///tmp/%FF.db")],
        "DATABASE_URL",
    ),
    case(
        "charges-svc",
        &[(
            "DATABASE_URL",
            "postgres://u@h/d?sslmode=verify-full&sslrootcert={folder}/none.pem",
        )],
        "DATABASE_URL",
    ),
    case(
        "webhooks-svc",
        &[(
            "DATABASE_URL",
            "postgres://u@h/d?sslmode=verify-full&sslrootcert={folder}/garbage.pem",
        )],
        "DATABASE_URL",
    ),
    case(
        "webhooks-svc",
        &[(
            "DATABASE_URL",
            "postgres://u@h/d?sslmode=require&sslkey={folder}/none.pem",
        )],
        "DATABASE_URL",
    ),
    // Certificates and service URLs.
    case("gateway", &[("TLS_CA", "{folder}/garbage.pem")], "TLS_CA"),
    case(
        "gateway",
        &[("TLS_CA", "{folder}/gateway-key.pem")],
        "TLS_CA",
    ),
    case(
        "gateway",
        &[("TLS_CERT", "{folder}/garbage.pem")],
        "TLS_CERT",
    ),
    case(
        "gateway",
        &[("MERCHANTS_URL", "https://a..b:50051")],
        "MERCHANTS_URL",
    ),
    case(
        "charges-svc",
        &[("WEBHOOKS_URL", "http://webhooks-svc:99999")],
        "WEBHOOKS_URL",
    ),
    case(
        "sessions-svc",
        &[("WEBHOOKS_URL", "http://webhooks-svc:0")],
        "WEBHOOKS_URL",
    ),
    // Trusted certificate authorities.
    case(
        "charges-svc",
        &[("SSL_CERT_FILE", "{folder}/none.pem")],
        "SSL_CERT_FILE",
    ),
    case(
        "webhooks-svc",
        &[("SSL_CERT_FILE", "{folder}/garbage.pem")],
        "SSL_CERT_FILE",
    ),
    // Absurd numbers.
    case(
        "gateway",
        &[("REQUESTS_MAX", "18446744073709551615")],
        "REQUESTS_MAX",
    ),
    case(
        "webhooks-svc",
        &[("WEBHOOK_TIMEOUT", "400000000000y")],
        "WEBHOOK_TIMEOUT",
    ),
    case("charges-svc", &[("OTP_LIFETIME", "101y")], "OTP_LIFETIME"),
];

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// Production refuses SQLite, whatever the rest of the URL says.
const SQLITE: (&str, &str) = ("MODE", "development");

#[tokio::test]
async fn what_would_not_start_is_refused_by_config_too() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("garbage.pem"), "garbage").unwrap();
    let mut missed = Vec::new();
    for Case {
        name,
        settings,
        refused,
    } in CASES
    {
        let mut all = good(name, &folder);
        for (variable, value) in *settings {
            let value = value.replace("{folder}", &folder.path().display().to_string());
            all = with(&all, variable, Some(&value));
        }
        let ended = run(name, &all, &["config"]).await;
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let start = format!("{name}: {refused}");
        let is_told = matches!(lines[..], [line] if line.starts_with(&start));
        if ended.code != Some(78) || !is_told {
            missed.push(format!("{name} {settings:?}: {:?} {lines:?}", ended.code));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[tokio::test]
async fn what_would_start_is_taken() {
    let folder = TempDir::new().unwrap();
    let ca = certificates(folder.path(), &["collector"]).remove(0).tls_ca;
    let ca = ca.unwrap().display().to_string();
    let verified = "postgres://pay@db.internal/merchants-svc?sslmode=verify-ca";
    let socket = "postgres://pay@%2Frun%2Fpostgresql/merchants-svc";
    let taken: [(&str, &[(&str, &str)]); 8] = [
        ("merchants-svc", &[("DATABASE_URL", verified)]),
        ("merchants-svc", &[("DATABASE_URL", socket)]),
        ("gateway", &[("TRUSTED_PROXIES", "none")]),
        ("gateway", &[(ENDPOINT, "https://collector:4317")]),
        (
            "charges-svc",
            &[(ENDPOINT, "https://collector:4317"), (CERTIFICATE, &ca)],
        ),
        (
            "sessions-svc",
            &[(TRACES_ENDPOINT, "http://collector:4317")],
        ),
        (
            "ratelimit-svc",
            &[("LISTEN", "[::1]:0"), ("ADMIN_LISTEN", "127.0.0.1:0")],
        ),
        ("webhooks-svc", &[("SSL_CERT_FILE", &ca)]),
    ];
    for (name, settings) in taken {
        let mut all: Settings = good(name, &folder);
        for (variable, value) in settings {
            all = with(&all, variable, Some(value));
        }
        let ended = run(name, &all, &["config"]).await;
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{settings:?}");
    }
    // An address in use is accepted: it may be this service's own process that serves there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let all = with(&good("ratelimit-svc", &folder), "LISTEN", Some(&taken));
    let ended = run("ratelimit-svc", &all, &["config"]).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}
