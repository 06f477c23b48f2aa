//! Endpoints with TLS, the only ones in production.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use chassis::{ids::MerchantId, testing::until};
use db::testing::TestDb;
use proto::webhooks::{
    Attempt, FailureCause, GetDeliveryRequest, ListDeliveriesRequest, SetEndpointRequest,
    webhook_operations_client::WebhookOperationsClient, webhooks_client::WebhooksClient,
};
use rcgen::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, Stream, pki_types::PrivateKeyDer};

use crate::world::{payment, start_process};

/// A receiver with the certificate of `name`; counts the requests that it could read.
struct TlsReceiver {
    address: SocketAddr,
    /// PEM. Trusting it means trusting the receiver.
    certificate: String,
    requests: Arc<AtomicUsize>,
}

impl TlsReceiver {
    fn start(name: &str) -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let (config, requests) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            certificate: cert.pem(),
            requests: requests.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if answer(&config, stream.unwrap()) {
                    requests.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        receiver
    }
}

/// Answers 200 to a client that completes the handshake and sends something.
fn answer(config: &Arc<ServerConfig>, mut stream: TcpStream) -> bool {
    let mut connection = ServerConnection::new(config.clone()).unwrap();
    let mut tls = Stream::new(&mut connection, &mut stream);
    let read = tls.read(&mut [0; 16 * 1_024]);
    read.is_ok_and(|bytes| bytes > 0)
        && tls
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .is_ok()
}

/// The first attempt of a process that trusts `trusted` and no other authority.
async fn attempt(receiver: &TlsReceiver, trusted: &str) -> Attempt {
    let folder = tempfile::tempdir().unwrap();
    let authorities = folder.path().join("authorities.pem");
    fs::write(&authorities, trusted).unwrap();
    let database = TestDb::new("webhooks-svc").await;
    let trust = [("SSL_CERT_FILE", authorities.to_str().unwrap())];
    let flags = ["--webhook-allow-http=false"];
    let process = start_process(&database, &flags, &trust).await;
    let mut client = WebhooksClient::new(process.channel());
    let mut operations = WebhookOperationsClient::new(process.operators());
    let merchant_id = MerchantId::new().to_string();
    let endpoint = SetEndpointRequest {
        merchant_id: merchant_id.clone(),
        url: format!("https://localhost:{}/hook", receiver.address.port()),
        events: Vec::new(),
    };
    operations.set_endpoint(endpoint).await.unwrap();
    client.publish(payment(&merchant_id)).await.unwrap();
    let list = ListDeliveriesRequest {
        merchant_id,
        ..ListDeliveriesRequest::default()
    };
    let listed = operations.list_deliveries(list).await.unwrap().into_inner();
    let delivery_id = listed.deliveries[0].delivery_id.clone();
    let get = GetDeliveryRequest { delivery_id };
    let reading = operations.clone();
    until("the attempt has ended", async || {
        let found = reading
            .clone()
            .get_delivery(get.clone())
            .await
            .unwrap()
            .into_inner();
        found
            .attempts
            .first()
            .is_some_and(|attempt| attempt.finished_at.is_some())
    })
    .await;
    operations
        .get_delivery(get)
        .await
        .unwrap()
        .into_inner()
        .attempts
        .remove(0)
}

#[tokio::test]
async fn a_receiver_whose_certificate_is_trusted_gets_its_events() {
    let receiver = TlsReceiver::start("localhost");
    let attempt = attempt(&receiver, &receiver.certificate).await;
    assert!(attempt.succeeded, "{attempt:?}");
    assert_eq!(receiver.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_certificate_of_nobody_we_trust_or_of_another_name_is_failure() {
    let stranger = TlsReceiver::start("localhost");
    let attempt_to = async |receiver: &TlsReceiver, trusted: &str| {
        let attempt = attempt(receiver, trusted).await;
        assert!(!attempt.succeeded);
        assert_eq!(attempt.cause(), FailureCause::Tls);
        assert!(
            attempt.error().contains("certificate"),
            "{}",
            attempt.error()
        );
        assert_eq!(
            receiver.requests.load(Ordering::SeqCst),
            0,
            "nothing is told to it"
        );
    };
    let trusted = TlsReceiver::start("localhost").certificate;
    attempt_to(&stranger, &trusted).await;
    let misnamed = TlsReceiver::start("merchant.example");
    attempt_to(&misnamed, &misnamed.certificate).await;
}
