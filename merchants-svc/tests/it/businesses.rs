//! Businesses: submitted, decided, and ended by time.

use chassis::{
    grpc,
    testing::{check_invalid, check_refusal, until},
};
use proto::merchants::{
    Business, BusinessDecision, BusinessForm, BusinessKind, DecideBusinessRequest, FieldReason,
    GetBusinessRequest, KycStatus, ListBusinessesRequest, ListBusinessesResponse, ReviewedBusiness,
    ShowBusinessRequest, SubmitBusinessRequest, UpdateMerchantRequest,
};
use tonic::{Code, Response, Status};

use crate::shop::{DAY, Shop, World, origin};

const CARD: &str = "GHA-123456789-0";
const PHONE: &str = "+233241234567";

fn form() -> BusinessForm {
    BusinessForm {
        kind: BusinessKind::Company.into(),
        registered_name: " Ama's  Shop Ltd ".to_owned(),
        registration_number: "cs 123456789".to_owned(),
        tin: "c000-1234567".to_owned(),
        activity: "Sells fabric\r\nand thread".to_owned(),
        website: "ama.example".to_owned(),
        digital_address: "ga 144 1234".to_owned(),
        town: "Accra".to_owned(),
        owner_name: "Ama Mensah".to_owned(),
        owner_ghana_card: "gha1234567890".to_owned(),
        owner_phone: "024 123 4567".to_owned(),
    }
}

impl World {
    async fn submit_form(&mut self, shop: &Shop, form: BusinessForm) -> Result<Business, Status> {
        let request = SubmitBusinessRequest {
            merchant_id: shop.merchant_id.clone(),
            person_id: shop.person_id.clone(),
            form: Some(form),
            origin: origin(),
        };
        let submitted = self.account.submit_business(request).await;
        submitted.map(Response::into_inner)
    }

    async fn submit(&mut self, shop: &Shop) -> Business {
        self.submit_form(shop, form()).await.unwrap()
    }

    async fn business(&mut self, shop: &Shop) -> Business {
        let request = GetBusinessRequest {
            merchant_id: shop.merchant_id.clone(),
        };
        let found = self.account.get_business(request).await;
        found.unwrap().into_inner()
    }

    /// Decides on the first version.
    async fn decide_with(
        &mut self,
        shop: &Shop,
        status: KycStatus,
        change: impl FnOnce(&mut DecideBusinessRequest),
    ) -> Result<ReviewedBusiness, Status> {
        let mut request = DecideBusinessRequest {
            merchant_id: shop.merchant_id.clone(),
            version: 1,
            status: status.into(),
            reasons: Vec::new(),
            expires_on: None,
            decided_by: "Kofi".to_owned(),
            note: "seen the papers".to_owned(),
        };
        if status == KycStatus::Rejected {
            request.reasons = vec![reason("tin", "It is another company's.")];
        }
        change(&mut request);
        let decided = self.reviews.decide_business(request).await;
        decided.map(Response::into_inner)
    }

    async fn decide(&mut self, shop: &Shop, status: KycStatus) -> ReviewedBusiness {
        self.decide_with(shop, status, |_| {}).await.unwrap()
    }

    async fn show(&mut self, shop: &Shop) -> ReviewedBusiness {
        let request = ShowBusinessRequest {
            merchant_id: shop.merchant_id.clone(),
        };
        let shown = self.reviews.show_business(request).await;
        shown.unwrap().into_inner()
    }

    async fn list(&mut self, status: KycStatus, page_token: &str) -> ListBusinessesResponse {
        let request = ListBusinessesRequest {
            status: status.into(),
            page_size: 2,
            page_token: page_token.to_owned(),
        };
        let listed = self.reviews.list_businesses(request).await;
        listed.unwrap().into_inner()
    }

    async fn kyc_status(&mut self, shop: &Shop) -> KycStatus {
        self.merchant(shop).await.kyc_status()
    }

    /// Waits until the merchant has this status.
    async fn until_status(&mut self, shop: &Shop, status: KycStatus) {
        until("the merchant's status has changed", async || {
            self.kyc_status(shop).await == status
        })
        .await;
    }
}

fn reason(field: &str, reason: &str) -> FieldReason {
    FieldReason {
        field: field.to_owned(),
        reason: reason.to_owned(),
    }
}

fn shown(decision: &BusinessDecision) -> (u32, KycStatus, Option<&str>) {
    let decided_by = decision.decided_by.as_deref();
    (decision.version, decision.status(), decided_by)
}

