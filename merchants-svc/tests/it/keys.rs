//! A merchant's own keys.

use std::time::Duration;

use chassis::{
    api_key::ApiKey,
    testing::{check_invalid, check_refusal, until},
};
use proto::merchants::{
    AuthenticateRequest, CreateKeyRequest, CreateMerchantKeyRequest, CreateMerchantKeyResponse,
    GetMerchantKeyRequest, ListMerchantKeysRequest, MerchantKey, RevokeKeyRequest,
    RevokeMerchantKeyRequest, UpdateMerchantRequest,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::shop::{Shop, World, origin};

impl World {
    async fn create_with(
        &mut self,
        shop: &Shop,
        change: impl FnOnce(&mut CreateMerchantKeyRequest),
    ) -> Result<CreateMerchantKeyResponse, Status> {
        let mut request = CreateMerchantKeyRequest {
            merchant_id: shop.merchant_id.clone(),
            person_id: shop.person_id.clone(),
            label: "till".to_owned(),
            nonce: Uuid::new_v4().to_string(),
            origin: origin(),
        };
        change(&mut request);
        let created = self.account.create_merchant_key(request).await;
        created.map(tonic::Response::into_inner)
    }

    async fn create(&mut self, shop: &Shop) -> (MerchantKey, ApiKey) {
        let created = self.create_with(shop, |_| {}).await.unwrap();
        (created.key.unwrap(), created.api_key.parse().unwrap())
    }

    async fn revoke(&mut self, shop: &Shop, key_id: &str) -> Result<MerchantKey, Status> {
        let request = RevokeMerchantKeyRequest {
            merchant_id: shop.merchant_id.clone(),
            person_id: shop.person_id.clone(),
            key_id: key_id.to_owned(),
            origin: origin(),
        };
        let revoked = self.account.revoke_merchant_key(request).await;
        revoked.map(tonic::Response::into_inner)
    }

    async fn keys(&mut self, shop: &Shop) -> Vec<MerchantKey> {
        let request = ListMerchantKeysRequest {
            merchant_id: shop.merchant_id.clone(),
            ..ListMerchantKeysRequest::default()
        };
        let listed = self.account.list_merchant_keys(request).await;
        listed.unwrap().into_inner().keys
    }

    /// The ids of the merchant's keys, page by page.
    async fn pages(&mut self, shop: &Shop, page_size: u32) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListMerchantKeysRequest {
                merchant_id: shop.merchant_id.clone(),
                page_size,
                page_token,
            };
            let listed = self.account.list_merchant_keys(request).await;
            let listed = listed.unwrap().into_inner();
            pages.push(listed.keys.into_iter().map(|key| key.key_id).collect());
            page_token = listed.next_page_token;
            if page_token.is_empty() {
                return pages;
            }
        }
    }

    /// What the merchant calls the key.
    async fn authenticate(&mut self, key: &ApiKey) -> Result<String, Status> {
        let request = AuthenticateRequest {
            key_sha256: key.sha256().to_vec(),
        };
        let holder = self.merchants.authenticate(request).await?;
        Ok(holder.into_inner().key_name.unwrap())
    }

    async fn operators_key(&mut self, shop: &Shop) -> (String, ApiKey) {
        let request = CreateKeyRequest {
            merchant_id: shop.merchant_id.clone(),
            label: String::new(),
        };
        let created = self.operations.create_key(request).await;
        let created = created.unwrap().into_inner();
        (
            created.key.unwrap().key_id,
            created.api_key.parse().unwrap(),
        )
    }
}

#[tokio::test]
async fn a_key_is_made_listed_with_its_maker_and_revoked() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let (_, nameless) = world.operators_key(&shop).await;
    let (made, secret) = world.create(&shop).await;
    assert_eq!(made.label, "till");
    assert_eq!(made.hint, secret.hint());
    assert_eq!(made.created_by.as_ref(), Some(&shop.email));
    assert_eq!(world.authenticate(&secret).await.unwrap(), "till");
    let hint = format!("…{}", nameless.hint());
    assert_eq!(world.authenticate(&nameless).await.unwrap(), hint);
    let listed = world.keys(&shop).await;
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].key_id, made.key_id, "newest first");
    assert_eq!(listed[1].created_by, None, "an operator made it");
    assert!(!format!("{listed:?}").contains(secret.expose()));

    let revoked = world.revoke(&shop, &made.key_id).await.unwrap();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(revoked.created_by, Some(shop.email.clone()));
    let again = world.revoke(&shop, &made.key_id).await.unwrap();
    assert_eq!(again.revoked_at, revoked.revoked_at);
    let refused = world.authenticate(&secret).await;
    check_refusal(refused, Code::Unauthenticated, "INVALID_API_KEY");

    // Revoking again changes nothing, and is not noted.
    let shown = format!("till (…{})", secret.hint());
    let noted = ["KEY_CREATED", "KEY_REVOKED"].map(|noted| (noted.to_owned(), shown.clone()));
    assert_eq!(world.activities(&shop).await, noted);
    assert_eq!(world.mails(&shop).await, noted);
}

