//! Who may call what between processes that show each other certificates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use chassis::{
    config::Tls,
    grpc::{self, Channel},
};
use proto::{
    batch::{CarryRequest, batches_client::BatchesClient},
    batched::{BatchedMethod as _, CreateSession},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;
use tonic::Code;

use crate::{
    health::{ask as ask_admin, pay, until_ready},
    ports::{Method, ask, methods},
    processes::{Process, Processes},
};

const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Everybody who has a certificate in production.
const NAMES: [&str; 8] = [
    "railsim",
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
    "ratelimit-svc",
    "gateway",
    "payctl",
];

/// The years at whose beginning every process's certificate and their authority's end.
const OWN_UNTIL: i32 = 2_300;
const AUTHORITY_UNTIL: i32 = 2_400;

/// Makes an authority and writes its files to `folder`. Returns the settings of a process with
/// each name.
pub fn certificates(folder: &Path, names: &[&str]) -> Vec<Tls> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(AUTHORITY_UNTIL, 1, 1);
    let write = |name: String, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        Some(file)
    };
    let authority = params.self_signed(&key).unwrap();
    let tls_ca = write("ca.pem".to_owned(), authority.pem());
    let issuer = Issuer::new(params, key);
    let vouch = |name: &&str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([(*name).to_owned(), "127.0.0.1".to_owned()]);
        let mut params = params.unwrap();
        params.not_after = date_time_ymd(OWN_UNTIL, 1, 1);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Tls {
            tls_cert: write(format!("{name}-cert.pem"), certificate.pem()),
            tls_key: write(format!("{name}-key.pem"), key.serialize_pem()),
            tls_ca: tls_ca.clone(),
        }
    };
    names.iter().map(vouch).collect()
}

/// Starts all processes with certificates, and returns those of each name. Tests call services as
/// the gateway, and what is for operators as payctl.
async fn start(folder: &Path) -> (Processes, BTreeMap<&'static str, Tls>) {
    let mut processes = Processes::plan().await;
    let all: BTreeMap<_, _> = NAMES
        .into_iter()
        .zip(certificates(folder, &NAMES))
        .collect();
    for process in processes.all().into_iter().skip(1) {
        let own = &all[process.name];
        let files = [
            ("TLS_CERT", &own.tls_cert),
            ("TLS_KEY", &own.tls_key),
            ("TLS_CA", &own.tls_ca),
        ];
        for (name, file) in files {
            let file = file.as_ref().unwrap().display().to_string();
            process.env.push((name, file));
        }
        for service in ["merchants", "sessions", "charges", "webhooks", "ratelimit"] {
            let before = format!("--{service}-url=http://");
            for flag in &mut process.flags {
                *flag = flag.replace(&before, &format!("--{service}-url=https://"));
            }
        }
        if process.name != "gateway" {
            process.url = process.url.replace("http://", "https://");
            let operators = process.operators.take();
            process.operators = operators.map(|url| url.replace("http://", "https://"));
            process.tls = all["gateway"].clone();
            process.operators_tls = all["payctl"].clone();
        }
    }
    processes.start_all().await;
    (processes, all)
}

#[tokio::test]
async fn a_payment_passes_between_processes_that_show_each_other_certificates() {
    let folder = TempDir::new().unwrap();
    let (mut processes, _) = start(folder.path()).await;
    let api = pay(&processes).await;
    until_ready(&processes.gateway, 200).await;
    let listed = api.get("/api/v1/payments/not-there/status").await.unwrap();
    listed.expect(404).unwrap();
    for process in &processes.all()[1..] {
        check_expiry(process).await;
    }

    // Callers without a certificate, or with one from another authority, are refused.
    let charges = &mut processes.charges;
    let elsewhere = TempDir::new().unwrap();
    let [gateway, payctl] = &certificates(elsewhere.path(), &["gateway", "payctl"])[..] else {
        panic!("two were asked for");
    };
    let of_stranger = |tls: &mut Tls, stranger: &Tls| {
        tls.tls_cert = stranger.tls_cert.clone();
        tls.tls_key = stranger.tls_key.clone();
    };
    of_stranger(&mut charges.tls, gateway);
    of_stranger(&mut charges.operators_tls, payctl);
    assert!(!charges.channel().is_serving().await);
    assert!(!charges.operators().is_serving().await);
    charges.url = charges.url.replace("https://", "http://");
    charges.tls = Tls::default();
    assert!(!charges.channel().is_serving().await);
}

/// Checks that the process tells when its certificates expire.
async fn check_expiry(process: &Process) {
    let (_, metrics) = ask_admin(process, "/metrics").await;
    for (certificate, until) in [("own", OWN_UNTIL), ("authority", AUTHORITY_UNTIL)] {
        let at = date_time_ymd(until, 1, 1).unix_timestamp();
        let name = "tls_certificate_expiry_timestamp_seconds";
        let line = format!("{name}{{certificate=\"{certificate}\"}} {at}\n");
        assert!(metrics.contains(&line), "{}: {line}", process.name);
    }
}