#[tokio::test]
async fn what_was_submitted_waits_in_one_form() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let before = world.business(&shop).await;
    assert_eq!(before, Business::default());
    let submitted = world.submit(&shop).await;
    assert_eq!(submitted.status(), KycStatus::Pending);
    let kept = BusinessForm {
        kind: BusinessKind::Company.into(),
        registered_name: "Ama's Shop Ltd".to_owned(),
        registration_number: "CS123456789".to_owned(),
        tin: "C0001234567".to_owned(),
        activity: "Sells fabric and thread".to_owned(),
        website: "https://ama.example/".to_owned(),
        digital_address: "GA-144-1234".to_owned(),
        town: "Accra".to_owned(),
        owner_name: "Ama Mensah".to_owned(),
        owner_ghana_card: CARD.to_owned(),
        owner_phone: PHONE.to_owned(),
    };
    assert!(submitted.form.as_ref() == Some(&kept));
    assert!(world.business(&shop).await == submitted);
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Pending);
    let noted = [("BUSINESS_SUBMITTED".to_owned(), String::new())];
    assert_eq!(world.activities(&shop).await, noted);
    let printed = format!("{submitted:?}");
    assert!(!printed.contains("123456789") && !printed.contains("241234567"));
}

#[tokio::test]
async fn every_field_that_is_at_fault_is_named_at_once() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    let refused = world.submit_form(&shop, BusinessForm::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let named: Vec<String> = grpc::violations(&refused)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    // A website is not needed.
    let every_other = [
        "kind",
        "registered_name",
        "registration_number",
        "tin",
        "activity",
        "digital_address",
        "town",
        "owner_name",
        "owner_ghana_card",
        "owner_phone",
    ];
    assert_eq!(named, every_other);
    assert_eq!(world.business(&shop).await, Business::default());

    type Wrong = fn(&mut BusinessForm);
    let alone: [(&str, Wrong); 11] = [
        ("kind", |form| form.kind = 99),
        ("registered_name", |form| {
            form.registered_name = "x".repeat(201)
        }),
        ("registration_number", |form| {
            form.registration_number = "1".repeat(31)
        }),
        ("tin", |form| form.tin = "X0001234567".to_owned()),
        ("activity", |form| form.activity = "x".repeat(501)),
        ("website", |form| {
            form.website = "javascript://a.b/%0Ax".to_owned()
        }),
        ("digital_address", |form| {
            form.digital_address = "GA-1-1".to_owned()
        }),
        ("town", |form| form.town = "x".repeat(101)),
        ("owner_name", |form| form.owner_name = "a\u{7}b".to_owned()),
        ("owner_ghana_card", |form| {
            form.owner_ghana_card = "GHA-1".to_owned()
        }),
        ("owner_phone", |form| {
            form.owner_phone = "+44 20 7946 0958".to_owned()
        }),
    ];
    for (field, spoil) in alone {
        let mut wrong = form();
        spoil(&mut wrong);
        check_invalid(world.submit_form(&shop, wrong).await, field);
    }
}

