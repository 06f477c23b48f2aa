//! What other services have to tell merchants.

use chassis::testing::{check_invalid, check_refusal};
use proto::merchants::{NoticeKind, TellMerchantRequest};
use tonic::Code;
use uuid::Uuid;

use crate::shop::{Shop, World};

fn notice(shop: &Shop) -> TellMerchantRequest {
    TellMerchantRequest {
        notice_id: Uuid::now_v7().to_string(),
        merchant_id: shop.merchant_id.clone(),
        kind: NoticeKind::PayoutAccountSet.into(),
        about: "MTN 024 ••• 0001, Ama Mensah".to_owned(),
        at: "2026-11-05T09:05:00.000Z".to_owned(),
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
async fn what_cannot_be_told_is_refused() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    type Spoil = fn(&mut TellMerchantRequest);
    let spoilt: [(&str, Spoil); 5] = [
        ("notice_id", |told| told.notice_id = "1".to_owned()),
        ("kind", |told| told.kind = 0),
        ("kind", |told| told.kind = 63),
        ("about", |told| told.about = "a\nb".to_owned()),
        ("at", |told| told.at = "yesterday".to_owned()),
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
