//! Creating sessions and reading them.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{MerchantId, SessionId},
    testing::{check_invalid, check_refusal},
};
use proto::sessions::{CreateSessionRequest, Payer, SessionStatus};
use tokio::task::JoinSet;
use tonic::Code;

use crate::world::{DAY, HOUR, World, create_persistently, money};

fn payer() -> Payer {
    Payer {
        phone: Some("+233241234567".to_owned()),
        email: Some("Ama@example.com".to_owned()),
        name: Some("Ama Mensah".to_owned()),
    }
}

#[tokio::test]
async fn a_new_session_can_be_paid_for_24_hours_to_the_millisecond() {
    let world = World::start().await;
    let request = CreateSessionRequest {
        description: Some("two cups".to_owned()),
        redirect_url: Some("https://shop.example.com/thanks".to_owned()),
        payer: Some(payer()),
        ..world.request("USD", 2_550)
    };
    let answer = world.create(request).await.unwrap();
    assert!(!answer.replayed);
    let session = answer.session.unwrap();
    let created_at: Timestamp = session.created_at.parse().unwrap();
    let expires_at: Timestamp = session.expires_at.parse().unwrap();
    assert_eq!(expires_at, created_at + Duration::from_secs(86_400));
    assert_eq!(session.status(), SessionStatus::Pending);
    assert_eq!(session.amount, Some(money("USD", 2_550)));
    assert_eq!(session.description.as_deref(), Some("two cups"));
    assert_eq!(
        session.redirect_url.as_deref(),
        Some("https://shop.example.com/thanks")
    );
    assert_eq!(session.payer, Some(payer()));
    assert_eq!(session.transaction, None);
    assert_eq!(world.get(&session.session_id).await.unwrap(), session);
    let read = world.read(&session.session_id).await;
    assert_eq!(read.unwrap(), session, "its payer sees it");
    let by_the_version_before = world.get_as(&session.session_id, "").await;
    assert_eq!(by_the_version_before.unwrap(), session);
    world.end().await;
}

#[tokio::test]
async fn another_merchants_session_is_like_an_unknown_one() {
    let world = World::start().await;
    let session = world.hosted().await;
    let other = MerchantId::new().to_string();
    let unknown = SessionId::new().to_string();
    let withdrawn = world.direct_charge();
    world.recorded(withdrawn.open()).await;
    world.recorded(withdrawn.withdraw(2)).await;
    let answers = [
        world.get_as(&session.session_id, &other).await,
        world.get_as(&session.session_id, "nobody").await,
        world.get(&unknown).await,
        world.get(&withdrawn.session_id).await,
        world.get("' or 1=1").await,
        world.get(&session.session_id.replace('-', "")).await,
        world.get("").await,
        world.read(&unknown).await,
        world.read(&withdrawn.session_id).await,
        world.read("").await,
    ];
    let told = |status: &tonic::Status| {
        (
            status.code(),
            status.message().to_owned(),
            status.details().to_vec(),
        )
    };
    let first = told(answers[0].as_ref().unwrap_err());
    for answer in answers {
        assert_eq!(told(answer.as_ref().unwrap_err()), first);
        check_refusal(answer, Code::NotFound, "SESSION_NOT_FOUND");
    }
    world.end().await;
}

#[tokio::test]
async fn a_repeated_request_gets_the_session_as_it_was_created() {
    let world = World::start().await;
    let request = CreateSessionRequest {
        payer: Some(payer()),
        ..world.request("USD", 2_550)
    };
    let first = world
        .create(request.clone())
        .await
        .unwrap()
        .session
        .unwrap();
    let charge = world.hosted_charge(&first, 1);
    world.recorded(charge.open()).await;
    let again = world.create(request).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.session.unwrap(), first);
    world.end().await;
}

#[tokio::test]
async fn a_key_with_another_request_is_refused_and_nothing_is_created() {
    let mut world = World::start().await;
    let request = world.request("USD", 2_550);
    world.create(request.clone()).await.unwrap();
    let others = [
        CreateSessionRequest {
            amount: Some(money("USD", 2_551)),
            ..request.clone()
        },
        CreateSessionRequest {
            amount: Some(money("GHS", 2_550)),
            ..request.clone()
        },
        CreateSessionRequest {
            description: Some("a".to_owned()),
            ..request.clone()
        },
        CreateSessionRequest {
            payer: Some(payer()),
            ..request.clone()
        },
    ];
    for other in others {
        check_refusal(
            world.create(other).await,
            Code::AlreadyExists,
            "IDEMPOTENCY_KEY_REUSED",
        );
    }
    assert_eq!(world.customers().await, []);
    let elsewhere = CreateSessionRequest {
        merchant_id: MerchantId::new().to_string(),
        ..request
    };
    assert!(
        !world.create(elsewhere).await.unwrap().replayed,
        "keys are a merchant's own"
    );
    world.end().await;
}

#[tokio::test]
async fn fifty_parallel_requests_with_one_key_create_one_session() {
    let mut world = World::start().await;
    let request = CreateSessionRequest {
        payer: Some(payer()),
        ..world.request("USD", 2_550)
    };
    let mut racing = JoinSet::new();
    for _ in 0..50 {
        racing.spawn(create_persistently(world.client.clone(), request.clone()));
    }
    let answers = racing.join_all().await;
    let created = answers.iter().filter(|answer| !answer.replayed).count();
    assert!(created <= 1, "{created} were created");
    assert!(
        answers
            .iter()
            .all(|answer| answer.session == answers[0].session)
    );
    let (sessions,): (i64,) = world
        .db
        .read()
        .await
        .unwrap()
        .sql("select count(*) from sessions")
        .one()
        .await
        .unwrap();
    assert_eq!(sessions, 1);
    assert_eq!(world.customers().await.len(), 1);
    world.end().await;
}

