//! Tests merchants-svc over gRPC, on SQLite or, with `TEST_DATABASE_URL`, on PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod addresses;
mod browser;
mod businesses;
mod keys;
mod logins;
mod mail_server;
mod mails;
mod notices;
mod people;
mod shop;
mod totp;

use chassis::{
    api_key::ApiKey,
    clock::Clock,
    grpc::Channel,
    testing::{ServedService, check_invalid, check_refusal},
};
use clap::Parser as _;
use db::testing::TestDb;
use merchants_svc::config::Config;
use proto::merchants::{
    AuthenticateRequest, CreateKeyRequest, CreateMerchantRequest, GetMerchantRequest, KycStatus,
    ListKeysRequest, ListMerchantsRequest, Merchant, RevokeKeyRequest, UpdateMerchantRequest,
    merchant_operations_client::MerchantOperationsClient, merchants_client::MerchantsClient,
};
use tonic::{Code, Status};

struct World {
    client: MerchantsClient<Channel>,
    operations: MerchantOperationsClient<Channel>,
    service: ServedService,
    database: TestDb,
}

impl World {
    async fn start() -> Self {
        Self::start_on(TestDb::new("merchants-svc").await).await
    }

    async fn start_on(database: TestDb) -> Self {
        let config = Config::parse_from(["merchants-svc", "--database-url", &database.url]);
        let service = ServedService::start(|sockets, shutdown| {
            merchants_svc::serve(config, sockets, Clock::system(), shutdown)
        })
        .await;
        Self {
            client: MerchantsClient::new(service.channel()),
            operations: MerchantOperationsClient::new(service.operators()),
            service,
            database,
        }
    }

    /// Stops the service and starts another on the same database.
    async fn restart(self) -> Self {
        self.service.stop().await;
        Self::start_on(self.database).await
    }

