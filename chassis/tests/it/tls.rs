//! Mutual TLS between the services.

use std::{fs, path::Path};

use chassis::{
    clock::Clock,
    config::{Mode, Refusals, Tls},
    grpc,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::Code;

use super::{
    PATIENCE,
    grpc::was_not_sent,
    service::{Running, ask, start_with},
    soon,
};

/// An authority that lives as long as a test.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::with(CertificateParams::default())
    }

    fn with(mut params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            folder,
            issuer: Issuer::new(params, key),
        }
    }

    /// The settings of a process with this authority's certificate for `name`.
    fn vouch(&self, name: &str) -> Tls {
        self.vouch_for(name, &[name])
    }

    /// The same, with these names in the certificate instead.
    fn vouch_for(&self, name: &str, names: &[&str]) -> Tls {
        let names = names.iter().map(ToString::to_string);
        let params = CertificateParams::new(names.collect::<Vec<_>>());
        self.issue(name, params.unwrap())
    }

    /// The same, with a certificate that is valid from the beginning of one year to that of another.
    fn vouch_within(&self, name: &str, from: i32, until: i32) -> Tls {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        self.issue(name, params)
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Tls {
        let key = KeyPair::generate().unwrap();
        // What nobody checks: a certificate is read by its DNS names alone.
        params
            .distinguished_name
            .push(DnType::CommonName, "gateway");
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let keep = |kind: &str, text: String| {
            let file = self.folder.path().join(format!("{name}-{kind}.pem"));
            fs::write(&file, text).unwrap();
            Some(file)
        };
        Tls {
            tls_cert: keep("cert", certificate.pem()),
            tls_key: keep("key", key.serialize_pem()),
            tls_ca: Some(self.folder.path().join("ca.pem")),
        }
    }
}

/// What a process says of such settings before it refuses to start.
fn refused(tls: &Tls) -> String {
    let mut refusals = Refusals::new(Mode::Production);
    tls.check(&mut refusals);
    grpc::check_url(&mut refusals, "CHARGES_URL", "https://charges-svc:1", tls);
    let refused = refusals.into_result();
    refused.map_or_else(|error| error.to_string(), |()| String::new())
}

async fn start(tls: Tls) -> (Running, String) {
    let service = start_with(tls, Clock::system()).await;
    let url = format!("https://localhost:{}", service.port);
    (service, url)
}