#[tokio::test]
async fn it_is_reviewed_rejected_with_reasons_sent_again_and_approved() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    world.decide(&shop, KycStatus::InReview).await;
    assert_eq!(world.kyc_status(&shop).await, KycStatus::InReview);
    let locked = world.submit_form(&shop, form()).await;
    check_refusal(locked, Code::FailedPrecondition, "BUSINESS_IN_REVIEW");

    let reasons = vec![
        reason("owner_ghana_card", "The name is another one."),
        reason("tin", " It is another company's. "),
    ];
    let rejecting = |request: &mut DecideBusinessRequest| request.reasons = reasons;
    let rejected = world
        .decide_with(&shop, KycStatus::Rejected, rejecting)
        .await;
    let rejected = rejected.unwrap();
    assert_eq!((rejected.version, &*rejected.decided_by), (1, "Kofi"));
    let seen = world.business(&shop).await;
    assert_eq!(seen.status(), KycStatus::Rejected);
    let in_order = [
        reason("tin", "It is another company's."),
        reason("owner_ghana_card", "The name is another one."),
    ];
    assert_eq!(seen.reasons, in_order);
    assert!(seen.form.is_some(), "what was typed is kept");
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Rejected);

    let corrected = BusinessForm {
        tin: "C0007654321".to_owned(),
        ..form()
    };
    let again = world.submit_form(&shop, corrected).await.unwrap();
    assert_eq!(again.status(), KycStatus::Pending);
    assert!(again.reasons.is_empty());
    let stale = world.decide_with(&shop, KycStatus::Approved, |_| {}).await;
    check_refusal(stale, Code::FailedPrecondition, "BUSINESS_CHANGED");
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Pending);

    let second = |request: &mut DecideBusinessRequest| request.version = 2;
    let approved = world.decide_with(&shop, KycStatus::Approved, second).await;
    let approved = approved.unwrap();
    let last_day = approved.business.unwrap().expires_on.unwrap();
    let usual = chassis::clock::Day::of(world.clock.now() + 730 * DAY);
    assert_eq!(last_day, usual.to_string());
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Approved);

    let decisions = world.show(&shop).await.decisions;
    let decided: Vec<_> = decisions.iter().map(shown).collect();
    let kofi = Some("Kofi");
    let expected = [
        (2, KycStatus::Approved, kofi),
        (1, KycStatus::Rejected, kofi),
        (1, KycStatus::InReview, kofi),
    ];
    assert_eq!(decided, expected);
    assert_eq!(decisions[1].reasons, in_order);
    assert_eq!(decisions[1].note, "seen the papers");
    let mails = world.mails(&shop).await;
    let told: Vec<&str> = mails.iter().map(|(_, about)| about.as_str()).collect();
    assert_eq!(told, ["IN_REVIEW", "REJECTED", "APPROVED"]);
    assert!(mails.iter().all(|(kind, _)| kind == "BUSINESS_DECIDED"));
}

#[tokio::test]
async fn a_decision_is_kept_with_what_was_looked_at() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    world.decide(&shop, KycStatus::Rejected).await;
    let other = BusinessForm {
        town: "Kumasi".to_owned(),
        ..form()
    };
    world.submit_form(&shop, other).await.unwrap();
    let mut conn = world.db.read().await.unwrap();
    let (kept,): (String,) = conn
        .sql("select form from business_decisions")
        .one()
        .await
        .unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["town"], "Accra");
    assert_eq!(kept["owner_ghana_card"], CARD);
    assert_eq!(kept.as_object().unwrap().len(), 11);
    drop(conn);
    if world.db.is_postgres() {
        let mut conn = world.db.write().await.unwrap();
        let deleted = conn.sql("delete from business_decisions").run().await;
        assert!(deleted.is_err(), "nobody deletes them");
    }
}

#[tokio::test]
async fn an_approval_ends_after_its_last_day_and_is_told_of_a_month_before() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    let last_day = chassis::clock::Day::of(world.clock.now() + 60 * DAY);
    let until_then = |request: &mut DecideBusinessRequest| {
        request.expires_on = Some(last_day.to_string());
    };
    let approved = world
        .decide_with(&shop, KycStatus::Approved, until_then)
        .await;
    approved.unwrap();
    let told = async |world: &World, kind: &str| {
        let mails = world.mails(&shop).await;
        let of_kind = mails.iter().filter(|(told, _)| told == kind);
        of_kind.map(|(_, about)| about.clone()).collect::<Vec<_>>()
    };

    world.clock.advance(29 * DAY).await.unwrap();
    assert!(told(&world, "APPROVAL_ENDS").await.is_empty());
    world.clock.advance(2 * DAY).await.unwrap();
    assert_eq!(told(&world, "APPROVAL_ENDS").await, [last_day.to_string()]);

    let left = last_day.end().since(world.clock.now());
    world.clock.advance(left - DAY / 24).await.unwrap();
    assert_eq!(world.today(), last_day);
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Approved);
    world.clock.advance(DAY / 12).await.unwrap();
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Expired);
    let seen = world.business(&shop).await;
    assert_eq!(seen.status(), KycStatus::Expired);
    assert_eq!(seen.expires_on, Some(last_day.to_string()));

    // Once, each of them.
    world.clock.advance(90 * DAY).await.unwrap();
    assert_eq!(told(&world, "APPROVAL_ENDS").await.len(), 1);
    assert_eq!(told(&world, "APPROVAL_ENDED").await, [last_day.to_string()]);
    let decisions = world.show(&shop).await.decisions;
    assert_eq!(shown(&decisions[0]), (1, KycStatus::Expired, None));
    assert_eq!(decisions.len(), 2);

    // What an operator does by hand afterwards stays.
    let by_hand = UpdateMerchantRequest {
        merchant_id: shop.merchant_id.clone(),
        kyc_status: Some(KycStatus::Approved.into()),
        ..Default::default()
    };
    world.operations.update_merchant(by_hand).await.unwrap();
    world.clock.advance(900 * DAY).await.unwrap();
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Approved);
}

