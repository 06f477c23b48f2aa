//! How a server closes a connection without losing what it sent last.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Longest wait for the caller to close its half.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// A connection that, once shut down, reads on until its caller has closed it too.
///
/// Closing a socket with unread bytes sends a reset, which makes the caller's system discard what
/// it has not read yet: the GOAWAY that says which calls were not processed. A call that crossed
/// it on the wire would then look as if it might have run.
pub(super) struct Linger {
    stream: TcpStream,
    until: Option<Pin<Box<Sleep>>>,
}

impl Linger {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            until: None,
        }
    }
}

impl Connected for Linger {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Linger {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Linger {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let until = match &mut this.until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                this.until.insert(Box::pin(sleep(LINGER_MAX)))
            }
        };
        let mut discarded = [0; 1024];
        while until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut discarded);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
