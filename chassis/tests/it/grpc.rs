//! gRPC in both directions.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use chassis::{
    clock::Clock,
    config::Tls,
    grpc::{self, Channel},
    shutdown::{Shutdown, Tasks},
    telemetry,
};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use tracing::{Dispatch, Instrument as _};
use tracing_subscriber::layer::SubscriberExt as _;

use super::{
    PATIENCE,
    service::{Reflection, ask, start, start_on, start_with},
    soon,
};

fn channel(url: &str, answer_max: Duration) -> Channel {
    grpc::connect(url, &Tls::default(), answer_max).unwrap()
}

/// Whether a status of our own making proves that the call was never sent.
pub fn was_not_sent(status: &Status) -> bool {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    causes.any(|error| error.is::<tonic::ConnectError>())
}

#[tokio::test]
async fn a_call_is_answered() {
    let service = start().await;
    soon(ask(&service.channel(), "nothing")).await.unwrap();
}

#[tokio::test]
async fn a_closed_port_is_unavailable_until_something_listens() {
    // Bound but not listening: no other process can take the port, and connections are refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let channel = channel(&format!("http://{address}"), PATIENCE);
    for _ in 0..10 {
        let refused = soon(ask(&channel, "nothing")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(was_not_sent(&refused), "{refused:?}");
    }
    let service = start_on(
        socket.listen(16).unwrap(),
        Tls::default(),
        Clock::system(),
        Reflection::Off,
    );
    soon(ask(&channel, "nothing")).await.unwrap();
    assert!(soon(grpc::is_serving(&service.url())).await);
}

#[tokio::test]
async fn a_name_without_an_address_is_unavailable() {
    let channel = channel("http://nobody.invalid:1", PATIENCE);
    let refused = soon(ask(&channel, "nothing")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(was_not_sent(&refused), "{refused:?}");
    assert!(!soon(channel.is_serving()).await);
}

#[tokio::test]
async fn calls_do_not_queue_up_behind_a_replica_that_is_silent() {
    // Once its queue is full, the system drops further connection attempts, as a dead machine
    // would.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await
    {
        queued.push(connected.unwrap());
        assert!(queued.len() < 16, "the queue must fill up");
    }
    let channel = channel(&format!("http://{address}"), PATIENCE);
    // Each of them alone would wait a second.
    let calls = async {
        for _ in 0..1_000 {
            let refused = ask(&channel, "nothing").await.unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable);
            assert!(was_not_sent(&refused), "{refused:?}");
        }
    };
    soon(calls).await;
}

/// Whether a DATA frame has begun after the preface, which comes after a request's head.
fn has_data(sent: &[u8]) -> bool {
    let mut rest = sent.get(24..).unwrap_or_default();
    while let [a, b, c, kind, ..] = *rest {
        if kind == 0 {
            return true;
        }
        let length = u32::from_be_bytes([0, a, b, c]);
        rest = rest.get(9 + length as usize..).unwrap_or_default();
    }
    false
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_call_was_sent_is_no_proof_that_it_was_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = channel(
        &format!("http://{}", listener.local_addr().unwrap()),
        PATIENCE,
    );
    let breaks = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = Vec::new();
        while !has_data(&sent) {
            assert_ne!(
                stream.read_buf(&mut sent).await.unwrap(),
                0,
                "the client has gone"
            );
        }
    };
    let (answer, ()) = soon(async { tokio::join!(ask(&channel, "nothing"), breaks) }).await;
    let lost = answer.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    assert!(lost.source().is_some());
    assert!(!was_not_sent(&lost), "{lost:?}");
}

#[tokio::test]
async fn a_call_past_its_deadline_fails_and_its_handler_is_dropped() {
    let service = start().await;
    let hasty = channel(&service.url(), Duration::from_millis(100));
    let late = soon(ask(&hasty, "wait")).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    soon(service.signals.ended.notified()).await;
}

