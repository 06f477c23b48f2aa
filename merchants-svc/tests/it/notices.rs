//! What other services have to tell merchants.

use chassis::testing::{check_invalid, check_refusal};
use proto::merchants::{Action, NoticeKind, TellMerchantRequest, notices_client::NoticesClient};
use tonic::Code;
use uuid::Uuid;

use crate::{
    browser::Browser,
    shop::{Shop, World},
};

fn notice(shop: &Shop) -> TellMerchantRequest {
    TellMerchantRequest {
        notice_id: Uuid::now_v7().to_string(),
        merchant_id: shop.merchant_id.clone(),
        kind: NoticeKind::PayoutAccountSet.into(),
        about: "MTN 024 ••• 0001, Ama Mensah".to_owned(),
        at: "2026-11-05T09:05:00.000Z".to_owned(),
        person_id: None,
    }
}

#[tokio::test]
async fn everybody_of_the_merchant_is_mailed_once() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let other = world.shop().await;
    let second = Uuid::now_v7();
    let email = format!("{second}@example.com");
    world.add_person(second, &email, &shop.merchant_id).await;
    let kofi = Shop {
        person_id: second.to_string(),
        ..shop.clone()
    };
    let told = notice(&shop);
    let calls = (0..4).map(|_| {
        let (mut notices, told) = (world.notices.clone(), told.clone());
        async move { notices.tell_merchant(told).await }
    });
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    world.notices.tell_merchant(told).await.unwrap();
    let about = "MTN 024 ••• 0001, Ama Mensah (5 November 2026, 09:05 GMT)";
    let mail = ("PAYOUT_ACCOUNT_SET".to_owned(), about.to_owned());
    for person in [&shop, &kofi] {
        assert_eq!(world.mails(person).await, std::slice::from_ref(&mail));
    }
    assert!(world.mails(&other).await.is_empty());
    let exhausted = TellMerchantRequest {
        kind: NoticeKind::WebhookExhausted.into(),
        ..notice(&shop)
    };
    world.notices.tell_merchant(exhausted).await.unwrap();
    let kinds: Vec<_> = world
        .mails(&shop)
        .await
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["PAYOUT_ACCOUNT_SET", "WEBHOOK_EXHAUSTED"]);
}

#[tokio::test]
async fn a_payout_account_is_told_in_one_mail_with_where_it_was_set_from() {
    const AMA: &str = "ama@example.com";
    let mut browser = Browser::start().await;
    let token = browser.enter(AMA).await;
    let object = "MTN 024 ••• 0001";
    let note = browser
        .note(&token, Action::PayoutAccountChanged, object)
        .await;
    let (merchant_id, person_id) = (note.merchant_id.clone(), note.person_id.clone());
    browser.people.note_activity(note).await.unwrap();
    let mut notices = NoticesClient::new(browser.service.channel());
    let set = TellMerchantRequest {
        notice_id: Uuid::now_v7().to_string(),
        merchant_id,
        kind: NoticeKind::PayoutAccountSet.into(),
        about: "MTN, Ama Mensah".to_owned(),
        at: browser.clock.now().to_string(),
        person_id: Some(person_id),
    };
    notices.tell_merchant(set.clone()).await.unwrap();
    let mail = browser.mail.newest(AMA, 2).await;
    assert_eq!(mail.header("Subject"), "Your payout account was set");
    let text = &mail.text;
    for part in [
        "MTN, Ama Mensah",
        "The request came from 192.0.2.7.",
        "If this was not you",
    ] {
        assert!(text.contains(part), "{text}");
    }

    // What an operator set, or what nobody asked for at the time, came from nowhere.
    for (count, person_id, at) in [
        (3, None, set.at.clone()),
        (
            4,
            set.person_id.clone(),
            "2020-01-01T00:00:00.000Z".to_owned(),
        ),
    ] {
        let other = TellMerchantRequest {
            notice_id: Uuid::now_v7().to_string(),
            person_id,
            at,
            ..set.clone()
        };
        notices.tell_merchant(other).await.unwrap();
        let mail = browser.mail.newest(AMA, count).await;
        assert!(!mail.text.contains("came from"), "{}", mail.text);
    }
}

#[tokio::test]
async fn what_cannot_be_told_is_refused() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    type Spoil = fn(&mut TellMerchantRequest);
    let spoilt: [(&str, Spoil); 6] = [
        ("notice_id", |told| told.notice_id = "1".to_owned()),
        ("kind", |told| told.kind = 0),
        ("kind", |told| told.kind = 63),
        ("about", |told| told.about = "a\nb".to_owned()),
        ("at", |told| told.at = "yesterday".to_owned()),
        ("person_id", |told| told.person_id = Some("me".to_owned())),
    ];
    for (field, spoil) in spoilt {
        let mut told = notice(&shop);
        spoil(&mut told);
        check_invalid(world.notices.tell_merchant(told).await, field);
    }
    for merchant_id in ["", "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"] {
        let mut told = notice(&shop);
        told.merchant_id = merchant_id.to_owned();
        let answer = world.notices.tell_merchant(told).await;
        check_refusal(answer, Code::NotFound, "MERCHANT_NOT_FOUND");
    }
    assert!(world.mails(&shop).await.is_empty());
}
