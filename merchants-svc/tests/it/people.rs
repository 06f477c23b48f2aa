//! Signing up, verifying an address, and what people did.

use std::time::Duration;

use chassis::{
    grpc,
    testing::{check_invalid, check_refusal},
};
use proto::merchants::{
    Action, CreateMerchantRequest, InvitePersonRequest, ListActivityRequest, LogOutRequest,
    NoteActivityRequest, Role, SendVerificationRequest, SignUpRequest,
    merchant_operations_client::MerchantOperationsClient,
    people_operations_client::PeopleOperationsClient,
};
use tonic::Code;
use uuid::Uuid;

use crate::browser::{Browser, MINUTE, OTHER_PASSWORD, PASSWORD, origin, sha256};

const AMA: &str = "ama@example.com";

#[tokio::test]
async fn an_operator_lets_somebody_into_a_merchants_dashboard() {
    let mut browser = Browser::start().await;
    let channel = browser.service.operators();
    let new = CreateMerchantRequest {
        name: "Kente Shop".to_owned(),
        email: "office@example.com".to_owned(),
        ..CreateMerchantRequest::default()
    };
    let merchant = MerchantOperationsClient::new(channel.clone())
        .create_merchant(new)
        .await;
    let merchant_id = merchant.unwrap().into_inner().merchant_id;
    let mut operations = PeopleOperationsClient::new(channel);
    let invitation = |merchant_id: &str, email: &str| InvitePersonRequest {
        merchant_id: merchant_id.to_owned(),
        email: email.to_owned(),
    };
    operations
        .invite_person(invitation(&merchant_id, AMA))
        .await
        .unwrap();
    let first = browser.mail.newest(AMA, 1).await.token("reset");
    // Again, and to the same person: the newest link is as good.
    operations
        .invite_person(invitation(&merchant_id, AMA))
        .await
        .unwrap();
    let second = browser.mail.newest(AMA, 2).await.token("reset");
    browser.wait(6 * 24 * 60 * MINUTE).await;
    browser.reset(&second, PASSWORD).await.unwrap();
    let again = browser.reset(&first, OTHER_PASSWORD).await;
    check_refusal(again, Code::NotFound, "LINK_NOT_FOUND");
    let token = browser.log_in(AMA).await;
    let login = browser.who(&token).await.unwrap();
    assert_eq!(login.merchant.unwrap().merchant_id, merchant_id);
    assert!(login.person.unwrap().email_verified);

    let unknown = Uuid::now_v7().to_string();
    let refused = operations.invite_person(invitation(&unknown, AMA)).await;
    check_refusal(refused, Code::NotFound, "MERCHANT_NOT_FOUND");
    browser.sign_up("kofi@example.com").await;
    let refused = operations.invite_person(invitation(&merchant_id, "kofi@example.com"));
    check_refusal(refused.await, Code::FailedPrecondition, "EMAIL_TAKEN");
}

#[tokio::test]
async fn from_signing_up_to_logging_out() {
    let mut browser = Browser::start().await;
    browser.sign_up(" Ama@Example.com ").await;
    let link = browser.mail.newest(AMA, 1).await.token("verify-email");
    let token = browser.log_in("AMA@example.com").await;
    let before = browser.who(&token).await.unwrap();
    assert_eq!(before.role(), Role::Owner);
    assert!(!before.person.unwrap().email_verified);
    let merchant = before.merchant.unwrap();
    assert_eq!((&*merchant.name, &*merchant.email), ("Ama's Shop", AMA));
    assert!(!merchant.email_verified && merchant.accepting_payments);

    for _twice in 0..2 {
        assert_eq!(browser.verify_email(&link).await.unwrap(), AMA);
    }
    let after = browser.who(&token).await.unwrap();
    assert!(after.person.unwrap().email_verified && after.merchant.unwrap().email_verified);

    let done = browser.activities(&token).await;
    let actions: Vec<Action> = done.iter().map(|activity| activity.action()).collect();
    let in_order = [Action::EmailVerified, Action::LoggedIn, Action::SignedUp];
    assert_eq!(actions, in_order);
    assert_eq!((&*done[0].email, done[0].origin.clone()), (AMA, origin()));

    let log_out = LogOutRequest {
        token_sha256: sha256(&token),
    };
    for _twice in 0..2 {
        browser.people.log_out(log_out.clone()).await.unwrap();
    }
    let gone = browser.who(&token).await;
    check_refusal(gone, Code::Unauthenticated, "LOGIN_ENDED");
    let nobody = browser.who(&"0".repeat(64)).await;
    check_refusal(nobody, Code::Unauthenticated, "LOGIN_ENDED");
}

#[tokio::test]
async fn a_known_address_makes_nothing_and_is_told() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    let again = SignUpRequest {
        business_name: "Another Shop".to_owned(),
        email: AMA.to_owned(),
        password: OTHER_PASSWORD.to_owned(),
        origin: origin(),
    };
    browser.people.sign_up(again).await.unwrap();
    let told = browser.mail.newest(AMA, 2).await;
    assert_eq!(told.header("Subject"), "You have signed up already");
    assert_eq!(browser.count("select count(*) from merchants").await, 1);
    let refused = browser.try_log_in(AMA, OTHER_PASSWORD).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    browser.log_in(AMA).await;
}

