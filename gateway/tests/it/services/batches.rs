//! Calls that come together.

use std::sync::Arc;

use chassis::grpc::BatchedMethods;
use futures::{TryStreamExt as _, future::BoxFuture, stream::BoxStream};
use proto::{
    batch::{CarryRequest, CarryResponse, batches_server::Batches},
    batched::{CreateSession, GetCharge, GetSession},
};
use tonic::{Request, Response, Status};

use super::{Call, Served, Services};

#[tonic::async_trait]
impl Batches for Served {
    type CarryStream = BoxStream<'static, Result<CarryResponse, Status>>;

    async fn carry(
        &self,
        request: Request<CarryRequest>,
    ) -> Result<Response<Self::CarryStream>, Status> {
        let calls = Request::new(request.get_ref().clone());
        let change = self.0.carry.run(request).await?.into_inner();
        let answers = self.batched().carry(calls).await?;
        let changed = answers.into_inner().map_ok(move |answer| CarryResponse {
            outcomes: answer.outcomes.into_iter().filter_map(change).collect(),
        });
        Ok(Response::new(Box::pin(changed)))
    }
}

impl Served {
    fn batched(&self) -> BatchedMethods {
        let [creations, sessions, charges] = [(); 3].map(|()| Arc::clone(&self.0));
        BatchedMethods::default()
            .method::<CreateSession, _>(answer(creations, |services| &services.create_session))
            .method::<GetSession, _>(answer(sessions, |services| &services.get_session))
            .method::<GetCharge, _>(answer(charges, |services| &services.get_charge))
    }
}

/// Answers this call, however it comes.
fn answer<Q: Clone + Send + 'static, A: Send + 'static>(
    services: Arc<Services>,
    call: fn(&Services) -> &Call<Q, A>,
) -> impl Fn(Q) -> BoxFuture<'static, Result<A, Status>> + Clone {
    move |request| {
        let services = Arc::clone(&services);
        Box::pin(async move {
            let answer = call(&services).run(Request::new(request)).await;
            answer.map(Response::into_inner)
        })
    }
}