/// Only PostgreSQL lets two transactions run at once.
#[tokio::test]
async fn a_request_whose_key_is_being_used_is_told_so() {
    let world = World::start().await;
    if world.db.is_postgres() {
        let request = world.request("USD", 2_550);
        let running = world.take_key(&request).await;
        let answer = world.create(request.clone()).await;
        check_refusal(answer, Code::Aborted, "IDEMPOTENCY_IN_PROGRESS");
        drop(running);
        assert!(!world.create(request).await.unwrap().replayed);
    }
    world.end().await;
}

#[tokio::test]
async fn a_key_is_kept_until_24_hours_after_the_session_ended() {
    let world = World::start().await;
    let request = world.request("USD", 2_550);
    let session = world
        .create(request.clone())
        .await
        .unwrap()
        .session
        .unwrap();
    let paid_late = world.request("USD", 2_550);
    let late = world
        .create(paid_late.clone())
        .await
        .unwrap()
        .session
        .unwrap();
    // One ends with its expiry, the other two hours later with its payment.
    let charge = world.hosted_charge(&late, 1);
    world.recorded(charge.open()).await;
    world.advance(DAY + 2 * HOUR).await;
    world.recorded(charge.settled(2)).await;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    world.advance(DAY - 2 * HOUR - minutes(1)).await;
    assert!(world.create(request.clone()).await.unwrap().replayed);
    world.advance(minutes(2)).await;
    let another = world.create(request).await.unwrap();
    assert!(!another.replayed);
    assert_ne!(another.session.unwrap().session_id, session.session_id);
    assert!(world.create(paid_late.clone()).await.unwrap().replayed);
    world.advance(2 * HOUR).await;
    assert!(!world.create(paid_late).await.unwrap().replayed);
    world.end().await;
}

#[tokio::test]
async fn what_would_corrupt_a_record_is_refused() {
    let world = World::start().await;
    let request = || world.request("USD", 2_550);
    let with_amount = |currency, minor_units| CreateSessionRequest {
        amount: Some(money(currency, minor_units)),
        ..request()
    };
    for wrong in [
        with_amount("USD", 0),
        with_amount("USD", -1),
        with_amount("usd", 1),
        with_amount("XAU", 1),
        with_amount("", 1),
        CreateSessionRequest {
            amount: None,
            ..request()
        },
    ] {
        check_invalid(world.create(wrong).await, "amount");
    }
    let with_payer = |payer| CreateSessionRequest {
        payer: Some(payer),
        ..request()
    };
    for phone in ["0241234567", "+233 24 123 4567", "nobody"] {
        let payer = Payer {
            phone: Some(phone.to_owned()),
            ..payer()
        };
        check_invalid(world.create(with_payer(payer)).await, "payer.phone");
    }
    let long = |length| Some("é".repeat(length));
    let email = Payer {
        email: long(255),
        ..payer()
    };
    check_invalid(world.create(with_payer(email)).await, "payer.email");
    let name = Payer {
        name: Some("a\0b".to_owned()),
        ..payer()
    };
    check_invalid(world.create(with_payer(name)).await, "payer.name");
    let described = |length| CreateSessionRequest {
        description: long(length),
        ..request()
    };
    check_invalid(world.create(described(501)).await, "description");
    assert!(world.create(described(500)).await.is_ok());
    for key in ["", &"k".repeat(258)] {
        let keyed = CreateSessionRequest {
            idempotency_key: key.to_owned(),
            ..request()
        };
        check_invalid(world.create(keyed).await, "idempotency_key");
    }
    let nobody = CreateSessionRequest {
        merchant_id: "1".to_owned(),
        ..request()
    };
    check_invalid(world.create(nobody).await, "merchant_id");
    world.end().await;
}

#[tokio::test]
async fn amounts_come_back_exactly_in_every_currency() {
    let world = World::start().await;
    for currency in ["GHS", "USD", "JPY", "BHD"] {
        for minor_units in [
            1,
            10,
            2_550,
            999_999_999_999,
            9_007_199_254_740_993,
            i64::MAX,
        ] {
            let request = world.request(currency, minor_units);
            let session = world.create(request).await.unwrap().session.unwrap();
            let charge = world.hosted_charge(&session, 1);
            world.recorded(charge.open()).await;
            let shown = world.get(&session.session_id).await.unwrap();
            assert_eq!(shown.amount, Some(money(currency, minor_units)));
            assert_eq!(
                shown.transaction.unwrap().amount,
                Some(money(currency, minor_units))
            );
        }
    }
    world.end().await;
}

#[tokio::test]
async fn sessions_are_there_after_a_restart() {
    let mut world = World::start().await;
    let session = world.hosted().await;
    world.restart().await;
    assert_eq!(world.get(&session.session_id).await.unwrap(), session);
    world.end().await;
}

#[tokio::test]
async fn the_admin_address_tells_that_it_is_ready_and_what_it_counted() {
    let world = World::start().await;
    let ready = world.admin("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    assert!(ready.contains("\"database\":true"), "{ready}");
    // Counting starts with the first request for metrics.
    world.admin("/metrics").await;
    let session = world.hosted().await;
    world
        .recorded(world.hosted_charge(&session, 1).open())
        .await;
    let metrics = world.admin("/metrics").await;
    for counted in ["sessions_created_total", "charge_reports_total"] {
        assert!(metrics.contains(counted), "{metrics}");
    }
    world.end().await;
}
