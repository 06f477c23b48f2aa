//! Telling merchants that their endpoint has let deliveries exhaust all attempts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::testing::{ServedService, gauged_seconds, until};
use proto::{
    merchants::{
        NoticeKind, TellMerchantRequest, TellMerchantResponse,
        notices_server::{Notices, NoticesServer},
    },
    webhooks::DeliveryStatus,
};
use tonic::{Request, Response, Status, service::Routes};

use crate::{
    receiver::{Answer, Receiver},
    world::{HOUR, MINUTE, World},
};

/// A merchants-svc that only takes notices. Clones share what it was told.
#[derive(Clone, Debug, Default)]
struct Mailroom {
    told: Arc<Mutex<Vec<TellMerchantRequest>>>,
    is_down: Arc<AtomicBool>,
}

impl Mailroom {
    fn told(&self) -> Vec<TellMerchantRequest> {
        self.told.lock().unwrap().clone()
    }

    async fn open(&self) -> ServedService {
        ServedService::of(Routes::new(NoticesServer::new(self.clone()))).await
    }
}

#[tonic::async_trait]
impl Notices for Mailroom {
    async fn tell_merchant(
        &self,
        request: Request<TellMerchantRequest>,
    ) -> Result<Response<TellMerchantResponse>, Status> {
        self.told.lock().unwrap().push(request.into_inner());
        match self.is_down.load(Ordering::SeqCst) {
            true => Err(Status::unavailable("the database is away")),
            false => Ok(Response::new(TellMerchantResponse {})),
        }
    }
}

#[tokio::test]
async fn a_merchant_is_told_when_it_begins_and_once_a_day_at_most() {
    let mailroom = Mailroom::default();
    let merchants = mailroom.open().await;
    let url = format!("--merchants-url={}", merchants.url());
    let mut world = World::start_with(&[&url, "--webhook-retry-schedule=1m"]).await;
    // The third event is taken, the others are refused.
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 5 { 200 } else { 500 })).await;
    let endpoint = world.endpoint(&receiver.url()).await;
    let merchant_id = endpoint.merchant_id;
    let exhaust = async |world: &mut World| {
        let id = world.deliver(&merchant_id).await;
        world.after_attempts(&id, 1).await;
        world.advance(MINUTE).await;
        world.in_state(&id, DeliveryStatus::Exhausted).await;
    };
    exhaust(&mut world).await;
    until("the merchant is told", async || mailroom.told().len() == 1).await;
    let told = mailroom.told().remove(0);
    assert_eq!(told.kind(), NoticeKind::WebhookExhausted);
    assert_eq!(told.merchant_id, merchant_id);
    assert_eq!(told.about, "127.0.0.1", "no path, which may be secret");
    let since = world.get_endpoint(&merchant_id).await.exhausted_since;
    assert_eq!(Some(told.at), since);

    // More of the same, then a success, then it begins again within the day.
    exhaust(&mut world).await;
    let id = world.deliver(&merchant_id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    exhaust(&mut world).await;
    world.advance(HOUR).await;
    assert_eq!(mailroom.told().len(), 1);
    // It stays so, and the day is over.
    world.advance(24 * HOUR).await;
    until("the merchant is told again", async || {
        mailroom.told().len() == 2
    })
    .await;
    let since = world.get_endpoint(&merchant_id).await.exhausted_since;
    assert_eq!(Some(mailroom.told().remove(1).at), since);
    merchants.stop().await;
}

#[tokio::test]
async fn whoever_could_not_be_told_is_told_again_under_the_same_id() {
    let mailroom = Mailroom::default();
    mailroom.is_down.store(true, Ordering::SeqCst);
    let merchants = mailroom.open().await;
    let url = format!("--merchants-url={}", merchants.url());
    let mut world = World::start_with(&[&url, "--webhook-retry-schedule=1m"]).await;
    let receiver = Receiver::always(500).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.advance(MINUTE).await;
    world.in_state(&id, DeliveryStatus::Exhausted).await;
    until("it was tried", async || !mailroom.told().is_empty()).await;
    world.advance(2 * HOUR).await;
    until("operators see that it waits", async || {
        let metrics = chassis::metrics::render();
        let waited = gauged_seconds(&metrics, "exhaustions_untold_oldest_seconds");
        waited.is_some_and(|seconds| seconds > 3_600)
    })
    .await;
    mailroom.is_down.store(false, Ordering::SeqCst);
    let tried = mailroom.told().len();
    world.advance(2 * MINUTE).await;
    until("it is tried again", async || mailroom.told().len() > tried).await;
    let told = mailroom.told();
    assert!(told.iter().all(|again| again == &told[0]));
    world.advance(Duration::from_secs(48 * 3_600)).await;
    assert_eq!(mailroom.told().len(), told.len());
    merchants.stop().await;
}
