//! A request's body while it arrives.

use std::{
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::idle::Connection;

/// The request's body did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not arrive in time")]
pub struct BodyTooSlow;

/// A body that fails with [`BodyTooSlow`] once its time is up. Its connection is idle while it
/// waits for more.
pub(super) struct ArrivingBody {
    body: Incoming,
    until: Instant,
    too_slow: Option<Pin<Box<Sleep>>>,
    connection: Arc<Connection>,
    is_idle: bool,
}

impl ArrivingBody {
    pub(super) fn new(body: Incoming, body_max: Duration, connection: Arc<Connection>) -> Self {
        Self {
            body,
            until: Instant::now() + body_max,
            too_slow: None,
            connection,
            is_idle: false,
        }
    }

    /// Returns false if the connection was evicted.
    fn mark_active(&mut self) -> bool {
        !std::mem::take(&mut self.is_idle) || self.connection.mark_active()
    }
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let arrived = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame.map(|frame| frame.map_err(axum::Error::new)),
            Poll::Pending => {
                this.is_idle = true;
                this.connection.mark_idle();
                let until = this.until;
                let too_slow = this
                    .too_slow
                    .get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(too_slow.as_mut().poll(cx));
                Some(Err(axum::Error::new(BodyTooSlow)))
            }
        };
        if !this.mark_active() {
            // The connection is about to close, which ends its request too.
            return Poll::Pending;
        }
        Poll::Ready(arrived)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ArrivingBody {
    /// A handler that drops the body may still be working on the request.
    fn drop(&mut self) {
        self.mark_active();
    }
}