/// Whom the network policies let in: callers by service and port.
fn policies() -> BTreeMap<(String, u64), BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../k8s/base");
    let mut allowed: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for document in yaml_serde::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            if document["kind"] != "NetworkPolicy" {
                continue;
            }
            let service = document["metadata"]["name"].as_str().unwrap();
            for rule in document["spec"]["ingress"].as_array().into_iter().flatten() {
                let from = rule["from"].as_array().into_iter().flatten();
                let label = "/podSelector/matchLabels/app.kubernetes.io~1name";
                let names: Vec<_> = from
                    .filter_map(|peer| peer.pointer(label)?.as_str())
                    .map(ToOwned::to_owned)
                    .collect();
                for port in rule["ports"].as_array().unwrap() {
                    let door = (service.to_owned(), port["port"].as_u64().unwrap());
                    allowed.entry(door).or_default().extend(names.clone());
                }
            }
        }
    }
    allowed
}

/// Which of the methods somebody with this certificate may call there.
async fn callable<'a>(url: &str, tls: &Tls, methods: &[&'a Method]) -> BTreeSet<&'a str> {
    let channel: Channel = grpc::connect(url, tls, ANSWER_MAX).unwrap();
    assert!(channel.is_serving().await, "health is for all");
    let mut callable = BTreeSet::new();
    for method in methods {
        let code = ask(&channel, &method.path).await;
        assert_ne!(code, Code::Unavailable, "{}", method.path);
        if !matches!(code, Code::PermissionDenied | Code::Unimplemented) {
            callable.insert(method.path.as_str());
        }
    }
    callable
}

/// What the process lets each caller call, which must be somebody whom the policies let in, and all
/// of them.
async fn check_callers(
    process: &Process,
    certificates: &BTreeMap<&'static str, Tls>,
) -> BTreeMap<(&'static str, u64), BTreeSet<String>> {
    let all = methods();
    let name = process.name.trim_end_matches("-svc");
    let own: Vec<_> = all.iter().filter(|one| one.process == name).collect();
    let mut found = BTreeMap::new();
    for (url, port) in [
        (Some(&process.url), 50051),
        (process.operators.as_ref(), 50052),
    ] {
        let Some(url) = url else { continue };
        let mut callers = BTreeSet::new();
        for (name, tls) in certificates {
            let callable = callable(url, tls, &own).await;
            if !callable.is_empty() {
                callers.insert((*name).to_owned());
            }
            let callable = callable.into_iter().map(ToOwned::to_owned).collect();
            found.insert((*name, port), callable);
        }
        let let_in = &policies()[&(process.name.to_owned(), port)];
        assert_eq!(&callers, let_in, "{} at {port}", process.name);
    }
    found
}

#[tokio::test]
async fn a_process_answers_those_whom_the_network_policies_let_in_and_nobody_else() {
    let folder = TempDir::new().unwrap();
    let (processes, certificates) = start(folder.path()).await;
    let merchants = check_callers(&processes.merchants, &certificates).await;
    let sessions = check_callers(&processes.sessions, &certificates).await;
    for process in [
        &processes.charges,
        &processes.webhooks,
        &processes.ratelimit,
    ] {
        check_callers(process, &certificates).await;
    }

    // Whoever may tell merchants something may do nothing else there.
    let tell = BTreeSet::from(["/payments.merchants.v1.Notices/TellMerchant".to_owned()]);
    assert_eq!(merchants[&("webhooks-svc", 50051)], tell);
    assert_eq!(merchants[&("charges-svc", 50051)], tell);
    // Whoever tells sessions what became of them may neither make nor read any.
    let record = "/payments.sessions.v1.Sessions/RecordTransaction";
    let of_charges = &sessions[&("charges-svc", 50051)];
    assert!(of_charges.contains(record), "{of_charges:?}");
    let made = |method: &&String| method.contains(".Sessions/") && *method != record;
    assert_eq!(of_charges.iter().find(made), None);
    assert!(!sessions[&("gateway", 50051)].contains(record));
    // Nor by a batch, whose calls must pass as each would by itself.
    for (name, may_record) in [("charges-svc", true), ("gateway", false)] {
        let (url, tls) = (&processes.sessions.url, &certificates[name]);
        let batches = BatchesClient::new(grpc::connect(url, tls, ANSWER_MAX).unwrap());
        let carried = async |path: &str| {
            let method = path.trim_start_matches('/').to_owned();
            let batch = CarryRequest {
                method,
                calls: Vec::new(),
            };
            let answer = batches.clone().carry(batch).await;
            answer.map_or_else(|status| status.code(), |_| Code::Ok)
        };
        let expected = |may: bool| {
            if may {
                Code::Ok
            } else {
                Code::PermissionDenied
            }
        };
        let codes = [carried(record).await, carried(CreateSession::PATH).await];
        assert_eq!(codes, [may_record, !may_record].map(expected), "{name}");
    }
    let of_gateway = &merchants[&("gateway", 50051)];
    assert!(of_gateway.len() > 20 && of_gateway.is_disjoint(&tell));
}
