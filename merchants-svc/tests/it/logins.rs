//! Logging in, how long it lasts, and choosing another password.

use std::time::Duration;

use argon2::{
    Argon2, Params,
    password_hash::{CustomizedPasswordHasher as _, phc::PasswordHash},
};
use chassis::{
    grpc,
    testing::{check_invalid, check_refusal},
};
use futures::future::join_all;
use proto::merchants::{
    ChangePasswordRequest, EndLoginsRequest, InvitePersonRequest, ListLoginsRequest, LogOutRequest,
    confirm_request::Proof, end_logins_request::Which,
    people_operations_client::PeopleOperationsClient,
};
use tonic::Code;

use crate::browser::{Browser, MINUTE, OTHER_PASSWORD, PASSWORD, origin, sha256};

const AMA: &str = "ama@example.com";

#[tokio::test]
async fn five_wrong_passwords_pause_an_address_known_or_not() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    for email in [AMA, "nobody@example.com", "Nobody@Example.com"] {
        // The last two are one address.
        let is_paused = email.starts_with('N');
        for _ in 0..5 {
            let refused = browser.try_log_in(email, "wrong").await;
            match is_paused {
                true => check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES"),
                false => check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD"),
            }
        }
        let paused = browser.try_log_in(email, PASSWORD).await.unwrap_err();
        assert!(grpc::retry_delay(&paused).unwrap() <= 5 * MINUTE);
        check_refusal(
            Err::<(), _>(paused),
            Code::ResourceExhausted,
            "TOO_MANY_TRIES",
        );
    }
    browser.wait(5 * MINUTE).await;
    for _ in 0..3 {
        for _ in 0..4 {
            let refused = browser.try_log_in(AMA, "wrong").await;
            check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
        }
        // A right one is forgiving.
        browser.log_in(AMA).await;
    }
}

#[tokio::test]
async fn strangers_tries_keep_nobody_out_of_a_browser_that_was_logged_in() {
    const ESI: &str = "esi@example.com";
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.sign_up(ESI).await;
    let (amas, esis) = (browser.log_in(AMA).await, browser.log_in(ESI).await);
    let log_out = LogOutRequest {
        token_sha256: sha256(&amas),
    };
    browser.people.log_out(log_out).await.unwrap();
    for _ in 0..5 {
        let refused = browser.try_log_in(AMA, "wrong").await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    for strangers in ["", "made up", &esis] {
        let paused = browser.try_log_in_after(strangers, AMA, PASSWORD).await;
        check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    }
    browser
        .try_log_in_after(&amas, AMA, PASSWORD)
        .await
        .unwrap();
    // Whoever has taken the cookie gets no more tries than others.
    for _ in 0..5 {
        let refused = browser.try_log_in_after(&amas, AMA, "wrong").await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    let paused = browser.try_log_in_after(&amas, AMA, PASSWORD).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
}

#[tokio::test]
async fn a_reset_makes_a_stranger_of_every_browser() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    browser.ask_reset(AMA).await.unwrap();
    let link = browser.mail.newest(AMA, 2).await.token("reset");
    browser.reset(&link, OTHER_PASSWORD).await.unwrap();
    for known in [&token, ""] {
        for _ in 0..5 {
            let refused = browser.try_log_in_after(known, AMA, "wrong").await;
            // They count together.
            match known {
                "" => check_refusal(refused, Code::ResourceExhausted, "TOO_MANY_TRIES"),
                _ => check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD"),
            }
        }
    }
}

#[tokio::test]
async fn passwords_are_changed_five_times_an_hour() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    let person_id = browser.person_id(&token).await;
    let login_id = browser.who(&token).await.unwrap().login_id;
    let change = |password: &str| ChangePasswordRequest {
        person_id: person_id.clone(),
        login_id: login_id.clone(),
        password: password.to_owned(),
        origin: origin(),
    };
    for _ in 0..5 {
        check_invalid(
            browser.people.change_password(change("easy")).await,
            "password",
        );
        let changed = browser.people.change_password(change(OTHER_PASSWORD)).await;
        changed.unwrap();
    }
    let paused = browser.people.change_password(change(OTHER_PASSWORD)).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
}

#[tokio::test]
async fn wrong_passwords_at_the_same_time_are_counted_too() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let tries = (0..20).map(|_| browser.try_log_in(AMA, "wrong"));
    let refused = join_all(tries).await.into_iter().map(Result::unwrap_err);
    let wrong = refused.filter(|status| status.code() == Code::Unauthenticated);
    assert_eq!(wrong.count(), 5);
}