#[tokio::test]
async fn every_bad_field_is_named() {
    let mut browser = Browser::start().await;
    let bad = SignUpRequest {
        business_name: " ".to_owned(),
        email: "ama@example.com\r\nBcc: esi@example.com".to_owned(),
        password: "password1234".to_owned(),
        origin: None,
    };
    let refused = browser.people.sign_up(bad).await.unwrap_err();
    let named = grpc::violations(&refused);
    let fields: Vec<&str> = named.iter().map(|(field, _)| &**field).collect();
    assert_eq!(fields, ["business_name", "email", "password"]);
    let own_name = SignUpRequest {
        business_name: "Ama's Shop".to_owned(),
        email: AMA.to_owned(),
        password: "amas-shop-2026".to_owned(),
        origin: None,
    };
    check_invalid(browser.people.sign_up(own_name).await, "password");
    // A password is not compared with a name that is none.
    let long_name = SignUpRequest {
        business_name: PASSWORD.repeat(1_000),
        email: AMA.to_owned(),
        password: PASSWORD.to_owned(),
        origin: None,
    };
    check_invalid(browser.people.sign_up(long_name).await, "business_name");
    assert_eq!(browser.count("select count(*) from people").await, 0);
}

#[tokio::test]
async fn a_link_verifies_for_a_day_and_can_be_mailed_again() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let old = browser.mail.newest(AMA, 1).await.token("verify-email");
    browser.wait(Duration::from_secs(24 * 3_600)).await;
    let refused = browser.verify_email(&old).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
    let token = browser.log_in(AMA).await;
    let again = SendVerificationRequest {
        person_id: browser.person_id(&token).await,
    };
    browser
        .people
        .send_verification(again.clone())
        .await
        .unwrap();
    let link = browser.mail.newest(AMA, 2).await.token("verify-email");
    let for_another_purpose = browser.reset(&link, PASSWORD).await;
    check_refusal(for_another_purpose, Code::NotFound, "LINK_NOT_FOUND");
    browser.verify_email(&link).await.unwrap();
    browser.people.send_verification(again).await.unwrap();
    browser.wait(MINUTE).await;
    assert_eq!(browser.mail.arrived(AMA).len(), 2, "it was not needed");
}

#[tokio::test]
async fn an_address_is_verified_for_who_knows_the_password_alone() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let link = browser.mail.newest(AMA, 1).await.token("verify-email");
    let token = browser.log_in(AMA).await;
    for password in ["", OTHER_PASSWORD] {
        let refused = browser.verify_email_with(&link, password).await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    let login = browser.who(&token).await.unwrap();
    assert!(!login.person.unwrap().email_verified && !login.merchant.unwrap().email_verified);
    browser.verify_email(&link).await.unwrap();
    // Also once it is verified; and the tries are those of logging in.
    for _ in 0..5 {
        let refused = browser.verify_email_with(&link, OTHER_PASSWORD).await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    let refused = browser.verify_email(&link).await;
    check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    let refused = browser.try_log_in(AMA, PASSWORD).await;
    check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES");
}

#[tokio::test]
async fn an_address_is_mailed_five_times_an_hour_whether_or_not_it_is_known() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.wait(Duration::from_secs(3_600)).await;
    for email in [AMA, "nobody@example.com"] {
        for _ in 0..5 {
            browser.ask_reset(email).await.unwrap();
        }
        let refused = browser.ask_reset(email).await.unwrap_err();
        assert!(grpc::retry_delay(&refused).unwrap() <= Duration::from_secs(3_600));
        check_refusal(
            Err::<(), _>(refused),
            Code::ResourceExhausted,
            "TOO_MANY_TRIES",
        );
    }
    browser.mail.newest(AMA, 6).await;
    browser.wait(Duration::from_secs(3_600)).await;
    browser.ask_reset(AMA).await.unwrap();
    browser.mail.newest(AMA, 7).await;
    assert!(browser.mail.arrived("nobody@example.com").is_empty());
}

#[tokio::test]
async fn a_form_that_is_sent_again_is_noted_and_mailed_once() {
    let mut browser = Browser::start().await;
    let token = browser.enter(AMA).await;
    let note = browser
        .note(&token, Action::PayoutRequested, "GHS 10.00")
        .await;
    let sent = [
        ("one", "GHS 10.00"),
        ("one", "GHS 10.00"),
        ("two", "GHS 10.00"),
        ("two", "GHS 11.00"),
        ("", "GHS 12.00"),
        ("", "GHS 12.00"),
    ];
    for (form, object) in sent {
        let note = NoteActivityRequest {
            form: form.to_owned(),
            object: object.to_owned(),
            ..note.clone()
        };
        browser.people.note_activity(note).await.unwrap();
    }
    let done = browser.activities(&token).await;
    let requested = done
        .iter()
        .filter(|one| one.action() == Action::PayoutRequested);
    let mut objects: Vec<_> = requested.map(|one| one.object.as_str()).collect();
    objects.sort_unstable();
    let expected = [
        "GHS 10.00",
        "GHS 10.00",
        "GHS 11.00",
        "GHS 12.00",
        "GHS 12.00",
    ];
    assert_eq!(objects, expected);
    browser.mail.newest(AMA, 1 + expected.len()).await;
    browser.wait(MINUTE).await;
    assert_eq!(browser.mail.arrived(AMA).len(), 1 + expected.len());
    let long = NoteActivityRequest {
        form: "x".repeat(65),
        ..note
    };
    check_invalid(browser.people.note_activity(long).await, "form");
}