#[tokio::test]
async fn the_server_ends_a_call_at_its_deadline_even_if_the_client_does_not() {
    let service = start().await;
    let stream = TcpStream::connect(("127.0.0.1", service.port))
        .await
        .unwrap();
    let connecting = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = connecting.unwrap();
    let tasks = Tasks::new();
    tasks.spawn(async { drop(connection.await) });
    // Uncompressed, eight bytes long: field 1 of field 1 is the text "wait".
    let message = Bytes::from_static(b"\0\0\0\0\x08\x0a\x06\x0a\x04wait");
    let request = Request::post(format!(
        "{}/payments.ratelimit.v1.RateLimits/CheckAll",
        service.url()
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .header("grpc-timeout", "100m")
    .body(Full::new(message))
    .unwrap();
    let answer = soon(client.send_request(request)).await.unwrap();
    let status = Status::from_header_map(answer.headers()).unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    soon(service.signals.ended.notified()).await;
}

#[tokio::test]
async fn a_panic_is_internal_and_the_next_call_is_answered() {
    let service = start().await;
    let channel = service.channel();
    let failed = soon(ask(&channel, "panic")).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    assert!(
        !failed.message().contains("test"),
        "what panicked stays inside"
    );
    soon(ask(&channel, "nothing")).await.unwrap();
}

#[tokio::test]
async fn reasons_and_violations_arrive() {
    let service = start().await;
    let channel = service.channel();
    let refused = soon(ask(&channel, "refuse")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "it is too late");
    assert_eq!(grpc::reason(&refused).as_deref(), Some("CASE_CLOSED"));
    assert!(refused.source().is_none(), "the service's word, not ours");

    let refused = soon(ask(&channel, "violate")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let expected = [("name", "must be short"), ("age", "must be there")];
    let expected = expected.map(|(field, must)| (field.to_owned(), must.to_owned()));
    assert_eq!(grpc::violations(&refused), expected);
    assert_eq!(grpc::reason(&Status::internal("no details")), None);
}

#[tokio::test]
async fn time_travel_waits_for_a_call_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::travelling(folder.path().join("clock")).unwrap();
    let service = start_with(Tls::default(), clock.clone()).await;
    let released = Arc::new(AtomicBool::new(false));
    let travel = async {
        service.signals.begun.notified().await;
        clock.advance(Duration::from_secs(3_600)).await.unwrap();
        assert!(released.load(Ordering::SeqCst));
    };
    let release = async {
        let before = clock.now();
        // Long enough for the clock to move if it did not wait.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(clock.now().since(before) < Duration::from_secs(3_600));
        released.store(true, Ordering::SeqCst);
        service.signals.go_on.notify_one();
    };
    let channel = service.channel();
    let (called, (), ()) =
        soon(async { tokio::join!(ask(&channel, "wait"), travel, release) }).await;
    called.unwrap();
}

#[tokio::test]
async fn stopping_lets_a_call_finish_and_accepts_no_other() {
    let service = start().await;
    let channel = service.channel();
    let stop = async {
        service.signals.begun.notified().await;
        service.shutdown.begin();
        let address = ("127.0.0.1", service.port);
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        service.signals.go_on.notify_one();
        service.served.drain(PATIENCE).await;
    };
    let (called, ()) = soon(async { tokio::join!(ask(&channel, "wait"), stop) }).await;
    called.unwrap();
    let refused = soon(ask(&channel, "nothing")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_hold_up_the_stop() {
    let service = start().await;
    let mut half_a_preface = TcpStream::connect(("127.0.0.1", service.port))
        .await
        .unwrap();
    half_a_preface
        .write_all(b"PRI * HTTP/2.0\r\n")
        .await
        .unwrap();
    let _silent = TcpStream::connect(("127.0.0.1", service.port))
        .await
        .unwrap();
    // Connections are accepted in order, so both are accepted once a later one is answered.
    soon(ask(&service.channel(), "nothing")).await.unwrap();
    service.shutdown.begin();
    soon(service.served.drain(Duration::MAX)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_a_service_leave_no_call_unknown() {
    let first = start().await;
    let address = ("127.0.0.1", first.port);
    let channel = first.channel();
    let (stop, tasks) = (Shutdown::new(), Tasks::new());
    let (answered, outcomes) = mpsc::channel();
    for _ in 0..8 {
        let (channel, stop, answered) = (channel.clone(), stop.clone(), answered.clone());
        tasks.spawn(async move {
            while !stop.has_begun() {
                answered.send(ask(&channel, "nothing").await).unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    drop(answered);
    let mut service = first;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        service.shutdown.begin();
        soon(service.served.drain(Duration::MAX)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        service = start_on(listener, Tls::default(), Clock::system(), Reflection::Off);
    }
    stop.begin();
    soon(tasks.drain(Duration::MAX)).await;
    let outcomes: Vec<_> = outcomes.into_iter().collect();
    assert!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() > 50);
    for refused in outcomes.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(was_not_sent(&refused), "{refused:?}");
    }
}

/// What arrives after the server's last frame must not be answered with a reset: on a reset, the
/// caller's system discards what it has not read yet, including the GOAWAY.
#[tokio::test]
async fn a_connection_that_the_server_ends_takes_what_was_still_on_its_way() {
    const PING: u8 = 6;
    const GO_AWAY: u8 = 7;
    let service = start().await;
    let mut caller = TcpStream::connect(("127.0.0.1", service.port))
        .await
        .unwrap();
    caller
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    // The server's settings arrive once it has accepted the connection.
    soon(caller.readable()).await.unwrap();
    service.shutdown.begin();
    // Frames have a head of 9 bytes: length, type, flags and stream.
    let mut last = None;
    let mut head = [0; 9];
    while soon(caller.read_exact(&mut head)).await.is_ok() {
        last = Some(head[3]);
        let mut body = vec![0; usize::from(head[2])];
        soon(caller.read_exact(&mut body)).await.unwrap();
        if (head[3], head[4]) == (PING, 0) {
            head[4] = 1;
            caller.write_all(&head).await.unwrap();
            caller.write_all(&body).await.unwrap();
        }
    }
    assert_eq!(last, Some(GO_AWAY));
    let late = [&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
    for _ in 0..3 {
        caller.write_all(&late).await.unwrap();
        assert_eq!(soon(caller.read(&mut head)).await.unwrap(), 0);
    }
    drop(caller);
    soon(service.served.drain(Duration::MAX)).await;
}

#[tokio::test]
async fn health_says_that_the_service_stops() {
    let service = start().await;
    let mut health = HealthClient::new(service.channel());
    let request = HealthCheckRequest::default();
    let mut watched = soon(health.watch(request)).await.unwrap().into_inner();
    let status = soon(watched.message()).await.unwrap().unwrap().status();
    assert_eq!(status, ServingStatus::Serving);
    service.shutdown.begin();
    let status = soon(watched.message()).await.unwrap().unwrap().status();
    assert_eq!(status, ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_is_answered_only_where_it_is_wanted() {
    for reflection in [Reflection::On, Reflection::Off] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = start_on(listener, Tls::default(), Clock::system(), reflection);
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client = ServerReflectionClient::new(service.channel());
        let answer = soon(client.server_reflection_info(tokio_stream::once(request))).await;
        if reflection == Reflection::Off {
            assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
            continue;
        }
        let answer = soon(answer.unwrap().into_inner().message())
            .await
            .unwrap()
            .unwrap();
        let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
            panic!("no list");
        };
        let names: Vec<_> = services
            .service
            .into_iter()
            .map(|service| service.name)
            .collect();
        assert!(
            names
                .iter()
                .any(|name| name == "payments.ratelimit.v1.RateLimits"),
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn the_trace_of_the_caller_goes_on_in_the_handler() {
    // With only one subscriber, a span that a parallel test enters first, without one, would be off
    // for good.
    let _second = Dispatch::new(tracing_subscriber::registry());
    let provider = SdkTracerProvider::builder().build();
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(traces);
    let _subscribed = tracing::subscriber::set_default(subscriber);
    let service = start().await;
    let channel = service.channel();

    let kept = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let span = tracing::info_span!("from an outbox row");
    telemetry::set_parent(&span, Some(kept));
    let call = async {
        let caller = telemetry::current_traceparent().unwrap();
        let handler = soon(ask(&channel, "trace")).await.unwrap_err();
        (caller, handler.message().to_owned())
    };
    let (caller, handler) = call.instrument(span).await;
    let trace_of = |context: &str| context.split('-').nth(1).unwrap().to_owned();
    let span_of = |context: &str| context.split('-').nth(2).unwrap().to_owned();
    assert_eq!(trace_of(&caller), trace_of(kept));
    assert_eq!(trace_of(&handler), trace_of(kept));
    assert_ne!(span_of(&handler), span_of(&caller), "a span of its own");
}

#[tokio::test]
async fn without_an_exporter_no_context_travels() {
    assert_eq!(telemetry::current_traceparent(), None);
    let span = tracing::info_span!("nothing");
    telemetry::set_parent(
        &span,
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    );
    let context = async { telemetry::current_traceparent() }.instrument(span);
    assert_eq!(context.await, None);
}