    async fn merchant(&mut self) -> Merchant {
        let new = CreateMerchantRequest {
            name: " Ama's Shop ".to_owned(),
            email: "ama@example.com".to_owned(),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        self.operations
            .create_merchant(new)
            .await
            .unwrap()
            .into_inner()
    }

    async fn key(&mut self, merchant_id: &str) -> (String, ApiKey) {
        let request = CreateKeyRequest {
            merchant_id: merchant_id.to_owned(),
            label: "till".to_owned(),
        };
        let created = self
            .operations
            .create_key(request)
            .await
            .unwrap()
            .into_inner();
        (
            created.key.unwrap().key_id,
            created.api_key.parse().unwrap(),
        )
    }

    async fn authenticate(&mut self, key: &ApiKey) -> Result<Merchant, Status> {
        let request = AuthenticateRequest {
            key_sha256: key.sha256().to_vec(),
        };
        Ok(self.client.authenticate(request).await?.into_inner())
    }
}

/// The merchant as its key shows it.
fn holder(merchant: Merchant) -> Merchant {
    Merchant {
        key_name: Some("till".to_owned()),
        ..merchant
    }
}

#[tokio::test]
async fn a_key_leads_to_its_merchant_also_after_a_restart() {
    let mut world = World::start().await;
    let merchant = world.merchant().await;
    assert_eq!(merchant.name, "Ama's Shop");
    let (_, key) = world.key(&merchant.merchant_id).await;
    let holder = holder(merchant);
    assert_eq!(world.authenticate(&key).await.unwrap(), holder);
    let mut world = world.restart().await;
    assert_eq!(world.authenticate(&key).await.unwrap(), holder);
}

#[tokio::test]
async fn in_development_a_new_key_is_a_test_key() {
    let mut world = World::start().await;
    let merchant = world.merchant().await;
    let (_, key) = world.key(&merchant.merchant_id).await;
    assert!(key.is_test());
    assert_eq!(world.authenticate(&key).await.unwrap(), holder(merchant));
}

#[tokio::test]
async fn unknown_and_revoked_keys_are_refused_alike() {
    let mut world = World::start().await;
    let merchant = world.merchant().await;
    let (key_id, key) = world.key(&merchant.merchant_id).await;
    let (_, other) = world.key(&merchant.merchant_id).await;
    let revoke = RevokeKeyRequest { key_id };
    let revoked = world
        .operations
        .revoke_key(revoke.clone())
        .await
        .unwrap()
        .into_inner();
    let again = world
        .operations
        .revoke_key(revoke)
        .await
        .unwrap()
        .into_inner();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(again, revoked, "revoking again changes nothing");
    let refused = world.authenticate(&key).await.unwrap_err();
    let unknown = world.authenticate(&ApiKey::generate()).await.unwrap_err();
    assert_eq!(refused.message(), unknown.message());
    check_refusal(
        Err::<(), _>(refused),
        Code::Unauthenticated,
        "INVALID_API_KEY",
    );
    check_refusal(
        Err::<(), _>(unknown),
        Code::Unauthenticated,
        "INVALID_API_KEY",
    );
    assert!(world.authenticate(&other).await.is_ok());
}

#[tokio::test]
async fn only_what_is_given_changes() {
    let mut world = World::start().await;
    let merchant = world.merchant().await;
    let mut update = async |change: UpdateMerchantRequest| {
        let change = UpdateMerchantRequest {
            merchant_id: merchant.merchant_id.clone(),
            ..change
        };
        world
            .operations
            .update_merchant(change)
            .await
            .unwrap()
            .into_inner()
    };
    let cleared = update(UpdateMerchantRequest {
        kyc_status: Some(KycStatus::Unspecified.into()),
        ..Default::default()
    })
    .await;
    assert_eq!(cleared.kyc_status(), KycStatus::Unspecified);
    assert!(cleared.email_verified && cleared.accepting_payments);
    let closed = update(UpdateMerchantRequest {
        email_verified: Some(false),
        accepting_payments: Some(false),
        ..Default::default()
    })
    .await;
    assert_eq!(closed.kyc_status(), KycStatus::Unspecified);
    assert!(!closed.email_verified && !closed.accepting_payments);
    let request = GetMerchantRequest {
        merchant_id: merchant.merchant_id.clone(),
    };
    let read = world
        .operations
        .get_merchant(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(read, closed);
}

#[tokio::test]
async fn merchants_are_listed_oldest_first_and_in_pages() {
    let mut world = World::start().await;
    let mut made = Vec::new();
    for _ in 0..103 {
        made.push(world.merchant().await);
    }
    let mut operations = MerchantOperationsClient::new(world.service.operators());
    let mut listed: Vec<Merchant> = Vec::new();
    for wanted in [100, 3, 0] {
        let last = listed.last().map(|merchant| merchant.merchant_id.clone());
        let after = last.unwrap_or_default();
        let answer = operations.list_merchants(ListMerchantsRequest { after });
        let page = answer.await.unwrap().into_inner().merchants;
        assert_eq!(page.len(), wanted);
        listed.extend(page);
    }
    assert_eq!(listed, made);
    let after = "none".to_owned();
    let refused = operations.list_merchants(ListMerchantsRequest { after });
    check_invalid(refused.await, "after");
}

#[tokio::test]
async fn keys_are_listed_newest_first_and_without_their_secrets() {
    let mut world = World::start().await;
    let merchant = world.merchant().await;
    let (first, _) = world.key(&merchant.merchant_id).await;
    let (second, secret) = world.key(&merchant.merchant_id).await;
    let request = ListKeysRequest {
        merchant_id: merchant.merchant_id,
    };
    let keys = world
        .operations
        .list_keys(request)
        .await
        .unwrap()
        .into_inner()
        .keys;
    let ids: Vec<_> = keys.iter().map(|key| key.key_id.as_str()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);
    assert_eq!(keys[0].hint, secret.hint());
    assert_eq!(keys[0].label, "till");
    assert!(!format!("{keys:?}").contains(secret.expose()));
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let mut world = World::start().await;
    for id in ["", "x", "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"] {
        let request = GetMerchantRequest {
            merchant_id: id.to_owned(),
        };
        let answer = world.operations.get_merchant(request).await;
        check_refusal(answer, Code::NotFound, "MERCHANT_NOT_FOUND");
        let request = RevokeKeyRequest {
            key_id: id.to_owned(),
        };
        let answer = world.operations.revoke_key(request).await;
        check_refusal(answer, Code::NotFound, "KEY_NOT_FOUND");
    }
}

#[tokio::test]
async fn bad_fields_are_named() {
    let mut world = World::start().await;
    let cases = [
        ("name", " ", "a@b.c", 0),
        ("name", &*"x".repeat(201), "a@b.c", 0),
        ("name", "a\u{7}b", "a@b.c", 0),
        ("email", "Shop", "nobody", 0),
        ("kyc_status", "Shop", "a@b.c", 99),
    ];
    for (field, name, email, kyc_status) in cases {
        let request = CreateMerchantRequest {
            name: name.to_owned(),
            email: email.to_owned(),
            kyc_status,
            ..Default::default()
        };
        check_invalid(world.operations.create_merchant(request).await, field);
    }
}
