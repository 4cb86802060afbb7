//! Accepts a bounded number of connections: a runaway viewer must not use up the process's descriptors.
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A browser opens at most six connections to a page.
const CONNECTIONS_MAX: usize = 256;

/// A listener that accepts a connection only while fewer than [`CONNECTIONS_MAX`] are open.
pub(super) struct Limited {
    socket: TcpListener,
    places: Arc<Semaphore>,
}

impl Limited {
    pub(super) fn new(socket: TcpListener) -> Self {
        Self { socket, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl Listener for Limited {
    type Io = Counted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted, SocketAddr) {
        // The semaphore is never closed; without a place the connection would only be uncounted.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, peer) = Listener::accept(&mut self.socket).await;
        (Counted { stream, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection that frees its place when it ends.
pub(super) struct Counted {
    stream: TcpStream,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