#[tokio::test]
async fn a_form_makes_one_key() {
    let mut world = World::start().await;
    let (shop, other) = (world.shop().await, world.shop().await);
    let nonce = Uuid::new_v4().to_string();
    let with_nonce = |request: &mut CreateMerchantKeyRequest| request.nonce.clone_from(&nonce);
    world.create_with(&shop, with_nonce).await.unwrap();
    let again = world.create_with(&shop, with_nonce).await;
    check_refusal(again, Code::AlreadyExists, "FORM_USED");
    assert_eq!(world.keys(&shop).await.len(), 1);
    assert_eq!(world.activities(&shop).await.len(), 1);
    // What another merchant sends is its own.
    world.create_with(&other, with_nonce).await.unwrap();
}

#[tokio::test]
async fn ten_keys_are_live_at_most() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let nonce = Uuid::new_v4().to_string();
    let with_nonce = |request: &mut CreateMerchantKeyRequest| request.nonce.clone_from(&nonce);
    let first = world.create_with(&shop, with_nonce).await.unwrap();
    for _ in 1..10 {
        world.create(&shop).await;
    }
    let eleventh = world.create_with(&shop, |_| {}).await;
    check_refusal(eleventh, Code::FailedPrecondition, "TOO_MANY_KEYS");
    assert_eq!(world.keys(&shop).await.len(), 10);
    let again = world.create_with(&shop, with_nonce).await;
    check_refusal(again, Code::AlreadyExists, "FORM_USED");
    let key_id = first.key.unwrap().key_id;
    world.revoke(&shop, &key_id).await.unwrap();
    world.create(&shop).await;
}

#[tokio::test]
async fn keys_that_are_made_at_once_are_counted_too() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let making = (0..16).map(|_| {
        let mut account = world.account.clone();
        let request = CreateMerchantKeyRequest {
            merchant_id: shop.merchant_id.clone(),
            person_id: shop.person_id.clone(),
            label: "till".to_owned(),
            nonce: Uuid::new_v4().to_string(),
            origin: origin(),
        };
        async move { account.create_merchant_key(request).await.is_ok() }
    });
    let made = futures::future::join_all(making).await;
    assert_eq!(made.into_iter().filter(|made| *made).count(), 10);
    assert_eq!(world.keys(&shop).await.len(), 10);
}

#[tokio::test]
async fn a_merchant_whose_address_is_not_verified_makes_no_key() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    for is_verified in [false, true] {
        let change = UpdateMerchantRequest {
            merchant_id: shop.merchant_id.clone(),
            email_verified: Some(is_verified),
            ..UpdateMerchantRequest::default()
        };
        world.operations.update_merchant(change).await.unwrap();
        let created = world.create_with(&shop, |_| {}).await;
        match is_verified {
            true => drop(created.unwrap()),
            false => check_refusal(created, Code::FailedPrecondition, "EMAIL_NOT_VERIFIED"),
        }
    }
    assert_eq!(world.keys(&shop).await.len(), 1);
}

#[tokio::test]
async fn what_is_anothers_is_not_found() {
    let mut world = World::start().await;
    let (shop, other) = (world.shop().await, world.shop().await);
    let (key, secret) = world.create(&shop).await;
    let revoked = world.revoke(&other, &key.key_id).await;
    check_refusal(revoked, Code::NotFound, "KEY_NOT_FOUND");
    // Nor does a person reach a merchant that is not theirs.
    let stranger = Shop {
        merchant_id: shop.merchant_id.clone(),
        ..other.clone()
    };
    let revoked = world.revoke(&stranger, &key.key_id).await;
    check_refusal(revoked, Code::NotFound, "MERCHANT_NOT_FOUND");
    let created = world.create_with(&stranger, |_| {}).await;
    check_refusal(created, Code::NotFound, "MERCHANT_NOT_FOUND");
    assert!(world.keys(&other).await.is_empty());
    assert!(world.activities(&other).await.is_empty());
    world.authenticate(&secret).await.unwrap();
    for id in ["", "x", "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"] {
        let revoked = world.revoke(&shop, id).await;
        check_refusal(revoked, Code::NotFound, "KEY_NOT_FOUND");
        let request = ListMerchantKeysRequest {
            merchant_id: id.to_owned(),
            ..ListMerchantKeysRequest::default()
        };
        let listed = world.account.list_merchant_keys(request).await;
        check_refusal(listed, Code::NotFound, "MERCHANT_NOT_FOUND");
    }
}