async fn code(url: &str, tls: &Tls) -> Code {
    let channel = grpc::connect(url, tls, PATIENCE).unwrap();
    match soon(ask(&channel, "nothing")).await {
        Ok(()) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[tokio::test]
async fn processes_of_one_authority_understand_each_other() {
    let authority = Authority::new();
    let (service, url) = start(authority.vouch("localhost")).await;
    let client = authority.vouch("gateway");
    assert_eq!(code(&url, &client).await, Code::Ok);
    let channel = grpc::connect(&url, &client, PATIENCE).unwrap();
    assert!(soon(channel.is_serving()).await);
    drop(service);
}

#[tokio::test]
async fn a_service_answers_its_callers_alone_and_tells_everybody_of_its_health() {
    let authority = Authority::new();
    let (service, url) = start(authority.vouch("localhost")).await;
    let code_of = async |names: &[&str]| {
        let client = authority.vouch_for("client", names);
        let channel = grpc::connect(&url, &client, PATIENCE).unwrap();
        assert!(soon(channel.is_serving()).await, "{names:?}");
        code(&url, &client).await
    };
    for names in [
        &["gateway"][..],
        &["webhooks-svc"],
        &["gateway.payments.svc", "gateway"],
        &["webhooks-svc", "webhooks-svc-operators"],
    ] {
        assert_eq!(code_of(names).await, Code::Ok, "{names:?}");
    }
    for names in [
        &["charges-svc"][..],
        &["payctl"],
        &["gateway-operators", "gateway.payments.svc"],
        &["*.svc", "*"],
        &["127.0.0.1"],
        &[],
    ] {
        assert_eq!(code_of(names).await, Code::PermissionDenied, "{names:?}");
    }
    drop(service);
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let (service, _) = start(Authority::new().vouch("localhost")).await;
    assert_eq!(
        code(&service.url(), &Tls::default()).await,
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_client_of_another_authority_is_refused() {
    let authority = Authority::new();
    let (_service, url) = start(authority.vouch("localhost")).await;
    // It trusts the service, but the service does not trust it.
    let other = Authority::new();
    let mut stranger = other.vouch("gateway");
    stranger.tls_ca = authority.vouch("gateway").tls_ca;
    assert_eq!(code(&url, &stranger).await, Code::Unavailable);
}

#[tokio::test]
async fn a_service_of_another_authority_or_name_is_not_believed() {
    let authority = Authority::new();
    let client = authority.vouch("gateway");
    let (_stranger, url) = start(Authority::new().vouch("localhost")).await;
    assert_eq!(code(&url, &client).await, Code::Unavailable);
    let (_misnamed, url) = start(authority.vouch("charges")).await;
    assert_eq!(code(&url, &client).await, Code::Unavailable);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_unavailable_and_was_sent_nothing() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let channel = grpc::connect(&url, &authority.vouch("gateway"), PATIENCE).unwrap();
    let refused = soon(ask(&channel, "nothing")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(was_not_sent(&refused), "{refused:?}");
}

#[tokio::test]
async fn https_without_certificates_and_other_schemes_are_refused_at_the_start() {
    let refused = |url: &str| {
        grpc::connect(url, &Tls::default(), PATIENCE)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("https://localhost:1").contains("TLS_CERT"));
    assert!(refused("ftp://localhost:1").contains("http://"));
    assert!(refused("localhost:1").contains("localhost:1"));
    let missing = Path::new("/nonexistent.pem").to_owned();
    let tls = Tls {
        tls_cert: Some(missing.clone()),
        tls_key: Some(missing.clone()),
        tls_ca: Some(missing),
    };
    let refused = grpc::connect("https://localhost:1", &tls, PATIENCE).unwrap_err();
    assert!(
        refused.to_string().contains("/nonexistent.pem"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now_is_refused_at_the_start() {
    let authority = Authority::new();
    let is_refused = |tls: &Tls, why: &str| {
        let wants = format!("TLS_CERT wants a certificate that is valid now: {why}");
        assert_eq!(refused(tls), wants);
        let error = grpc::connect("https://localhost:1", tls, PATIENCE).unwrap_err();
        let (error, file) = (format!("{error:#}"), tls.tls_cert.as_ref().unwrap());
        let names_it = error.contains(&format!("TLS_CERT={}", file.display()));
        assert!(names_it && error.ends_with(why), "{error}");
    };
    assert_eq!(refused(&authority.vouch("gateway")), "");
    let expired = authority.vouch_within("gateway", 2020, 2021);
    is_refused(&expired, "it expired at 2021-01-01T00:00:00.000Z");
    let early = authority.vouch_within("gateway", 9998, 9999);
    is_refused(&early, "it is not valid before 9998-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn an_authority_that_has_expired_vouches_as_before() {
    let mut params = CertificateParams::default();
    params.not_after = date_time_ymd(2021, 1, 1);
    let authority = Authority::with(params);
    assert_eq!(refused(&authority.vouch("gateway")), "");
    let (_service, url) = start(authority.vouch("localhost")).await;
    assert_eq!(code(&url, &authority.vouch("gateway")).await, Code::Ok);
}

#[tokio::test]
async fn an_authority_is_replaced_step_by_step_without_a_refused_call() {
    let (old, new) = (Authority::new(), Authority::new());
    let ca = |authority: &Authority| authority.folder.path().join("ca.pem");
    let both = old.folder.path().join("both.pem");
    let read = |authority| fs::read_to_string(ca(authority)).unwrap();
    fs::write(&both, read(&old) + &read(&new)).unwrap();
    let steps = |name| {
        let trusting = |mut tls: Tls, authorities: &Path| {
            tls.tls_ca = Some(authorities.to_owned());
            assert_eq!(refused(&tls), "");
            tls
        };
        [
            old.vouch(name),
            trusting(old.vouch(name), &both),
            trusting(new.vouch(name), &both),
            new.vouch(name),
        ]
    };
    let (services, clients) = (steps("localhost"), steps("gateway"));
    // While a step is rolled out, some processes are one step ahead of the others.
    for (at, service) in services.into_iter().enumerate() {
        let (_service, url) = start(service).await;
        for (step, client) in clients.iter().enumerate() {
            if at.abs_diff(step) <= 1 {
                assert_eq!(code(&url, client).await, Code::Ok, "{at} and {step}");
            }
        }
    }
}
