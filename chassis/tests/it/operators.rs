//! A service that serves operators at a socket of their own.

use chassis::{
    admin::Readiness,
    clock::Clock,
    config::{Listen, OperatorsListen, Tls},
    grpc::{self, Caller, Channel, Door, Doors, ServerSetup, Sockets},
    shutdown::{Shutdown, Tasks},
    testing::connect,
};
use proto::ratelimit::rate_limits_server::RateLimitsServer;
use tokio::net::TcpListener;
use tonic::Code;

use super::{
    PATIENCE,
    service::{Signals, Told, ask},
    soon,
};

struct Service {
    services: Channel,
    operators: Channel,
    shutdown: Shutdown,
    signals: std::sync::Arc<Signals>,
    served: Tasks,
}

/// What merchants may call is served at neither socket.
async fn start() -> Service {
    let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let (grpc, operators) = (bind().await, bind().await);
    let service = Service {
        services: connect(&url(&grpc)),
        operators: connect(&url(&operators)),
        shutdown: Shutdown::new(),
        signals: std::sync::Arc::default(),
        served: Tasks::new(),
    };
    let serving = ServerSetup {
        sockets: Sockets {
            grpc,
            operators: Some(operators),
            admin: None,
        },
        tls: Tls::default(),
        reflection: false,
        readiness: Readiness::new(),
        clock: Clock::system(),
        shutdown: service.shutdown.clone(),
    };
    let doors = Doors {
        services: Door::default(),
        operators: Door::default().service(
            RateLimitsServer::new(Told(service.signals.clone())),
            &[Caller::Payctl],
        ),
    };
    service
        .served
        .spawn(async { grpc::serve(doors, serving).await.unwrap() });
    service
}

#[tokio::test]
async fn what_is_for_operators_is_served_at_their_socket_alone() {
    let service = start().await;
    soon(ask(&service.operators, "nothing")).await.unwrap();
    let refused = soon(ask(&service.services, "nothing")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    for channel in [&service.services, &service.operators] {
        assert!(soon(channel.is_serving()).await);
    }
}

#[tokio::test]
async fn stopping_lets_a_call_of_an_operator_finish() {
    let service = start().await;
    let stop = async {
        service.signals.begun.notified().await;
        service.shutdown.begin();
        while service.services.is_serving().await || service.operators.is_serving().await {
            tokio::task::yield_now().await;
        }
        service.signals.go_on.notify_one();
        service.served.drain(PATIENCE).await;
    };
    let (called, ()) = soon(async { tokio::join!(ask(&service.operators, "wait"), stop) }).await;
    called.unwrap();
    let refused = soon(ask(&service.operators, "nothing")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_process_whose_operators_address_is_taken_does_not_start() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = Listen {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin_listen: None,
        no_reflection: false,
    };
    let operators = OperatorsListen {
        operators_listen: Some(taken.local_addr().unwrap()),
    };
    let refused = Sockets::bind_for_operators(&listen, &operators).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.starts_with("OPERATORS_LISTEN="), "{told}");
}
