//! Connections are kept for the next attempt, and only where they may be.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use proto::webhooks::DeliveryStatus;
use webhooks_svc::{delivery::AttemptVerdict, guard::Guard};

use crate::{
    guard::{lookup, send, sender},
    receiver::{Answer, Receiver},
    world::World,
};

const ATTEMPTS: usize = 20;

/// Longer than an idle connection is kept.
const IDLE: Duration = Duration::from_millis(1_300);

#[tokio::test]
async fn attempts_to_one_host_share_a_connection() {
    let receiver = Receiver::keeping("127.0.0.1:0").await;
    let mut world = World::start().await;
    // Many endpoints on one host, too.
    let merchants = [
        world.endpoint(&receiver.url()).await.merchant_id,
        world.endpoint(&receiver.url()).await.merchant_id,
    ];
    for number in 0..ATTEMPTS {
        let id = world.deliver(&merchants[number % 2]).await;
        world.in_state(&id, DeliveryStatus::Delivered).await;
    }
    assert_eq!(receiver.received().len(), ATTEMPTS);
    // On a slow machine one may have been idle for too long.
    assert!(
        receiver.connections() < ATTEMPTS / 2,
        "{}",
        receiver.connections()
    );
}

#[tokio::test]
async fn a_receiver_that_closes_without_a_word_costs_no_attempt() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let receiver = Receiver::start(move |_, _| Answer::Raw(text.as_bytes().to_vec())).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    for _ in 0..ATTEMPTS {
        let id = world.deliver(&merchant_id).await;
        let delivery = world.after_attempts(&id, 1).await;
        assert_eq!(delivery.status(), DeliveryStatus::Delivered);
    }
    assert_eq!(receiver.connections(), ATTEMPTS);
}

#[tokio::test]
async fn a_name_that_changes_is_called_where_it_was_checked_and_then_checked_anew() {
    // 127.0.0.2 stands for a public address: it is allowed, 127.0.0.1 is not.
    let refused = Receiver::keeping("127.0.0.1:0").await;
    let port = refused.address.port();
    let public = Receiver::keeping(&format!("127.0.0.2:{port}")).await;
    let asked = AtomicUsize::new(0);
    let rebinding = lookup(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => vec![IpAddr::from([127, 0, 0, 2])],
        _ => vec![IpAddr::from([127, 0, 0, 1])],
    });
    let guard = Guard::new(true, vec!["127.0.0.2/32".parse().unwrap()], rebinding);
    let url = format!("http://rebinding.example:{port}/");
    let sender = sender(&guard);
    for _ in 0..3 {
        let (verdict, reason) = send(&sender, &url).await;
        assert_eq!(verdict, AttemptVerdict::Succeeded, "{reason}");
    }
    assert_eq!(public.connections(), 1, "the checked address, once");
    tokio::time::sleep(IDLE).await;
    let (verdict, reason) = send(&sender, &url).await;
    assert_eq!(verdict, AttemptVerdict::Failed);
    assert_eq!(reason, "the host leads to no public address");
    assert_eq!((refused.connections(), public.connections()), (0, 1));
}

#[tokio::test]
async fn a_connection_that_was_idle_for_a_while_is_not_used_again() {
    let receiver = Receiver::keeping("127.0.0.1:0").await;
    let nets = vec!["127.0.0.0/8".parse().unwrap()];
    let sender = sender(&Guard::new(true, nets, lookup(|_| Vec::new())));
    for connections in 1..=2 {
        let (verdict, reason) = send(&sender, &receiver.url()).await;
        assert_eq!(verdict, AttemptVerdict::Succeeded, "{reason}");
        assert_eq!(receiver.connections(), connections);
        tokio::time::sleep(IDLE).await;
    }
}