#[tokio::test]
async fn what_another_service_does_is_noted_and_mailed() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let link = browser.mail.newest(AMA, 1).await.token("verify-email");
    let token = browser.log_in(AMA).await;
    let note = browser
        .note(&token, Action::PayoutRequested, "GHS 10.00")
        .await;
    let refused = browser.people.note_activity(note.clone()).await;
    check_refusal(refused, Code::FailedPrecondition, "EMAIL_NOT_VERIFIED");
    browser.verify_email(&link).await.unwrap();
    browser.people.note_activity(note.clone()).await.unwrap();
    let mail = browser.mail.newest(AMA, 2).await;
    let subject = "A payout was asked for";
    assert_eq!(mail.header("Subject"), subject);
    assert_eq!(mail.header("From"), "Payments <no-reply@pay.test>");
    let replay = NoteActivityRequest {
        action: Action::EventsReplayed.into(),
        ..note.clone()
    };
    browser.people.note_activity(replay).await.unwrap();
    browser.wait(MINUTE).await;
    assert_eq!(browser.mail.arrived(AMA).len(), 2, "it needs no mail");
    let refund = browser.note(&token, Action::RefundRequested, "GHS 5.00");
    let refund = refund.await;
    browser.people.note_activity(refund).await.unwrap();
    let mail = browser.mail.newest(AMA, 3).await;
    assert_eq!(mail.header("Subject"), "A refund was asked for");

    let done = browser.activities(&token).await;
    assert_eq!(done[1].action(), Action::EventsReplayed);
    assert_eq!(done[2].object, "GHS 10.00");
    for (field, action, object) in [
        ("action", Action::PasswordChanged, ""),
        ("action", Action::Unspecified, ""),
        ("object", Action::PayoutRequested, "GHS 1\r\nBcc: x"),
        ("object", Action::PayoutRequested, &*"x".repeat(201)),
    ] {
        let bad = NoteActivityRequest {
            action: action.into(),
            object: object.to_owned(),
            ..note.clone()
        };
        check_invalid(browser.people.note_activity(bad).await, field);
    }
    browser.sign_up("esi@example.com").await;
    let other = browser.log_in("esi@example.com").await;
    let others = NoteActivityRequest {
        merchant_id: browser
            .who(&other)
            .await
            .unwrap()
            .merchant
            .unwrap()
            .merchant_id,
        ..note
    };
    let refused = browser.people.note_activity(others).await;
    check_refusal(refused, Code::NotFound, "MERCHANT_NOT_FOUND");
}

#[tokio::test]
async fn twenty_mails_of_a_kind_are_a_pause_and_everything_is_noted() {
    let mut browser = Browser::start().await;
    let token = browser.enter(AMA).await;
    let note = browser.note(&token, Action::WebhookChanged, "").await;
    for _ in 0..25 {
        browser.people.note_activity(note.clone()).await.unwrap();
    }
    let done = browser.activities(&token).await;
    let changes = done
        .iter()
        .filter(|activity| activity.action() == Action::WebhookChanged);
    assert_eq!(changes.count(), 25);
    browser.mail.newest(AMA, 1 + 20).await;
    let another_kind = NoteActivityRequest {
        action: Action::PayoutRequested.into(),
        ..note.clone()
    };
    browser.people.note_activity(another_kind).await.unwrap();
    browser.mail.newest(AMA, 1 + 20 + 1).await;
    browser.wait(60 * MINUTE).await;
    browser.people.note_activity(note).await.unwrap();
    browser.mail.newest(AMA, 1 + 20 + 1 + 1).await;
}

#[tokio::test]
async fn activities_are_listed_in_pages_newest_first() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    for _ in 0..3 {
        browser.log_in(AMA).await;
    }
    let mut request = ListActivityRequest {
        merchant_id: browser
            .who(&token)
            .await
            .unwrap()
            .merchant
            .unwrap()
            .merchant_id,
        page_size: 2,
        page_token: String::new(),
    };
    let mut seen = Vec::new();
    loop {
        let page = browser.people.list_activity(request.clone()).await.unwrap();
        let page = page.into_inner();
        seen.extend(
            page.activities
                .into_iter()
                .map(|activity| activity.activity_id),
        );
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|newer, older| newer > older));
    request.page_token = "yesterday".to_owned();
    check_invalid(
        browser.people.list_activity(request.clone()).await,
        "page_token",
    );
    request.page_size = 101;
    check_invalid(browser.people.list_activity(request).await, "page_size");
}