#[tokio::test]
async fn a_login_ends_when_it_is_idle_and_when_it_is_old() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let (used, idle) = (browser.log_in(AMA).await, browser.log_in(AMA).await);
    for _ in 0..24 {
        browser.wait(29 * MINUTE).await;
        browser.who(&used).await.unwrap();
    }
    let refused = browser.who(&idle).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    browser.wait(24 * MINUTE).await;
    let refused = browser.who(&used).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");

    let fresh = browser.log_in(AMA).await;
    let listed = ListLoginsRequest {
        person_id: browser.person_id(&fresh).await,
    };
    let listed = browser.people.list_logins(listed).await.unwrap();
    assert_eq!(listed.into_inner().logins.len(), 1, "the others are over");
}

#[tokio::test]
async fn a_reset_is_good_once_and_ends_every_login() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    let token = browser.log_in(AMA).await;
    browser.ask_reset(AMA).await.unwrap();
    let old = browser.mail.newest(AMA, 2).await.token("reset");
    browser.wait(30 * MINUTE).await;
    let refused = browser.reset(&old, OTHER_PASSWORD).await;
    check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");

    let token_now = browser.log_in(AMA).await;
    for count in [3, 4] {
        browser.ask_reset(AMA).await.unwrap();
        browser.mail.newest(AMA, count).await;
    }
    let links = browser.mail.arrived(AMA);
    let (first, second) = (links[2].token("reset"), links[3].token("reset"));
    check_invalid(browser.reset(&first, "password1234").await, "password");
    check_invalid(browser.reset(&first, "ama's shop 2026").await, "password");
    browser.reset(&first, OTHER_PASSWORD).await.unwrap();
    for link in [&first, &second] {
        let refused = browser.reset(link, OTHER_PASSWORD).await;
        check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
    }
    for token in [token, token_now] {
        let refused = browser.who(&token).await;
        check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    }
    let refused = browser.try_log_in(AMA, PASSWORD).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    browser.try_log_in(AMA, OTHER_PASSWORD).await.unwrap();
    let told = browser.mail.newest(AMA, 5).await;
    assert_eq!(told.header("Subject"), "Your password was changed");
    assert!(told.text.contains("http://dash.test:8082/forgot"));
}

#[tokio::test]
async fn another_password_ends_the_other_logins() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    let (own, other) = (browser.log_in(AMA).await, browser.log_in(AMA).await);
    let login = browser.who(&own).await.unwrap();
    let mut change = ChangePasswordRequest {
        person_id: login.person.unwrap().person_id,
        login_id: login.login_id,
        password: "too short".to_owned(),
        origin: origin(),
    };
    let refused = browser.people.change_password(change.clone()).await;
    check_invalid(refused, "password");
    OTHER_PASSWORD.clone_into(&mut change.password);
    browser.people.change_password(change).await.unwrap();
    browser.who(&own).await.unwrap();
    let refused = browser.who(&other).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    browser.mail.newest(AMA, 2).await;
    browser.try_log_in(AMA, OTHER_PASSWORD).await.unwrap();
}

#[tokio::test]
async fn a_reset_is_not_undone_by_a_login_that_it_ended() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    let login = browser.who(&token).await.unwrap();
    browser.mail.newest(AMA, 1).await;
    browser.ask_reset(AMA).await.unwrap();
    let reset = browser.mail.newest(AMA, 2).await.token("reset");
    browser.reset(&reset, OTHER_PASSWORD).await.unwrap();
    let change = ChangePasswordRequest {
        person_id: login.person.unwrap().person_id,
        login_id: login.login_id,
        password: "an intruder's own choice".to_owned(),
        origin: origin(),
    };
    let refused = browser.people.change_password(change).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    browser.try_log_in(AMA, OTHER_PASSWORD).await.unwrap();
}

#[tokio::test]
async fn another_password_ends_every_link_that_sets_one() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    let token = browser.log_in(AMA).await;
    let login = browser.who(&token).await.unwrap();
    let person_id = login.person.unwrap().person_id;
    let invitation = InvitePersonRequest {
        merchant_id: login.merchant.unwrap().merchant_id,
        email: AMA.to_owned(),
    };
    let mut operations = PeopleOperationsClient::new(browser.service.operators());
    let mut count = 1;
    for by_link in [false, true] {
        operations.invite_person(invitation.clone()).await.unwrap();
        let invited = browser.mail.newest(AMA, count + 1).await.token("reset");
        browser.ask_reset(AMA).await.unwrap();
        let reset = browser.mail.newest(AMA, count + 2).await.token("reset");
        if by_link {
            browser.reset(&invited, OTHER_PASSWORD).await.unwrap();
        } else {
            let change = ChangePasswordRequest {
                person_id: person_id.clone(),
                login_id: login.login_id.clone(),
                password: OTHER_PASSWORD.to_owned(),
                origin: origin(),
            };
            browser.people.change_password(change).await.unwrap();
        }
        for link in [&invited, &reset] {
            let refused = browser.reset(link, PASSWORD).await;
            check_refusal(refused, Code::NotFound, "LINK_NOT_FOUND");
        }
        browser.mail.newest(AMA, count + 3).await;
        count += 3;
    }
}

