//! The stream of a caller who watches charges.

use chassis::charge_status::ChargeStatus;
use futures::{StreamExt as _, stream, stream::BoxStream};
use proto::charges::{ChargeWatch, WatchChargesRequest, WatchChargesResponse, WatchedCharge};
use tonic::{Status as GrpcStatus, Streaming};

use crate::watch::{Told, Watch, Watching};

/// What a caller is told.
pub type Answers = BoxStream<'static, Result<WatchChargesResponse, GrpcStatus>>;

/// Tells a caller of what it watches, until one of both ends the stream.
pub fn answers(watching: Watching, requests: Streaming<WatchChargesRequest>) -> Answers {
    let answers = stream::unfold(
        (watching, requests),
        async |(mut watching, mut requests)| {
            let told = next(&mut watching, &mut requests).await?;
            let told = told.into_iter().map(WatchedCharge::from).collect();
            Some((Ok(WatchChargesResponse { told }), (watching, requests)))
        },
    );
    answers.boxed()
}

/// What there is to tell. `None` ends the stream.
async fn next(
    watching: &mut Watching,
    requests: &mut Streaming<WatchChargesRequest>,
) -> Option<Vec<Told>> {
    loop {
        let request = tokio::select! {
            told = watching.told() => return told,
            request = requests.message() => request.ok()??,
        };
        for watch in request.begin {
            // What cannot be read watches nothing.
            if let Some(watch) = read(watch) {
                watching.begin(watch);
            }
        }
        for id in request.end {
            watching.end(id);
        }
    }
}

fn read(watch: ChargeWatch) -> Option<Watch> {
    Some(Watch {
        id: watch.watch_id,
        merchant_id: watch.merchant_id.parse().ok()?,
        status: ChargeStatus::try_from(watch.status()).ok()?,
        reference: watch.reference.parse().ok()?,
        version: watch.version,
    })
}

impl From<Told> for WatchedCharge {
    fn from(told: Told) -> Self {
        Self {
            watch_id: told.watch_id,
            charge: Some(told.charge.into()),
        }
    }
}
