//! A merchant with a person who belongs to it, and a clock that can be moved.

use std::time::Duration;

use chassis::{
    clock::{Clock, Day},
    grpc::Channel,
    testing::ServedService,
};
use clap::Parser as _;
use db::{Db, testing::TestDb};
use merchants_svc::config::Config;
use proto::merchants::{
    CreateMerchantRequest, GetMerchantRequest, KycStatus, Merchant, Origin,
    business_reviews_client::BusinessReviewsClient, merchant_account_client::MerchantAccountClient,
    merchant_operations_client::MerchantOperationsClient, merchants_client::MerchantsClient,
    notices_client::NoticesClient,
};
use uuid::Uuid;

pub const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The service, with what tests ask of it.
pub struct World {
    pub merchants: MerchantsClient<Channel>,
    pub operations: MerchantOperationsClient<Channel>,
    pub account: MerchantAccountClient<Channel>,
    pub reviews: BusinessReviewsClient<Channel>,
    pub notices: NoticesClient<Channel>,
    pub clock: Clock,
    /// To see what no call shows, such as mails that wait.
    pub db: Db,
    _service: ServedService,
    _database: TestDb,
}

/// A merchant, and who belongs to it.
#[derive(Clone, Debug)]
pub struct Shop {
    pub merchant_id: String,
    pub person_id: String,
    pub email: String,
}

impl World {
    pub async fn start() -> Self {
        let database = TestDb::new("merchants-svc").await;
        let file = std::env::temp_dir().join(format!("clock-{}", Uuid::new_v4()));
        let clock = Clock::travelling(file).unwrap();
        let config = Config::parse_from(["merchants-svc", "--database-url", &database.url]);
        let service = ServedService::start(|sockets, shutdown| {
            merchants_svc::serve(config, sockets, clock.clone(), shutdown)
        })
        .await;
        Self {
            merchants: MerchantsClient::new(service.channel()),
            operations: MerchantOperationsClient::new(service.operators()),
            account: MerchantAccountClient::new(service.channel()),
            reviews: BusinessReviewsClient::new(service.operators()),
            notices: NoticesClient::new(service.channel()),
            clock,
            db: database.connect().await,
            _service: service,
            _database: database,
        }
    }

    /// A merchant without a KYC record.
    pub async fn shop(&mut self) -> Shop {
        self.shop_that_is(KycStatus::Unspecified).await
    }

    pub async fn shop_that_is(&mut self, status: KycStatus) -> Shop {
        let new = CreateMerchantRequest {
            name: "Ama's Shop".to_owned(),
            email: "shop@example.com".to_owned(),
            email_verified: true,
            kyc_status: status.into(),
            accepting_payments: true,
        };
        let created = self.operations.create_merchant(new).await.unwrap();
        let merchant_id = created.into_inner().merchant_id;
        let person_id = Uuid::now_v7();
        let email = format!("{person_id}@example.com");
        self.add_person(person_id, &email, &merchant_id).await;
        Shop {
            merchant_id,
            person_id: person_id.to_string(),
            email,
        }
    }

    pub async fn add_person(&self, person_id: Uuid, email: &str, merchant_id: &str) {
        let now = self.clock.now();
        let mut tx = self.db.begin().await.unwrap();
        tx.sql(
            "insert into people (person_id, email, password_hash, created_at)
             values ($1, $2, '', $3)",
        )
        .bind(person_id)
        .bind(email.to_owned())
        .bind(now)
        .run()
        .await
        .unwrap();
        tx.sql(
            "insert into memberships (person_id, merchant_id, role, created_at)
             values ($1, $2, 'OWNER', $3)",
        )
        .bind(person_id)
        .bind(merchant_id.parse::<Uuid>().unwrap())
        .bind(now)
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }

    pub async fn merchant(&mut self, shop: &Shop) -> Merchant {
        let request = GetMerchantRequest {
            merchant_id: shop.merchant_id.clone(),
        };
        let found = self.operations.get_merchant(request).await;
        found.unwrap().into_inner()
    }

    /// What was noted of a merchant's people, oldest first: action and object.
    pub async fn activities(&self, shop: &Shop) -> Vec<(String, String)> {
        let mut conn = self.db.read().await.unwrap();
        conn.sql(
            "select action, object from activities where merchant_id = $1
             order by activity_id",
        )
        .bind(shop.merchant_id.parse::<Uuid>().unwrap())
        .all()
        .await
        .unwrap()
    }

    /// What the shop's person was mailed, oldest first: its kind and what it is about.
    pub async fn mails(&self, shop: &Shop) -> Vec<(String, String)> {
        let mut conn = self.db.read().await.unwrap();
        conn.sql("select kind, about from mails where person_id = $1 order by mail_id")
            .bind(shop.person_id.parse::<Uuid>().unwrap())
            .all()
            .await
            .unwrap()
    }

    pub fn today(&self) -> Day {
        Day::of(self.clock.now())
    }
}

pub fn origin() -> Option<Origin> {
    Some(Origin {
        address: "192.0.2.1".to_owned(),
        user_agent: "Firefox".to_owned(),
    })
}