#[tokio::test]
async fn strangers_tries_keep_nobody_from_proving_who_they_are() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    for _ in 0..6 {
        browser.try_log_in(AMA, "wrong").await.unwrap_err();
    }
    let right = || Proof::Password(PASSWORD.to_owned());
    browser.confirm(&token, right()).await.unwrap();
    let paused = browser.try_log_in(AMA, PASSWORD).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    for _ in 0..5 {
        let wrong = Proof::Password("wrong".to_owned());
        let refused = browser.confirm(&token, wrong).await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    let paused = browser.confirm(&token, right()).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
}

#[tokio::test]
async fn logins_are_listed_and_ended_by_their_person_alone() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.sign_up("esi@example.com").await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        tokens.push(browser.log_in(AMA).await);
        browser.wait(MINUTE).await;
    }
    let mut ids = Vec::new();
    for token in &tokens {
        ids.push(browser.who(token).await.unwrap().login_id);
    }
    let person_id = browser.person_id(&tokens[0]).await;
    let list = ListLoginsRequest {
        person_id: person_id.clone(),
    };
    let listed = browser.people.list_logins(list).await.unwrap().into_inner();
    assert_eq!(listed.logins.len(), 3);
    assert_eq!(listed.logins[0].origin, origin());

    let others = browser.log_in("esi@example.com").await;
    let others = browser.person_id(&others).await;
    let end = |person_id: &str, which| EndLoginsRequest {
        person_id: person_id.to_owned(),
        which: Some(which),
        origin: origin(),
    };
    let refused = end(&others, Which::LoginId(ids[0].clone()));
    let refused = browser.people.end_logins(refused).await;
    check_refusal(refused, Code::NotFound, "LOGIN_NOT_FOUND");
    let one = end(&person_id, Which::LoginId(ids[0].clone()));
    for ended in [1, 0] {
        let answer = browser.people.end_logins(one.clone()).await.unwrap();
        assert_eq!(answer.into_inner().ended, ended);
    }
    let rest = end(&person_id, Which::AllBut(ids[2].clone()));
    let answer = browser.people.end_logins(rest).await.unwrap();
    assert_eq!(answer.into_inner().ended, 1);
    browser.who(&tokens[2]).await.unwrap();
    for token in &tokens[..2] {
        let refused = browser.who(token).await;
        check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    }
}

#[tokio::test]
async fn a_person_proves_again_who_they_are() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    let begun = browser.who(&token).await.unwrap().confirmed_at;
    browser.wait(6 * MINUTE).await;
    assert_eq!(browser.who(&token).await.unwrap().confirmed_at, begun);
    let wrong = browser
        .confirm(&token, Proof::Password("wrong".to_owned()))
        .await;
    check_refusal(wrong, Code::Unauthenticated, "WRONG_PASSWORD");
    let without = browser
        .confirm(&token, Proof::Code("123456".to_owned()))
        .await;
    check_refusal(without, Code::Unauthenticated, "WRONG_CODE");
    let confirmed = browser.confirm(&token, Proof::Password(PASSWORD.to_owned()));
    assert!(confirmed.await.unwrap().confirmed_at > begun);
    assert!(browser.who(&token).await.unwrap().confirmed_at > begun);
}

#[tokio::test]
async fn a_hash_made_with_other_parameters_is_renewed() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let weak = Params::new(64, 1, 1, None).unwrap();
    let weak: PasswordHash = Argon2::default()
        .hash_password_customized(PASSWORD.as_bytes(), b"sixteen bytes ok", None, None, weak)
        .unwrap();
    let mut conn = browser.db.write().await.unwrap();
    let update = conn.sql("update people set password_hash = $1");
    update.bind(weak.to_string()).run().await.unwrap();
    drop(conn);
    for _twice in 0..2 {
        browser.log_in(AMA).await;
        let renewed = "select count(*) from people where password_hash like '%m=19456,t=2,p=1$%'";
        assert_eq!(browser.count(renewed).await, 1);
    }
}

#[tokio::test]
async fn what_is_long_over_is_forgotten() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    browser.log_in(AMA).await;
    browser.try_log_in(AMA, "wrong").await.unwrap_err();
    let left = "select (select count(*) from logins) + (select count(*) from links)
                + (select count(*) from tries)";
    // The last is of the mail that was asked for by signing up.
    assert_eq!(browser.count(left).await, 4);
    browser.wait(Duration::from_secs(32 * 24 * 3_600)).await;
    assert_eq!(browser.count(left).await, 0);
}
