//! What a running process says about itself: whether it is ready, and in production nothing else.

use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::run;
use crate::processes::{Process, Processes};

#[tokio::test]
async fn the_healthcheck_asks_the_process_beside_it() {
    let mut processes = Processes::plan().await;
    let ask = async |process: &Process| {
        let flags = process.flags.iter().map(String::as_str);
        let words: Vec<&str> = flags.chain(["healthcheck"]).collect();
        run(process.name, &Vec::new(), &words).await
    };
    let ended = ask(&processes.ratelimit).await;
    let start = "ratelimit-svc: nothing answers on ADMIN_LISTEN=127.0.0.1:";
    assert!(
        ended.code == Some(1) && ended.stderr.starts_with(start),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    processes.ratelimit.start().await;
    let ended = ask(&processes.ratelimit).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    // It runs, but what it depends on does not.
    processes.gateway.start().await;
    let ended = ask(&processes.gateway).await;
    let says = ended.stderr.starts_with("gateway: not ready: {");
    assert!(ended.code == Some(1) && says, "{ended:?}");
    // A wildcard address is asked over loopback.
    let port = processes.ratelimit.admin.clone().unwrap();
    let port = port.rsplit_once(':').unwrap().1;
    for host in ["0.0.0.0", "127.0.0.1"] {
        let address = format!("{host}:{port}");
        let settings = vec![("ADMIN_LISTEN".to_owned(), address)];
        let ended = run("ratelimit-svc", &settings, &["healthcheck"]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let ended = run("ratelimit-svc", &Vec::new(), &["healthcheck"]).await;
    let [line] = ended.refusals()[..] else {
        panic!("{ended:?}");
    };
    assert!(
        line.starts_with("ratelimit-svc: ADMIN_LISTEN is not set"),
        "{line}"
    );
}

#[tokio::test]
async fn nothing_describes_itself_in_production() {
    let mut processes = Processes::plan().await;
    let process = &mut processes.ratelimit;
    process
        .flags
        .retain(|flag| !flag.starts_with("--redis-url"));
    process.flags.push("--mode=production".to_owned());
    // Without a Redis that answers, it decides alone.
    process
        .flags
        .push("--redis-url=redis://127.0.0.1:1/".to_owned());
    process.start().await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(process.channel());
    let requests = futures::stream::iter([request]);
    let refused = client.server_reflection_info(requests).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
