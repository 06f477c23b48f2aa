//! Changing one's e-mail address.

use std::time::Duration;

use chassis::testing::{check_invalid, check_refusal};
use proto::merchants::Action;
use tonic::Code;

use crate::browser::{Browser, MINUTE, OTHER_PASSWORD, PASSWORD};

const OLD: &str = "ama@example.com";
const NEW: &str = "ama@shop.example";

/// Somebody with a verified address, and the token of their login.
async fn verified(browser: &mut Browser) -> String {
    browser.sign_up(OLD).await;
    let link = browser.mail.newest(OLD, 1).await.token("verify-email");
    browser.verify_email(&link).await.unwrap();
    browser.log_in(OLD).await
}

#[tokio::test]
async fn an_address_changes_once_its_link_is_followed_with_the_password() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    browser
        .ask_email(&token, " Ama@Shop.example ")
        .await
        .unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    let asked = browser.mail.newest(OLD, 2).await;
    let subject = "Another e-mail address was asked for";
    assert_eq!(asked.header("Subject"), subject);
    let before = browser.who(&token).await.unwrap().person.unwrap();
    let shown = (before.email.as_str(), before.email_pending.as_deref());
    assert_eq!(shown, (OLD, Some(NEW)));

    let refused = browser.change_email(&link, OTHER_PASSWORD).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    for _twice in 0..2 {
        assert_eq!(browser.change_email(&link, PASSWORD).await.unwrap(), NEW);
    }
    let ended = browser.who(&token).await;
    check_refusal(ended, Code::Unauthenticated, "LOGIN_ENDED");
    let token = browser.log_in(NEW).await;
    let login = browser.who(&token).await.unwrap();
    let (person, merchant) = (login.person.unwrap(), login.merchant.unwrap());
    let shown = (person.email.as_str(), person.email_pending);
    assert_eq!(shown, (NEW, None));
    assert!(person.email_verified && merchant.email_verified);
    assert_eq!(merchant.email, NEW);
    let told = browser.mail.newest(OLD, 3).await;
    assert_eq!(told.header("Subject"), "Your e-mail address was changed");
    let refused = browser.try_log_in(OLD, PASSWORD).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    let done = browser.activities(&token).await;
    let done: Vec<Action> = done.iter().map(|activity| activity.action()).collect();
    let in_order = [
        Action::LoggedIn,
        Action::EmailChanged,
        Action::EmailChangeRequested,
    ];
    assert_eq!(done[..3], in_order);
    // Twice is once.
    browser.wait(MINUTE).await;
    assert_eq!(browser.mail.arrived(OLD).len(), 3);
}

#[tokio::test]
async fn only_the_newest_wish_counts_and_a_new_password_ends_it() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    browser.ask_email(&token, "amma@example.com").await.unwrap();
    let mistyped = browser.mail.newest("amma@example.com", 1).await;
    let mistyped = mistyped.token("change-email");
    browser.ask_email(&token, NEW).await.unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    let refused = browser.change_email(&mistyped, PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");

    browser.ask_reset(OLD).await.unwrap();
    let reset = browser.mail.newest(OLD, 4).await.token("reset");
    browser.reset(&reset, OTHER_PASSWORD).await.unwrap();
    let refused = browser.change_email(&link, OTHER_PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
}

#[tokio::test]
async fn a_link_to_set_the_password_does_not_outlive_the_address_it_was_mailed_to() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    browser.ask_reset(OLD).await.unwrap();
    let reset = browser.mail.newest(OLD, 2).await.token("reset");
    browser.ask_email(&token, NEW).await.unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    browser.change_email(&link, PASSWORD).await.unwrap();
    let refused = browser.reset(&reset, OTHER_PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
}

#[tokio::test]
async fn whoever_had_the_address_before_gets_it_back_and_nobody_after_them_undoes_that() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    // A thief moves the account twice.
    browser.ask_email(&token, NEW).await.unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    browser.change_email(&link, PASSWORD).await.unwrap();
    let undo = browser.mail.newest(OLD, 3).await.token("reset");
    let token = browser.log_in(NEW).await;
    browser
        .ask_email(&token, "thief@example.com")
        .await
        .unwrap();
    let link = browser.mail.newest("thief@example.com", 1).await;
    let link = link.token("change-email");
    browser.change_email(&link, PASSWORD).await.unwrap();
    let undo_of_thief = browser.mail.newest(NEW, 3).await.token("reset");
    let thief = browser.log_in("thief@example.com").await;

    browser.wait(6 * 24 * 60 * MINUTE).await;
    browser.reset(&undo, OTHER_PASSWORD).await.unwrap();
    let ended = browser.who(&thief).await;
    check_refusal(ended, Code::Unauthenticated, "LOGIN_ENDED");
    let back = browser.try_log_in(OLD, OTHER_PASSWORD).await.unwrap();
    let login = browser.who(&back.token).await.unwrap();
    assert_eq!(login.merchant.unwrap().email, OLD);
    for link in [&undo, &undo_of_thief] {
        let refused = browser.reset(link, PASSWORD).await;
        check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
    }
}

#[tokio::test]
async fn nobody_has_one_stranger_after_the_other_mailed() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    for number in 0..5 {
        let stranger = format!("stranger{number}@example.com");
        browser.ask_email(&token, &stranger).await.unwrap();
    }
    let refused = browser.ask_email(&token, "stranger5@example.com").await;
    check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES");
}

#[tokio::test]
async fn an_address_that_somebody_has_stays_theirs_and_they_are_told() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    browser.ask_email(&token, NEW).await.unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    browser.sign_up(NEW).await;
    let refused = browser.change_email(&link, PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
    browser.ask_email(&token, NEW).await.unwrap();
    let told = browser.mail.newest(NEW, 3).await;
    let subject = "Your e-mail address is in use already";
    assert_eq!(told.header("Subject"), subject);
    browser.log_in(OLD).await;
}

#[tokio::test]
async fn what_cannot_become_an_address_is_refused() {
    let mut browser = Browser::start().await;
    let token = verified(&mut browser).await;
    for bad in ["", "ama", OLD, "AMA@example.com", "a@b\r\nBcc: c@d"] {
        check_invalid(browser.ask_email(&token, bad).await, "email");
    }
    for _ in 0..5 {
        browser.ask_email(&token, NEW).await.unwrap();
    }
    let refused = browser.ask_email(&token, NEW).await;
    check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    let link = browser.mail.newest(NEW, 5).await.token("change-email");
    browser.wait(Duration::from_secs(24 * 3_600)).await;
    let refused = browser.change_email(&link, PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
}

#[tokio::test]
async fn whoever_mistyped_their_address_can_correct_it_and_no_stranger_is_mailed() {
    let mut browser = Browser::start().await;
    browser.sign_up("amma@example.com").await;
    let stranger = "amma@example.com";
    browser.mail.newest(stranger, 1).await;
    let token = browser.log_in(stranger).await;
    browser.ask_email(&token, NEW).await.unwrap();
    let link = browser.mail.newest(NEW, 1).await.token("change-email");
    browser.change_email(&link, PASSWORD).await.unwrap();
    let token = browser.log_in(NEW).await;
    let login = browser.who(&token).await.unwrap();
    assert!(login.person.unwrap().email_verified && login.merchant.unwrap().email_verified);
    browser.wait(MINUTE).await;
    assert_eq!(browser.mail.arrived(stranger).len(), 1);
}