#[tokio::test]
async fn a_renewal_waits_beside_the_approval() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    let last_day = chassis::clock::Day::of(world.clock.now() + 60 * DAY);
    let until_then = |version: u32| {
        move |request: &mut DecideBusinessRequest| {
            request.version = version;
            request.expires_on = Some(last_day.to_string());
        }
    };
    let approve = KycStatus::Approved;
    world
        .decide_with(&shop, approve, until_then(1))
        .await
        .unwrap();

    let renewal = world.submit(&shop).await;
    assert_eq!(renewal.status(), KycStatus::Pending);
    assert_eq!(renewal.expires_on, Some(last_day.to_string()));
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Approved);
    let waiting = world.list(KycStatus::Unspecified, "").await;
    assert_eq!(waiting.businesses.len(), 1);
    assert!(
        world
            .list(KycStatus::Approved, "")
            .await
            .businesses
            .is_empty()
    );

    // Whoever has sent a renewal is not told to send one, and goes on waiting when the approval ends.
    world.clock.advance(40 * DAY).await.unwrap();
    let mails = world.mails(&shop).await;
    assert!(mails.iter().all(|(kind, _)| kind != "APPROVAL_ENDS"));
    world.clock.advance(21 * DAY).await.unwrap();
    world.until_status(&shop, KycStatus::Pending).await;
    assert_eq!(world.business(&shop).await.status(), KycStatus::Pending);

    let second = |request: &mut DecideBusinessRequest| request.version = 2;
    world.decide_with(&shop, approve, second).await.unwrap();
    world.submit(&shop).await;
    let review = |request: &mut DecideBusinessRequest| request.version = 3;
    let reviewed = world.decide_with(&shop, KycStatus::InReview, review).await;
    assert_eq!(reviewed.unwrap().merchant.unwrap().kyc_status(), approve);
    let locked = world.submit_form(&shop, form()).await;
    check_refusal(locked, Code::FailedPrecondition, "BUSINESS_IN_REVIEW");
    let third = |request: &mut DecideBusinessRequest| request.version = 3;
    let rejected = world.decide_with(&shop, KycStatus::Rejected, third).await;
    assert_eq!(rejected.unwrap().business.unwrap().expires_on, None);
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Rejected);
}

#[tokio::test]
async fn an_operator_ends_an_approval() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    world.decide(&shop, KycStatus::Approved).await;
    let ended = world.decide(&shop, KycStatus::Expired).await;
    let today = world.today().to_string();
    assert_eq!(ended.business.unwrap().expires_on, Some(today));
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Expired);
    assert_eq!(world.submit(&shop).await.status(), KycStatus::Pending);
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Pending);
}

#[tokio::test]
async fn an_approval_without_a_business_does_not_end() {
    let mut world = World::start().await;
    let shop = world.shop_that_is(KycStatus::Approved).await;
    let seen = world.business(&shop).await;
    assert_eq!((seen.status(), seen.form), (KycStatus::Approved, None));
    world.clock.advance(3_000 * DAY).await.unwrap();
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Approved);
    let decided = world.decide_with(&shop, KycStatus::Expired, |_| {}).await;
    check_refusal(decided, Code::NotFound, "BUSINESS_NOT_FOUND");
}

