//! Every story of the sandbox's table, on all APIs.

mod payment;

use std::time::Duration;

use serde_json::{Value, json};

use self::payment::{Payment, Told, Wire};
use crate::world::{MARKUP, World, reference};

/// Those whose answers to queries say that a payment failed.
const TELLING: [Wire; 2] = [Wire::Momo, Wire::Telecel];

const ALL: [Wire; 3] = [Wire::Momo, Wire::Telecel, Wire::Hubtel];

fn succeeded() -> Told {
    Told::Succeeded("2550".to_owned())
}

#[tokio::test]
async fn these_numbers_settle_with_so_many_callbacks() {
    for (digits, callbacks) in [("001", 1), ("567", 1), ("008", 0), ("009", 3)] {
        for rail in ALL {
            let world = World::start().await;
            let payment = Payment::new(&world, rail);
            payment.request_accepted(digits).await;
            assert_eq!(payment.query().await, Told::Pending, "{digits} {rail:?}");
            world.advance(2).await;
            assert_eq!(payment.query().await, succeeded(), "{digits} {rail:?}");
            world.advance(7 * 24 * 3_600).await;
            assert_eq!(world.calls().len(), callbacks, "{digits} {rail:?}");
            assert_eq!(payment.debits().await, 1, "{digits} {rail:?}");
            let bodies = world.calls();
            assert!(bodies.iter().all(|call| call.body == bodies[0].body));
        }
    }
}

#[tokio::test]
async fn these_numbers_fail_for_their_reason() {
    for (digits, code, word) in [
        ("003", "NOT_ENOUGH_FUNDS", "insufficient"),
        ("004", "APPROVAL_REJECTED", "declined"),
        ("012", "PAYER_LIMIT_REACHED", "limit"),
    ] {
        for rail in ALL {
            let world = World::start().await;
            let payment = Payment::new(&world, rail);
            payment.request_accepted(digits).await;
            world.advance(2).await;
            match (rail, payment.query().await) {
                (Wire::Momo, told) => assert_eq!(told, Told::Failed(code.to_owned())),
                (Wire::Telecel, Told::Failed(message)) => assert!(message.contains(word)),
                (Wire::Telecel, told) => panic!("{told:?}"),
                // Only its callback tells.
                (Wire::Hubtel, told) => {
                    assert_eq!(told, Told::Pending);
                    let call = world.calls().remove(0).json();
                    assert_eq!(call["ResponseCode"], "2001");
                    let description = call["Data"]["Description"].as_str();
                    assert!(description.unwrap().contains(word));
                }
            }
            world.advance(24 * 3_600).await;
            // Paystack has no webhook for a failure.
            assert_eq!(world.calls().len(), usize::from(rail != Wire::Telecel));
            assert_eq!(payment.debits().await, 0);
        }
    }
}

#[tokio::test]
async fn a_prompt_that_nobody_answers_ends_with_the_networks_prompt_time() {
    for (rail, seconds) in [(Wire::Momo, 300), (Wire::Telecel, 180), (Wire::Hubtel, 300)] {
        let world = World::start().await;
        let payment = Payment::new(&world, rail);
        payment.request_accepted("005").await;
        world.advance(seconds - 1).await;
        assert_eq!(payment.query().await, Told::Pending);
        assert_eq!(world.wires().prompts().await.len(), 1);
        world.advance(2).await;
        match payment.query().await {
            Told::Failed(reason) => assert!(
                reason == "COULD_NOT_PERFORM_TRANSACTION" || reason.contains("timed out"),
                "{reason}"
            ),
            Told::Pending if rail == Wire::Hubtel => {
                let call = world.calls().remove(0).json();
                let description = call["Data"]["Description"].as_str();
                assert!(description.unwrap().contains("timed out"));
            }
            told => panic!("{told:?}"),
        }
        assert_eq!(world.wires().prompts().await.len(), 0);
        assert_eq!(payment.debits().await, 0);
    }
}

#[tokio::test]
async fn the_prompt_time_can_be_set_for_all_networks() {
    let world = World::start_with(&["--prompt-timeout=10s"]).await;
    for rail in ALL {
        let payment = Payment::new(&world, rail);
        payment.request_accepted("005").await;
        world.advance(11).await;
        assert_eq!(world.entry(&payment.reference).await["status"], "failed");
    }
}

#[tokio::test]
async fn an_unknown_payer_is_refused_at_once() {
    let world = World::start().await;
    let momo = Payment::new(&world, Wire::Momo);
    for _ in 0..2 {
        let (status, body) = momo.request("006").await.unwrap();
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (400, &json!("PAYER_NOT_FOUND"))
        );
        assert_eq!(momo.query().await, Told::Nothing);
    }
    let telecel = Payment::new(&world, Wire::Telecel);
    let (status, body) = telecel.request("006").await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["data"]["status"]),
        (200, &json!("failed"))
    );
    assert!(
        body["data"]["message"]
            .as_str()
            .unwrap()
            .contains("not found")
    );
    assert!(matches!(telecel.query().await, Told::Failed(_)));
    world.advance(3_600).await;
    assert_eq!((momo.debits().await, telecel.debits().await), (0, 0));
    assert_eq!(world.calls().len(), 0);
}