#[tokio::test]
async fn live_keys_are_listed_before_those_that_were_revoked() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let other = world.shop().await;
    world.operators_key(&other).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.operators_key(&shop).await.0);
    }
    for revoked in [&made[3], &made[1]] {
        world.revoke(&shop, revoked).await.unwrap();
        world.clock.advance(Duration::from_secs(60)).await.unwrap();
    }
    let order = [4, 2, 0, 1, 3].map(|index| made[index].clone());
    for size in [1, 2, 3, 5, 100] {
        let pages = world.pages(&shop, size).await;
        assert_eq!(pages.concat(), order, "{size}");
        let expected = order.len().div_ceil(usize::try_from(size).unwrap());
        assert_eq!(pages.len(), expected, "{size}");
    }
    // One that is made meanwhile is no reason to list another twice.
    let request = |page_token| ListMerchantKeysRequest {
        merchant_id: shop.merchant_id.clone(),
        page_size: 2,
        page_token,
    };
    let first = world.account.list_merchant_keys(request(String::new()));
    let token = first.await.unwrap().into_inner().next_page_token;
    world.operators_key(&shop).await;
    let second = world.account.list_merchant_keys(request(token)).await;
    let second = second.unwrap().into_inner().keys;
    assert_eq!(
        [&second[0].key_id, &second[1].key_id],
        [&order[2], &order[3]]
    );
    let wrong = world.account.list_merchant_keys(request("x".to_owned()));
    check_invalid(wrong.await, "page_token");
}

#[tokio::test]
async fn one_key_is_read_by_its_merchant_alone() {
    let mut world = World::start().await;
    let (shop, other) = (world.shop().await, world.shop().await);
    let (key_id, _) = world.operators_key(&shop).await;
    let request = |shop: &Shop, key_id: &str| GetMerchantKeyRequest {
        merchant_id: shop.merchant_id.clone(),
        key_id: key_id.to_owned(),
    };
    let found = world.account.get_merchant_key(request(&shop, &key_id));
    assert_eq!(found.await.unwrap().into_inner().key_id, key_id);
    for (shop, key_id) in [(&other, key_id.as_str()), (&shop, "x")] {
        let found = world.account.get_merchant_key(request(shop, key_id)).await;
        check_refusal(found, Code::NotFound, "KEY_NOT_FOUND");
    }
}

#[tokio::test]
async fn bad_fields_of_a_key_are_named() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    for label in ["", " ", "a\u{7}b", &"x".repeat(61)] {
        let created = world.create_with(&shop, |request| request.label = label.to_owned());
        check_invalid(created.await, "label");
    }
    let created = world.create_with(&shop, |request| request.nonce = "1".to_owned());
    check_invalid(created.await, "nonce");
}

#[tokio::test]
async fn when_a_key_was_last_used_is_known_to_the_minute() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let (_, unused) = world.operators_key(&shop).await;
    let (_, used) = world.create(&shop).await;
    let last_use = async |world: &mut World| world.keys(&shop).await[0].last_used_at.clone();
    assert_eq!(last_use(&mut world).await, None);

    world.authenticate(&used).await.unwrap();
    until("the use is written", async || {
        last_use(&mut world).await.is_some()
    })
    .await;
    let first = last_use(&mut world).await.unwrap();
    assert!(first.ends_with(":00.000Z"), "{first}");
    assert_eq!(world.keys(&shop).await[1].last_used_at, None);

    let moved = world.clock.advance(Duration::from_secs(3_600)).await;
    world.authenticate(&used).await.unwrap();
    let minutes = [moved.unwrap(), world.clock.now()].map(|at| at.to_string()[..16].to_owned());
    until("the later use is written", async || {
        last_use(&mut world).await.as_ref() > Some(&first)
    })
    .await;
    let second = last_use(&mut world).await.unwrap();
    assert!(
        minutes.iter().any(|minute| *minute == second[..16]),
        "{second}"
    );

    // A key that is refused is not used.
    let key_id = world.keys(&shop).await[1].key_id.clone();
    let request = RevokeKeyRequest { key_id };
    world.operations.revoke_key(request).await.unwrap();
    world
        .clock
        .advance(Duration::from_secs(3_600))
        .await
        .unwrap();
    world.authenticate(&unused).await.unwrap_err();
    world.authenticate(&used).await.unwrap();
    until("the last use is written", async || {
        last_use(&mut world).await.as_ref() > Some(&second)
    })
    .await;
    assert_eq!(world.keys(&shop).await[1].last_used_at, None);
}