#[tokio::test]
async fn who_waits_is_listed_oldest_first_page_by_page() {
    let mut world = World::start().await;
    let mut shops = Vec::new();
    for _ in 0..5 {
        let shop = world.shop().await;
        world.submit(&shop).await;
        shops.push(shop);
        world.clock.advance(DAY / 24).await.unwrap();
    }
    world.decide(&shops[1], KycStatus::InReview).await;
    world.decide(&shops[2], KycStatus::Rejected).await;
    let mut listed = Vec::new();
    let mut token = String::new();
    loop {
        let page = world.list(KycStatus::Unspecified, &token).await;
        let ids = page.businesses.into_iter();
        listed.extend(ids.map(|listed| listed.merchant.unwrap().merchant_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let waiting = [&shops[0], &shops[1], &shops[3], &shops[4]];
    assert_eq!(listed, waiting.map(|shop| shop.merchant_id.clone()));
    let only = async |world: &mut World, status: KycStatus| {
        let page = world.list(status, "").await.businesses;
        let ids = page
            .into_iter()
            .map(|listed| listed.merchant.unwrap().merchant_id);
        ids.collect::<Vec<_>>()
    };
    let of = |shop: &Shop| vec![shop.merchant_id.clone()];
    assert_eq!(only(&mut world, KycStatus::InReview).await, of(&shops[1]));
    assert_eq!(only(&mut world, KycStatus::Rejected).await, of(&shops[2]));
    assert!(only(&mut world, KycStatus::Expired).await.is_empty());
    let request = ListBusinessesRequest {
        page_size: 101,
        ..Default::default()
    };
    check_invalid(world.reviews.list_businesses(request).await, "page_size");
    let request = ListBusinessesRequest {
        page_token: "1".to_owned(),
        ..Default::default()
    };
    check_invalid(world.reviews.list_businesses(request).await, "page_token");
}

#[tokio::test]
async fn anothers_business_is_not_found() {
    let mut world = World::start().await;
    let (shop, other) = (world.shop().await, world.shop().await);
    world.submit(&shop).await;
    let stranger = Shop {
        merchant_id: shop.merchant_id.clone(),
        ..other.clone()
    };
    let submitted = world.submit_form(&stranger, form()).await;
    check_refusal(submitted, Code::NotFound, "MERCHANT_NOT_FOUND");
    assert_eq!(world.business(&other).await, Business::default());
    for id in ["", "x", "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"] {
        let request = GetBusinessRequest {
            merchant_id: id.to_owned(),
        };
        let found = world.account.get_business(request).await;
        check_refusal(found, Code::NotFound, "MERCHANT_NOT_FOUND");
        let request = ShowBusinessRequest {
            merchant_id: id.to_owned(),
        };
        let shown = world.reviews.show_business(request).await;
        check_refusal(shown, Code::NotFound, "BUSINESS_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_decision_that_makes_no_sense_is_refused() {
    let mut world = World::start().await;
    let shop = world.shop().await;
    world.submit(&shop).await;
    let today = world.today().to_string();
    type Wrong = Box<dyn FnOnce(&mut DecideBusinessRequest)>;
    let with_reasons =
        |reasons: Vec<FieldReason>| -> Wrong { Box::new(move |request| request.reasons = reasons) };
    let cases: Vec<(&str, KycStatus, Wrong)> = vec![
        ("status", KycStatus::Pending, Box::new(|_| {})),
        ("status", KycStatus::Unspecified, Box::new(|_| {})),
        ("reasons", KycStatus::Rejected, with_reasons(vec![])),
        (
            "reasons",
            KycStatus::Rejected,
            with_reasons(vec![reason("colour", "x")]),
        ),
        (
            "reasons",
            KycStatus::Rejected,
            with_reasons(vec![reason("tin", " ")]),
        ),
        (
            "reasons",
            KycStatus::Rejected,
            with_reasons(vec![reason("tin", "x"), reason("tin", "y")]),
        ),
        (
            "reasons",
            KycStatus::Rejected,
            with_reasons(vec![reason("tin", &"x".repeat(301))]),
        ),
        (
            "reasons",
            KycStatus::Approved,
            with_reasons(vec![reason("tin", "x")]),
        ),
        (
            "expires_on",
            KycStatus::Approved,
            Box::new(move |request| request.expires_on = Some(today)),
        ),
        (
            "expires_on",
            KycStatus::Approved,
            Box::new(|request| request.expires_on = Some("soon".to_owned())),
        ),
        (
            "expires_on",
            KycStatus::Rejected,
            Box::new(|request| request.expires_on = Some("2999-01-01".to_owned())),
        ),
        (
            "decided_by",
            KycStatus::Approved,
            Box::new(|request| request.decided_by = " ".to_owned()),
        ),
        (
            "note",
            KycStatus::Approved,
            Box::new(|request| request.note = "x".repeat(501)),
        ),
    ];
    for (field, status, spoil) in cases {
        check_invalid(world.decide_with(&shop, status, spoil).await, field);
    }
    assert_eq!(world.kyc_status(&shop).await, KycStatus::Pending);
    assert!(world.show(&shop).await.decisions.is_empty());
}
