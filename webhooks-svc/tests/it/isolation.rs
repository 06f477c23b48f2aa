//! No call finds what is another merchant's.

use chassis::{ids::MerchantId, testing::check_refusal};
use proto::webhooks::{
    CountExhaustedRequest, CreateConformanceRunRequest, DiagnoseSignatureRequest,
    GetConformanceRunRequest, GetEndpointHealthRequest, GetMerchantDeliveryRequest,
    GetReplayRequest, ListMerchantDeliveriesRequest, ListReplaysRequest,
    RedeliverMerchantDeliveryRequest, RevealSecretsRequest, RotateMerchantSecretRequest,
    SendTestRequest, SetMerchantEndpointEnabledRequest, StartConformanceRunRequest,
    StartReplayRequest,
};
use tonic::Code;
use uuid::Uuid;

use crate::{receiver::Receiver, world::World};

const LONG_AGO: &str = "2020-01-01T00:00:00.000Z";

/// A merchant with one of everything.
struct Owner {
    merchant_id: String,
    delivery_id: String,
    event_id: String,
    replay_id: String,
    run_id: String,
}

async fn owner(world: &mut World, url: &str) -> Owner {
    let merchant_id = world.endpoint(url).await.merchant_id;
    let delivery_id = world.deliver(&merchant_id).await;
    let delivery = world.after_attempts(&delivery_id, 1).await;
    let start = StartReplayRequest {
        merchant_id: merchant_id.clone(),
        since: LONG_AGO.to_owned(),
        nonce: Uuid::new_v4().to_string(),
    };
    let replay = world.people.start_replay(start).await.unwrap();
    let create = CreateConformanceRunRequest {
        merchant_id: merchant_id.clone(),
    };
    let run = world.people.create_conformance_run(create).await.unwrap();
    Owner {
        merchant_id,
        delivery_id,
        event_id: delivery.event_id,
        replay_id: replay.into_inner().replay_id,
        run_id: run.into_inner().run_id,
    }
}

/// Asks for everything of the owner's as another merchant.
async fn check_deliveries(world: &mut World, owner: &Owner, merchant_id: &str) {
    let people = &mut world.people;
    let get = GetMerchantDeliveryRequest {
        merchant_id: merchant_id.to_owned(),
        delivery_id: owner.delivery_id.clone(),
    };
    let got = people.get_merchant_delivery(get).await;
    check_refusal(got, Code::NotFound, "DELIVERY_NOT_FOUND");
    let redeliver = RedeliverMerchantDeliveryRequest {
        merchant_id: merchant_id.to_owned(),
        delivery_id: owner.delivery_id.clone(),
    };
    let redelivered = people.redeliver_merchant_delivery(redeliver).await;
    check_refusal(redelivered, Code::NotFound, "DELIVERY_NOT_FOUND");
    for event_ids in [vec![], vec![owner.event_id.clone()]] {
        let list = ListMerchantDeliveriesRequest {
            merchant_id: merchant_id.to_owned(),
            event_ids,
            ..ListMerchantDeliveriesRequest::default()
        };
        let listed = people.list_merchant_deliveries(list).await;
        assert_eq!(listed.unwrap().into_inner().deliveries, []);
    }
    let count = CountExhaustedRequest {
        merchant_id: merchant_id.to_owned(),
        since: LONG_AGO.to_owned(),
    };
    let counted = people.count_exhausted(count).await;
    assert_eq!(counted.unwrap().into_inner().count, 0);
}

async fn check_replays_and_runs(world: &mut World, owner: &Owner, merchant_id: &str, url: &str) {
    let people = &mut world.people;
    let get = GetReplayRequest {
        merchant_id: merchant_id.to_owned(),
        replay_id: owner.replay_id.clone(),
    };
    let got = people.get_replay(get).await;
    check_refusal(got, Code::NotFound, "REPLAY_NOT_FOUND");
    let list = ListReplaysRequest {
        merchant_id: merchant_id.to_owned(),
    };
    let listed = people.list_replays(list).await;
    assert_eq!(listed.unwrap().into_inner().replays, []);
    let get = GetConformanceRunRequest {
        merchant_id: merchant_id.to_owned(),
        run_id: owner.run_id.clone(),
    };
    let got = people.get_conformance_run(get).await;
    check_refusal(got, Code::NotFound, "CONFORMANCE_NOT_FOUND");
    let start = StartConformanceRunRequest {
        merchant_id: merchant_id.to_owned(),
        run_id: owner.run_id.clone(),
        url: url.to_owned(),
    };
    let started = people.start_conformance_run(start).await;
    check_refusal(started, Code::NotFound, "CONFORMANCE_NOT_FOUND");
}

#[tokio::test]
async fn what_is_anothers_is_not_found() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let owner = owner(&mut world, &receiver.url()).await;
    let calls = receiver.connections();
    // One who has an endpoint, and one who has nothing.
    let other = world.endpoint(&receiver.url()).await.merchant_id;
    let nobody = MerchantId::new().to_string();
    for merchant_id in [other, nobody] {
        check_deliveries(&mut world, &owner, &merchant_id).await;
        check_replays_and_runs(&mut world, &owner, &merchant_id, &receiver.url()).await;
    }
    assert_eq!(receiver.connections(), calls, "nothing was sent");
    assert_eq!(world.delivery(&owner.delivery_id).await.attempts_count, 1);
}

#[tokio::test]
async fn who_has_no_endpoint_reaches_nobodys() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let owner = owner(&mut world, &receiver.url()).await;
    let calls = receiver.connections();
    let merchant_id = MerchantId::new().to_string();
    let people = &mut world.people;
    macro_rules! refused {
        ($call:ident, $request:ident $(, $field:ident: $value:expr)*) => {
            let request = $request {
                merchant_id: merchant_id.clone(),
                $($field: $value,)*
            };
            let refused = people.$call(request).await;
            check_refusal(refused, Code::NotFound, "ENDPOINT_NOT_FOUND");
        };
    }
    refused!(get_endpoint_health, GetEndpointHealthRequest);
    refused!(reveal_secrets, RevealSecretsRequest);
    refused!(rotate_merchant_secret, RotateMerchantSecretRequest, updated_at: String::new());
    refused!(send_test, SendTestRequest);
    let enabled = false;
    refused!(set_merchant_endpoint_enabled, SetMerchantEndpointEnabledRequest, enabled: enabled);
    refused!(
        start_replay, StartReplayRequest,
        since: LONG_AGO.to_owned(), nonce: Uuid::new_v4().to_string()
    );
    refused!(
        diagnose_signature, DiagnoseSignatureRequest,
        header: String::new(), body: Vec::new(), event_id: owner.event_id.clone()
    );
    assert_eq!(receiver.connections(), calls, "nothing was sent");
    let owned = world.get_endpoint(&owner.merchant_id).await;
    assert!(owned.enabled && owned.previous_signing_secret.is_none());
}
