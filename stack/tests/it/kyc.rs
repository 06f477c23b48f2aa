//! A business from its submission to the end of its approval, as operators and the API see it.

use std::time::Duration;

use chassis::{
    clock::{Day, Timestamp},
    grpc, testing,
};
use proto::merchants::{
    BusinessForm, BusinessKind, SubmitBusinessRequest,
    merchant_account_client::MerchantAccountClient,
};
use serde_json::json;
use stack::demo::Api;
use uuid::Uuid;

use crate::{
    local::payctl,
    shop::{Shop, WAIT_MAX},
};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Whoever submits belongs to the merchant.
async fn person_of(shop: &Shop, merchant_id: &str, now: Timestamp) -> Uuid {
    let person_id = Uuid::now_v7();
    let db = shop.database("merchants-svc").await;
    let mut tx = db.begin().await.unwrap();
    tx.sql(
        "insert into people (person_id, email, password_hash, created_at)
         values ($1, 'kofi@example.com', '', $2)",
    )
    .bind(person_id)
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
    db.close().await;
    person_id
}

async fn submit(shop: &Shop, merchant_id: &str, person_id: Uuid) {
    let channel: grpc::Channel = testing::connect(&shop.ready.grpc.merchants);
    let form = BusinessForm {
        kind: BusinessKind::SoleProprietor.into(),
        registered_name: "Kofi's Shop".to_owned(),
        registration_number: "BN123456789".to_owned(),
        tin: "P0001234567".to_owned(),
        activity: "Sells phones".to_owned(),
        website: String::new(),
        digital_address: "GA-144-1234".to_owned(),
        town: "Accra".to_owned(),
        owner_name: "Kofi Mensah".to_owned(),
        owner_ghana_card: "GHA-123456789-0".to_owned(),
        owner_phone: "0241234567".to_owned(),
    };
    let request = SubmitBusinessRequest {
        merchant_id: merchant_id.to_owned(),
        person_id: person_id.to_string(),
        form: Some(form),
        origin: None,
    };
    let submitted = MerchantAccountClient::new(channel)
        .submit_business(request)
        .await;
    submitted.unwrap();
}

/// Waits until the API refuses this merchant, or does not: what changes takes effect within a second.
async fn wait_until_api_says(api: &Api, code: u16, kyc_status: Option<&str>) {
    let looking = async {
        loop {
            let answer = api.get("/api/v1/balance").await.unwrap();
            let is_so = kyc_status.is_none_or(|status| answer.body.to_string().contains(status));
            if answer.code == code && is_so {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let waited = tokio::time::timeout(WAIT_MAX, looking).await;
    assert!(waited.is_ok(), "the API never said {code} {kyc_status:?}");
}

#[tokio::test]
async fn operators_decide_on_a_business_and_its_approval_ends() {
    let shop = Shop::open().await;
    let run = async |words: String| payctl(&shop.ready, &words).await;
    assert_eq!(run("kyc list".to_owned()).await.unwrap(), json!([]));
    let create = "merchant create --name Kofi --email kofi@example.com --email-verified";
    let created = run(create.to_owned()).await.unwrap();
    let merchant_id = created["merchant_id"].as_str().unwrap();
    let key = run(format!("key create {merchant_id}")).await.unwrap();
    let api = Api::new(&shop.ready.api, key["api_key"].as_str().unwrap()).unwrap();
    let nothing = run(format!("kyc show {merchant_id}")).await.unwrap_err();
    assert!(nothing.contains("BUSINESS_NOT_FOUND"), "{nothing}");

    let created_at: Timestamp = created["created_at"].as_str().unwrap().parse().unwrap();
    let person_id = person_of(&shop, merchant_id, created_at).await;
    submit(&shop, merchant_id, person_id).await;
    let listed = run("kyc list".to_owned()).await.unwrap();
    assert_eq!(listed[0]["merchant_id"], merchant_id);
    assert_eq!(listed[0]["status"], "PENDING");
    assert!(!listed.to_string().contains("GHA-"), "{listed}");
    let shown = run(format!("kyc show {merchant_id}")).await.unwrap();
    assert_eq!(shown["business"]["form"]["owner_phone"], "+233241234567");
    assert_eq!(shown["business"]["version"], 1);

    let decide = |words: &str| format!("kyc decide {merchant_id} --by Esi --version {words}");
    let reviewed = run(decide("1 --review")).await.unwrap();
    assert_eq!(reviewed["merchant"]["kyc_status"], "IN_REVIEW");
    let newer = run(decide("2 --review")).await.unwrap_err();
    assert!(newer.contains("BUSINESS_CHANGED"), "{newer}");
    let unknown = run(decide("1 --reject colour=x")).await.unwrap_err();
    assert!(
        unknown.contains("reasons must be about fields"),
        "{unknown}"
    );
    let rejected = run(decide(
        "1 --reject tin=wrong --reject town=unclear --note later",
    ))
    .await;
    let rejected = rejected.unwrap();
    assert_eq!(rejected["business"]["status"], "REJECTED");
    let reasons = json!({ "tin": "wrong", "town": "unclear" });
    assert_eq!(rejected["business"]["reasons"], reasons);
    wait_until_api_says(&api, 403, Some("REJECTED")).await;

    submit(&shop, merchant_id, person_id).await;
    let last_day = Day::of(created_at + Duration::from_secs(40 * 24 * 3_600));
    let approved = run(decide(&format!("2 --approve --expires-on {last_day}"))).await;
    assert_eq!(
        approved.unwrap()["business"]["expires_on"],
        last_day.to_string()
    );
    wait_until_api_says(&api, 200, None).await;
    run("clock advance 1000h".to_owned()).await.unwrap();
    wait_until_api_says(&api, 403, Some("EXPIRED")).await;

    let shown = run(format!("kyc show {merchant_id}")).await.unwrap();
    let decisions = shown["decisions"].as_array().unwrap();
    let decided = decisions.iter().map(|decision| {
        let who = decision["decided_by"].as_str().unwrap_or("nobody");
        format!("{} {who}", decision["status"].as_str().unwrap())
    });
    let expected = [
        "EXPIRED nobody",
        "APPROVED Esi",
        "REJECTED Esi",
        "IN_REVIEW Esi",
    ];
    assert_eq!(decided.collect::<Vec<_>>(), expected);
    assert_eq!(decisions[2]["note"], "later");
    let expired = run("kyc list --status expired".to_owned()).await.unwrap();
    assert_eq!(expired[0]["merchant_id"], merchant_id);
    shop.close().await;
}