#[tokio::test]
async fn an_unavailable_network_refuses_and_knows_nothing_afterwards() {
    let world = World::start().await;
    let momo = Payment::new(&world, Wire::Momo);
    let (status, body) = momo.request("007").await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (503, &json!("SERVICE_UNAVAILABLE"))
    );
    let telecel = Payment::new(&world, Wire::Telecel);
    let (status, body) = telecel.request("007").await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["type"]),
        (400, &json!("processor_error"))
    );
    let hubtel = Payment::new(&world, Wire::Hubtel);
    let (status, body) = hubtel.request("007").await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["ResponseCode"]),
        (200, &json!("4103"))
    );
    world.advance(3_600).await;
    for payment in [momo, telecel, hubtel] {
        assert_eq!(payment.query().await, Told::Nothing);
        assert_eq!(payment.debits().await, 0);
        let entry = world.entry(&payment.reference).await;
        assert_eq!(entry["status"], "failed");
    }
}

#[tokio::test]
async fn late_money_arrives_five_seconds_after_a_query_was_told_failed() {
    for rail in TELLING {
        let world = World::start().await;
        let payment = Payment::new(&world, rail);
        payment.request_accepted("010").await;
        world.advance(3_600).await;
        assert_eq!(payment.debits().await, 0, "nobody has asked");
        assert!(matches!(payment.query().await, Told::Failed(_)));
        world.advance(4).await;
        assert!(matches!(payment.query().await, Told::Failed(_)));
        assert_eq!((payment.debits().await, world.calls().len()), (0, 0));
        world.advance(2).await;
        assert_eq!(payment.query().await, succeeded());
        world.advance(3_600).await;
        assert_eq!((payment.debits().await, world.calls().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_request_whose_reply_is_cut_off_is_booked_and_settles() {
    for rail in ALL {
        let world = World::start().await;
        let payment = Payment::new(&world, rail);
        assert_eq!(payment.request("013").await, None);
        assert_eq!(payment.query().await, Told::Pending);
        assert_eq!(world.entry(&payment.reference).await["requests"], 1);
        world.advance(2).await;
        assert_eq!(payment.query().await, succeeded());
        assert_eq!(payment.debits().await, 1);
    }
}

#[tokio::test]
async fn a_code_whose_reply_is_cut_off_is_taken_and_settles() {
    let world = World::start().await;
    let wires = world.wires();
    wires.charge("order-14", "0201234014", "vod").await.unwrap();
    assert_eq!(wires.check("order-14").await["status"], "send_otp");
    assert!(wires.submit_otp("order-14", "123456").await.is_err());
    assert_eq!(wires.check("order-14").await["status"], "pending");
    world.advance(2).await;
    assert_eq!(wires.verify("order-14").await["status"], "success");
    assert_eq!(world.entry("order-14").await["debits"], 1);
}

#[tokio::test]
async fn an_expired_code_ends_the_payment() {
    let world = World::start().await;
    let wires = world.wires();
    wires.charge("order-11", "0201234011", "vod").await.unwrap();
    let answer = wires.submit_otp("order-11", "123456").await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["data"]["status"], "failed");
    assert!(
        answer["data"]["message"]
            .as_str()
            .unwrap()
            .contains("expired")
    );
    world.advance(3_600).await;
    assert_eq!(wires.verify("order-11").await["status"], "failed");
    assert_eq!(world.entry("order-11").await["debits"], 0);
}

#[tokio::test]
async fn a_network_may_say_what_would_run_as_a_script() {
    let world = World::start().await;
    let wires = world.wires();
    let answer = wires.charge("order-17", "0201234017", "vod").await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["data"]["status"], "send_otp");
    assert_eq!(answer["data"]["display_text"], MARKUP);
    wires.submit_otp("order-17", "123456").await.unwrap();
    world.advance(2).await;
    let failed = wires.verify("order-17").await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["gateway_response"], MARKUP);
    assert_eq!(world.entry("order-17").await["debits"], 0);
}

#[tokio::test]
async fn another_amount_than_ours_is_debited_and_reported() {
    for rail in ALL {
        let world = World::start().await;
        let payment = Payment::new(&world, rail);
        payment.request_accepted("015").await;
        world.advance(2).await;
        assert_eq!(payment.query().await, Told::Succeeded("2650".to_owned()));
        let entry = world.entry(&payment.reference).await;
        assert_eq!(entry["amount_minor"], 2550);
        assert_eq!(entry["debited_minor"], 2650);
        assert_eq!(entry["debits"], 1);
    }
}

#[tokio::test]
async fn codes_are_asked_of_telecel_payers_only() {
    let world = World::start().await;
    let wires = world.wires();
    for (index, digits) in ["002", "011", "014", "017"].iter().enumerate() {
        let order = format!("at-{index}");
        wires
            .charge(&order, &format!("0271234{digits}"), "atl")
            .await
            .unwrap();
        let momo = reference(0);
        let phone = format!("233241234{digits}");
        wires
            .request_to_pay(&momo, &phone, &world.callback)
            .await
            .unwrap();
        world.advance(2).await;
        assert_eq!(wires.verify(&order).await["status"], "success");
        assert_eq!(wires.momo_json(&momo).await["status"], "SUCCESSFUL");
    }
}

#[tokio::test]
async fn a_callback_that_hangs_delays_no_other() {
    let world = World::start_with(&["--callback-timeout=2s"]).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = format!("http://{}/", silent.local_addr().unwrap());
    let wires = world.wires();
    wires
        .request_to_pay(&reference(0), "233241234001", &hanging)
        .await
        .unwrap();
    wires
        .request_to_pay(&reference(0), "233241234001", &world.callback)
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    let clock = world.clock.clone();
    // In real time: the hanging callback holds up time travel until its timeout.
    let (moved, arrived) = tokio::join!(clock.advance(Duration::from_secs(2)), async {
        while world.calls().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        start.elapsed()
    });
    moved.unwrap();
    assert!(
        arrived < start.elapsed(),
        "it arrived while the other one hung"
    );
}
